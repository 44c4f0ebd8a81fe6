//go:build linux

package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// as has the whole process be another user until the function it gives is called.
func as(t *testing.T, uid, umask int) (back func()) {
	t.Helper()
	old := syscall.Umask(umask)
	if err := syscall.Seteuid(uid); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		syscall.Umask(old)
		if err := syscall.Seteuid(0); err != nil {
			t.Fatal(err)
		}
	}
}

// openDir is a directory in which users who are not root may write.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
}

// TestReadOnlyCache uses a complete snapshot that may not be written to, and says which file it cannot write where it must.
func TestReadOnlyCache(t *testing.T) {
	needRoot(t)
	h, _, commit, o := realHub(t, tinyFiles())
	o.CacheDir = openDir(t)
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	c := newCache(o, testRepo)
	for _, others := range []bool{false, true} {
		if others {
			foreign(t, c, commit)
			putTree(t, c, commit, tinyFiles())
		}
		for _, ref := range []Ref{mainRef, {Repo: testRepo, Revision: commit}} {
			for _, o.Offline = range []bool{false, true} {
				back := as(t, 65534, 0o022)
				s, err := Resolve(t.Context(), ref, o)
				back()
				if err != nil {
					t.Fatal(err)
				}
				checkSnapshot(t, s, commit)
			}
		}
	}
	o.Offline = false
	h.Repo(testRepo).Commit("main", map[string][]byte{"config.json": []byte("{}")})
	back := as(t, 65534, 0o022)
	_, err := Resolve(t.Context(), mainRef, o)
	back()
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), o.CacheDir) {
		t.Error(err)
	}
}

// TestSharedCache has two users of one group fetch into one cache, each going on with what the other has begun.
func TestSharedCache(t *testing.T) {
	needRoot(t)
	files := tinyFiles()
	h, _, _, o := realHub(t, files)
	o.CacheDir = openDir(t)
	c := newCache(o, testRepo)
	resolve := func(uid int) error {
		back := as(t, uid, 0o002)
		defer back()
		s, err := Resolve(t.Context(), mainRef, o)
		if err == nil {
			_, err = HashFiles(t.Context(), s, "")
		}
		return err
	}
	if err := resolve(1001); err != nil {
		t.Fatal(err)
	}
	next := shard("next", 400_000, 0)
	h.Repo(testRepo).Commit("main", map[string][]byte{shard1: next, "config.json": []byte(`{"a":1}`)})
	back := as(t, 1001, 0o002)
	err := os.WriteFile(c.blob(sha256Hex(next))+partName, next[:200_000], 0o666)
	back()
	if err != nil {
		t.Fatal(err)
	}
	h.ResetStats()
	if err := resolve(1002); err != nil {
		t.Fatal(err)
	}
	if n := h.Sent(testRepo + "/" + shard1); n != 200_000+int64(len(next))-400_000 {
		t.Errorf("%d bytes were fetched", n)
	}
	if err := resolve(1001); err != nil {
		t.Error(err)
	}
}
