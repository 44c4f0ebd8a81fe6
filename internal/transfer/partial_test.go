package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDiskFull(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	p := &partial{dir: dir, name: "file", blob: Blob{Size: 100}, pieces: []piece{{have: 30}}}
	full := fmt.Errorf("write: %w", syscall.ENOSPC)
	if err := p.explain(full); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "file needs 70 more bytes") {
		t.Error(err)
	}
	if err := p.explain(os.ErrPermission); err != os.ErrPermission {
		t.Error(err)
	}
}

// TestCancel ends a download in the middle; the next one goes on there.
func TestCancel(t *testing.T) {
	s := newServer(t, faultSize)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	o := quick
	o.Progress = func(done int64) {
		if done > faultSize*2/3 {
			cancel(why)
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := Fetch(ctx, path, s.blob(), s.open(), o); !errors.Is(err, why) {
		t.Fatalf("got %v", err)
	}
	s.served.Store(0)
	s.setAnswer(func(http.ResponseWriter, *http.Request, int32) bool { return false })
	must(t, Fetch(t.Context(), path, s.blob(), s.open(), quick))
	checkFile(t, path, s.content)
	if n := s.served.Load(); n > faultSize/3+4*pieceSize {
		t.Errorf("%d bytes are fetched the second time", n)
	}
}

// TestPlaces is about paths that cannot be written.
func TestPlaces(t *testing.T) {
	s := newServer(t, faultSize)
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "dir"), 0o777))
	for _, path := range []string{filepath.Join(dir, "dir"), filepath.Join(dir, "none", "file")} {
		if err := Fetch(t.Context(), path, s.blob(), s.open(), quick); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	if names, err := filepath.Glob(dir + "/*"); err != nil || len(names) != 1 {
		t.Errorf("there are %q, %v", names, err)
	}
}
