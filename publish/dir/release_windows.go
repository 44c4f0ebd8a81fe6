package dir

import (
	"os"

	"github.com/gofrs/flock"
)

// release closes the file before it is removed, because an open one cannot be. When somebody waits for
// it, it is open still, and the removal fails as it should.
func release(l *flock.Flock, path string) {
	_ = l.Close()
	_ = os.Remove(path)
}
