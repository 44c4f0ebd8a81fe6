package disk

import (
	"os"

	"github.com/gofrs/flock"
)

// release closes the file before removing it, as an open file cannot be removed. While another process waits for it, the file
// is still open, and the removal rightly fails.
func release(l *flock.Flock, path string) {
	_ = l.Close()
	_ = os.Remove(path)
}
