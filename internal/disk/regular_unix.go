//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// Nonblock makes opening a named pipe without a writer return at once.
const Nonblock = syscall.O_NONBLOCK

// names returns the number of names of a file.
func names(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}
