package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

func (c *cache) lockFile(blob string) string {
	return filepath.Join(c.root, ".locks", filepath.Base(c.dir), blob+".lock")
}

// hold takes the lock of a blob, which is the one that huggingface_hub takes, and gives the function that releases it.
// One process at a time then writes the blob, and the others find it.
func (c *cache) hold(ctx context.Context, blob string) (release func(), err error) {
	path := c.lockFile(blob)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	for {
		// The group may write, whatever the umask, so that users who share a cache can wait for each other.
		if f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664); err == nil {
			_ = f.Chmod(0o664)
			f.Close()
		}
		l := flock.New(path, flock.SetPermissions(0o664))
		if _, err := l.TryLockContext(ctx, 100*time.Millisecond); err != nil {
			return nil, fmt.Errorf("waiting for another process: %w", err)
		}
		release := func() { _ = l.Unlock() }
		// Who cleans up may have removed the file in the meantime: then the lock keeps nobody away.
		mine, err := l.Stat()
		now, nowErr := os.Stat(path)
		if err == nil && nowErr == nil && os.SameFile(mine, now) {
			return release, nil
		}
		release()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
