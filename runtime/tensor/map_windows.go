package tensor

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// MapFile maps the first size bytes of f for reading; unmap ends that.
func MapFile(f *os.File, size int) (b []byte, unmap func(), err error) {
	m, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	addr, err := windows.MapViewOfFile(m, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	// The view keeps the mapping alive.
	_ = windows.CloseHandle(m)
	if err != nil {
		return nil, nil, err
	}
	// The address is outside Go's heap; the double cast tells vet that no object moves under it.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), size), func() { _ = windows.UnmapViewOfFile(addr) }, nil
}
