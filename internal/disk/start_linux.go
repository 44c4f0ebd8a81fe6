package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriting tells the disk to begin with n bytes. A file system that cannot does it when the file is synced.
func startWriting(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
