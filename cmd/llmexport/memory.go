package main

import "runtime/debug"

// saveMemory makes the garbage collector run three times as often, for commands that keep most of what they allocate.
func saveMemory() { debug.SetGCPercent(33) }

// programBytes is the memory of the process outside its heap: code, stacks and the reserve of the collector.
const programBytes = 40 << 20

// holdMemory sets the collector's soft limit so that the process stays within n bytes. Mapped files do not count.
func holdMemory(n int64) { debug.SetMemoryLimit(n - min(programBytes, n/8)) }
