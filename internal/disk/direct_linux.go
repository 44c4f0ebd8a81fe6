package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenDirect opens a file below root, see [OpenIn], for reading and writing past the system's memory, which large files would fill
// and which costs more than the disk where memory is slow to come by, as in virtual machines. Offsets, lengths and addresses are
// multiples of [Alignment]; a file system that does not know this, or wants more, says so here or at the first write.
func OpenDirect(root *os.Root, name string) (*os.File, error) {
	return OpenIn(root, name, os.O_RDWR|unix.O_DIRECT, 0)
}
