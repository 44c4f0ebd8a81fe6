//go:build unix

package disk

import "golang.org/x/sys/unix"

// free returns the free space of dir's file system in bytes, or -1 if unknown.
func free(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
