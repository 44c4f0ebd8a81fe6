//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// Allocated returns the number of bytes that a file takes on disk; holes take none.
func Allocated(info fs.FileInfo) int64 {
	const blockSize = 512 // unit of the system call, on every file system
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * blockSize
	}
	return info.Size()
}
