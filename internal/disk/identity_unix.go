//go:build unix

package disk

import (
	"io/fs"
	"syscall"
)

// IdentityOf returns the identity of a file, and its number of names; ok is false where the system does not report it.
func IdentityOf(info fs.FileInfo) (id Identity, links uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}, 0, false
	}
	return Identity{uint64(st.Dev), st.Ino}, uint64(st.Nlink), true
}
