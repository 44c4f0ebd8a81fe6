//go:build !windows

package publish

import (
	"errors"
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// syncDir makes the names in a directory durable. Some file systems have no such thing and say so.
func syncDir(dir string) error {
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

// release removes the file while it is locked: whoever waits for it then sees that its name is gone.
func release(l *flock.Flock, path string) {
	_ = os.Remove(path)
	_ = l.Close()
}
