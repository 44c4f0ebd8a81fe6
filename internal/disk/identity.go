package disk

// Identity identifies a file: hard links to the same file have the same one.
type Identity struct{ Device, Inode uint64 }
