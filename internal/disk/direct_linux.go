package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenDirect opens a file for reading and writing past the system's memory, which large files would fill and which
// costs more than the disk where memory is slow to come by, as in virtual machines. Offsets, lengths and addresses are
// multiples of [Alignment]; a file system that does not know this, or wants more, says so here or at the first write.
func OpenDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
}
