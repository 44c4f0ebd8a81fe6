//go:build unix

package disk

import "golang.org/x/sys/unix"

// free is the number of bytes that may still be written to dir's file system, or -1 if it is not known.
func free(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
