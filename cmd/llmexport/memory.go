package main

import "runtime/debug"

// saveMemory makes the collector run twice as often, for commands that hold much and throw little away.
func saveMemory() { debug.SetGCPercent(50) }

// programBytes is what the process takes beside its heap: code, stacks, and what the collector sets aside.
const programBytes = 40 << 20

// holdMemory makes the collector keep the process within n bytes, where what it holds allows that. Mapped files do not count.
func holdMemory(n int64) { debug.SetMemoryLimit(n - min(programBytes, n/8)) }
