package disk

import "io/fs"

// Allocated returns the number of bytes that a file takes on disk.
func Allocated(info fs.FileInfo) int64 { return info.Size() }
