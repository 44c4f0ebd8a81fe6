//go:build !linux

package disk

import "os"

// Begin does nothing: on this system, the kernel decides when to write.
func Begin(*os.File, int64, int64) {}

// Reserve does nothing: on this system, the file grows as it is written.
func Reserve(*os.File, int64) error { return nil }
