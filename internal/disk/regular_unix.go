//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// Nonblock has a named pipe that nobody writes to open at once.
const Nonblock = syscall.O_NONBLOCK

// names is how many names a file has.
func names(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}
