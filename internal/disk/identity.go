package disk

// Identity tells files apart: hard links to one file have the same.
type Identity struct{ Device, Inode uint64 }
