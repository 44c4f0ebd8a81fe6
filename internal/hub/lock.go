package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/llmexport/llmexport/internal/disk"
)

func (c *cache) lockFile(blob string) string {
	return filepath.Join(c.root, ".locks", filepath.Base(c.dir), blob+".lock")
}

// hold takes the lock of a blob, the same one that huggingface_hub takes, and returns the function that releases it. So one
// process at a time writes the blob, and the others find it complete.
func (c *cache) hold(ctx context.Context, blob string) (release func(), err error) {
	path := c.lockFile(blob)
	if err := c.makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	for {
		// The group may write regardless of the umask, so that users who share a cache can wait for each other.
		f, err := c.opened.OpenFile(c.rel(path), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o664)
		switch {
		case err == nil:
			_ = f.Chmod(0o664)
			f.Close()
		case !errors.Is(err, fs.ErrExist):
			return nil, disk.Name(c.opened, err)
		}
		if err := checkKind(path, fs.FileMode.IsRegular, "file"); err != nil {
			return nil, err
		}
		l := flock.New(path, flock.SetPermissions(0o664), flock.SetFlag(os.O_RDONLY|disk.Nonblock))
		_, err = l.TryLockContext(ctx, 100*time.Millisecond)
		if errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			continue // a cleanup has just removed it
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for another process: %w", err)
		}
		release := func() { _ = l.Unlock() }
		// A cleanup may have removed the file in the meantime: then the lock protects nothing.
		mine, err := l.Stat()
		now, nowErr := os.Lstat(path)
		if err == nil && nowErr == nil && os.SameFile(mine, now) {
			return release, nil
		}
		release()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
