package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge requests large pages. Systems without them ignore it.
func adviseHuge(s []float32) {
	const page = 1 << 12
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
	if skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page; int(skip) < len(b) {
		b = b[skip:]
	}
	if b = b[:len(b)&^(page-1)]; len(b) > 0 {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
}
