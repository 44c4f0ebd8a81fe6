//go:build !windows

package dir

import (
	"os"

	"github.com/gofrs/flock"
)

// release removes the file while it is locked: whoever waits for it then sees that its name is gone.
func release(l *flock.Flock, path string) {
	_ = os.Remove(path)
	_ = l.Close()
}
