//go:build unix

package disk

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// Free is the number of bytes that may still be written to dir's file system, or -1 if it is not known.
func Free(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// Allocated is the number of bytes that a file takes on disk; holes take none.
func Allocated(info fs.FileInfo) int64 {
	const blockSize = 512 // of the system call, whatever the file system has
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * blockSize
	}
	return info.Size()
}
