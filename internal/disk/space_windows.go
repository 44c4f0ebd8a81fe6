package disk

import "golang.org/x/sys/windows"

// free returns the free space of dir's file system in bytes, or -1 if unknown.
func free(dir string) int64 {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return -1
	}
	var n uint64
	if windows.GetDiskFreeSpaceEx(p, &n, nil, nil) != nil {
		return -1
	}
	return int64(n)
}
