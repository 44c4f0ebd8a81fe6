package stage

import "golang.org/x/sys/windows"

// freeSpace is the number of bytes that may still be written to dir's file system, or -1 if it is not known.
func freeSpace(dir string) int64 {
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
