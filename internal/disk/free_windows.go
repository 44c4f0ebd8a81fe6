package disk

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

// Free is the number of bytes that may still be written to dir's file system, or -1 if it is not known.
func Free(dir string) int64 {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return -1
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(p, &free, nil, nil) != nil {
		return -1
	}
	return int64(free)
}

// Allocated is the number of bytes that a file takes on disk.
func Allocated(info fs.FileInfo) int64 { return info.Size() }
