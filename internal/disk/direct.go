package disk

import "unsafe"

// Alignment is what direct access asks of offsets, lengths and addresses, in bytes: the largest block of the disks in use.
const Alignment = 4096

// Aligned reports whether b may be at offset off of a file that is accessed directly.
func Aligned(b []byte, off int64) bool {
	return len(b) > 0 && len(b)%Alignment == 0 && off%Alignment == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Alignment == 0
}
