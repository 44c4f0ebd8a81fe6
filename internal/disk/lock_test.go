package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := Lock(t.Context(), path, "waiting")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := TryLock(path); again != nil || err != nil {
		t.Errorf("a held lock was taken, or: %v", err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithCancelCause(zerolog.New(&log).WithContext(t.Context()))
	enough := errors.New("enough")
	cancel(enough)
	if _, err := Lock(ctx, path, "waiting for it"); !errors.Is(err, enough) || strings.Count(log.String(), "waiting for it") != 1 {
		t.Errorf("cancelled: %v, log %s", err, &log)
	}
	unlock()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil { // left by a process that was killed
		t.Fatal(err)
	}
	if unlock, err = TryLock(path); unlock == nil || err != nil {
		t.Fatalf("a stale file: %v", err)
	}
	unlock()
	if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); err == nil {
		t.Error("another program's file was taken for a lock")
	}
}

// One holder at a time, though every one removes the file.
func TestLockExcludes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.lock")
	var g sync.WaitGroup
	inside := make(chan struct{}, 1)
	for range 4 {
		g.Go(func() {
			for range 3 {
				unlock, err := Lock(t.Context(), path, "waiting")
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case inside <- struct{}{}:
					runtime.Gosched()
					<-inside
				default:
					t.Error("two hold the lock")
				}
				unlock()
			}
		})
	}
	g.Wait()
}
