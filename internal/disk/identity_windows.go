package disk

import "io/fs"

// IdentityOf returns the identity of a file, and its number of names; ok is false where the system does not report it.
func IdentityOf(fs.FileInfo) (id Identity, links uint64, ok bool) { return Identity{}, 0, false }
