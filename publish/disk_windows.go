package publish

import (
	"os"

	"github.com/gofrs/flock"
)

// syncDir does nothing: Windows has no handle on a directory that could be flushed.
func syncDir(string) error { return nil }

// release closes the file before it is removed, because an open one cannot be. When somebody waits for
// it, it is open still, and the removal fails as it should.
func release(l *flock.Flock, path string) {
	_ = l.Close()
	_ = os.Remove(path)
}
