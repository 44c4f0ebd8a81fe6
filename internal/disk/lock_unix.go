//go:build !windows

package disk

import (
	"os"

	"github.com/gofrs/flock"
)

// release removes the file while it is locked, so that a process that has just opened it notices.
func release(l *flock.Flock, path string) {
	_ = os.Remove(path)
	_ = l.Close()
}
