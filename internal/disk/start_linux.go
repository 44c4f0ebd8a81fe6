package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// Begin starts writing n bytes of f from offset off to the disk, so that File.Sync has less to wait for. Where the file
// system does not support that, it does nothing.
func Begin(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// Reserve allocates the first n bytes of f on the disk without changing the size of the file, so that a full disk is
// detected early and parts of the file written concurrently are contiguous. It is not an error if the file system
// cannot reserve.
func Reserve(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
	if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
		return &os.PathError{Op: "reserve", Path: f.Name(), Err: err}
	}
	return nil
}
