package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// Begin tells the disk to begin with the n bytes of f from offset off on, so that File.Sync has less to wait for. A file
// system that cannot does it when the file is synced.
func Begin(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// Reserve takes space for the first n bytes of f from the disk, whose size stays as it is: a disk that is too small says so
// now, and the parts of a file that is written at several places at once lie together. A file system that cannot reserve is no
// error.
func Reserve(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
	if err == unix.ENOSPC || err == unix.EDQUOT || err == unix.EFBIG {
		return &os.PathError{Op: "reserve", Path: f.Name(), Err: err}
	}
	return nil
}
