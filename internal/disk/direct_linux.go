package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenDirect opens a file below root, see [OpenIn], for reading and writing without the page cache, which large files
// would fill and which is slower than the disk where memory allocation is slow, as in virtual machines. Offsets,
// lengths and addresses must be multiples of [Alignment]; a file system that does not support that returns an error
// here or at the first write.
func OpenDirect(root *os.Root, name string) (*os.File, error) {
	return OpenIn(root, name, os.O_RDWR|unix.O_DIRECT, 0)
}
