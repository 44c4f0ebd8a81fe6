package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"
)

// lockPoll is how often [Lock] tries again.
const lockPoll = 50 * time.Millisecond

// Lock takes the lock file at path, which exists while it is held, and returns the function that releases it. While another
// process holds the lock, Lock waits and logs once what for. The system releases a lock when its process ends, however that happens.
func Lock(ctx context.Context, path, waiting string) (unlock func(), err error) {
	for told := false; ; told = true {
		if unlock, err := TryLock(path); unlock != nil || err != nil {
			return unlock, err
		}
		if !told {
			zerolog.Ctx(ctx).Info().Str("lock", path).Msg(waiting)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock: %w", context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// TryLock is [Lock] without waiting: unlock is nil if the lock is held already, by this process or another one.
func TryLock(path string) (unlock func(), err error) {
	for {
		if info, err := os.Lstat(path); err == nil && (!info.Mode().IsRegular() || info.Size() != 0) {
			return nil, fmt.Errorf("%s is not a lock file of this program", path)
		}
		// Some network file systems lock only files that are open for writing.
		l := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o666))
		if ok, err := l.TryLock(); err != nil || !ok {
			if err != nil {
				err = fmt.Errorf("lock: %w", err)
			}
			return nil, errors.Join(err, l.Close())
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

// holds reports whether path still names the locked file: the previous holder removes it.
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
