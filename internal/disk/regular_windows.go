package disk

import "io/fs"

// Nonblock is nothing: named pipes have a place of their own.
const Nonblock = 0

// names is how many names a file has; here it is not asked, as a link needs the right to write to the file.
func names(fs.FileInfo) uint64 { return 1 }
