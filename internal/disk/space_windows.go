package disk

import "golang.org/x/sys/windows"

// free is the number of bytes that may still be written to dir's file system, or -1 if it is not known.
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
