package disk

import "unsafe"

// Alignment is the alignment that direct access requires of offsets, lengths and addresses, in bytes: the largest block
// of the disks in use.
const Alignment = 4096

// Aligned reports whether b may be accessed directly at offset off of a file.
func Aligned(b []byte, off int64) bool {
	return len(b) > 0 && len(b)%Alignment == 0 && off%Alignment == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Alignment == 0
}
