package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/publish/manifest"
)

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// builder counts how often it built, and what it was told.
type builder struct {
	times   int
	resumed bool
	err     error
}

func (b *builder) build(dir string, resumed bool) (manifest.Digest, error) {
	b.times++
	b.resumed = resumed
	if err := os.WriteFile(filepath.Join(dir, "content"), []byte("x"), 0o666); err != nil {
		return "", err
	}
	return manifest.DigestOf([]byte("x")), b.err
}

func TestStoreDo(t *testing.T) {
	s := openStore(t, t.TempDir())
	var b builder
	a, err := s.Do(t.Context(), "stage", "key", b.build)
	if err != nil {
		t.Fatal(err)
	}
	if b.times != 1 || b.resumed || !a.Made || a.Digest != manifest.DigestOf([]byte("x")) || filepath.Base(a.Path) != "stage-key" {
		t.Errorf("first: %+v, %+v", b, a)
	}
	again, err := s.Do(t.Context(), "stage", "key", b.build)
	a.Made = false // not again
	if err != nil || b.times != 1 || again != a {
		t.Errorf("second: built %d times, %+v, %v", b.times, again, err)
	}
	if _, err := s.Do(t.Context(), "stage", "other", b.build); err != nil || b.times != 2 {
		t.Errorf("another key: built %d times, %v", b.times, err)
	}
}

func TestStoreDoFailed(t *testing.T) {
	s := openStore(t, t.TempDir())
	b := builder{err: errors.New("no")}
	if _, err := s.Do(t.Context(), "stage", "key", b.build); !errors.Is(err, b.err) {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "stage-key")); !os.IsNotExist(err) {
		t.Errorf("a failed build has its name: %v", err)
	}
	b.err = nil
	if _, err := s.Do(t.Context(), "stage", "key", b.build); err != nil || !b.resumed {
		t.Errorf("after a failure: resumed %v, %v", b.resumed, err)
	}
}

// A finished name without a valid record is built again.
func TestStoreDoDamagedRecord(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, record := range []string{"", "{", `{"digest":"sha256:00"}`} {
		var b builder
		if _, err := s.Do(t.Context(), "stage", "key", b.build); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, "stage-key", doneFile), []byte(record), 0o666); err != nil {
			t.Fatal(err)
		}
		b.times = 0
		if _, err := s.Do(t.Context(), "stage", "key", b.build); err != nil || b.times != 1 {
			t.Errorf("record %q: built %d times, %v", record, b.times, err)
		}
	}
}

func TestStoreLock(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := OpenStore(ctx, dir); err == nil {
		t.Fatal("two runs opened one store")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
}

func TestListAndCollect(t *testing.T) {
	s := openStore(t, t.TempDir())
	for i, name := range []string{"a-1", "b-2", "c-3.partial"} {
		dir := filepath.Join(s.Dir, name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "x")
		if err := os.WriteFile(file, make([]byte, 100), 0o666); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(-time.Duration(i+1) * time.Hour)
		if err := os.Chtimes(file, used, used); err != nil {
			t.Fatal(err)
		}
	}
	list, err := List(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		if e.Size != 100 || e.Partial != strings.HasSuffix(e.Name, ".partial") {
			t.Errorf("%+v", e)
		}
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "a-1 b-2 c-3.partial" {
		t.Errorf("order %s", got)
	}
	gone, err := s.Collect(150)
	if err != nil || len(gone) != 2 || gone[0].Name != "b-2" {
		t.Errorf("collected %+v, %v", gone, err)
	}
	if list, _ := List(s.Dir); len(list) != 1 || list[0].Name != "a-1" {
		t.Errorf("left %+v", list)
	}
	if list, err := List(filepath.Join(s.Dir, "absent")); err != nil || list != nil {
		t.Errorf("absent store: %v, %v", list, err)
	}
}

func TestKey(t *testing.T) {
	a, err := Key("stage", 1, "x")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Key("stage", 1, "x")
	if a != b || len(a) != 24 {
		t.Errorf("keys %s, %s", a, b)
	}
	for _, parts := range [][]any{{1, "y"}, {2, "x"}, {1}, {"1", "x"}} {
		if k, _ := Key("stage", parts...); k == a {
			t.Errorf("%v has the key of another input", parts)
		}
	}
	if k, _ := Key("other", 1, "x"); k == a {
		t.Error("two stages share a key")
	}
}
