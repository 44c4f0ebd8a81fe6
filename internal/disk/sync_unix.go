//go:build !windows

package disk

import (
	"errors"
	"os"
	"syscall"
)

// SyncDir makes the names in a directory durable. File systems that do not support that are ignored.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
