//go:build unix

package tensor

import (
	"os"

	"golang.org/x/sys/unix"
)

// MapFile maps the first size bytes of f for reading; unmap ends that.
func MapFile(f *os.File, size int) (b []byte, unmap func(), err error) {
	b, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return b, func() { _ = unix.Munmap(b) }, nil
}
