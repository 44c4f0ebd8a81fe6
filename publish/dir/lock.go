package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"
)

// lockPoll is how often a publisher that waits for another one tries again.
const lockPoll = 50 * time.Millisecond

// lock waits until no other publisher works on the target. The system gives the lock up when its process
// ends, however that happens.
func lock(ctx context.Context, target string) (unlock func(), err error) {
	path := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".llmexport-lock")
	for {
		if info, err := os.Lstat(path); err == nil && (!info.Mode().IsRegular() || info.Size() != 0) {
			return nil, fmt.Errorf("%s is no lock of this program", path)
		}
		l := flock.New(path)
		ok, err := l.TryLock()
		if err == nil && !ok {
			zerolog.Ctx(ctx).Info().Str("lock", path).Msg("waiting for another publisher")
			_, err = l.TryLockContext(ctx, lockPoll)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock: %w", err), l.Close())
		}
		current, err := holds(l, path)
		if current {
			return func() { release(l, path) }, nil
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
}

// holds reports whether the locked file is still the one of that name: the holder before us removes it.
func holds(l *flock.Flock, path string) (bool, error) {
	locked, err := l.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, named), err
}
