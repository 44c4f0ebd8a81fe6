package hub

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/fault"
)

func TestHashFiles(t *testing.T) {
	dir, cacheFile := t.TempDir(), filepath.Join(t.TempDir(), "sub", "digests.json")
	path := filepath.Join(dir, "model.safetensors")
	old := time.Now().Add(-time.Hour)
	put := func(text string, mtime time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, mtime, mtime)); err != nil {
			t.Fatal(err)
		}
	}
	s := &Snapshot{Dir: dir, Files: []File{{Name: "model.safetensors", Size: 3}}}
	expect := func(text string) {
		t.Helper()
		got, err := HashFiles(t.Context(), s, cacheFile)
		want := []File{{Name: s.Files[0].Name, Size: 3, SHA256: sha256Hex([]byte(text))}}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(d, err)
		}
	}
	put("abc", old)
	expect("abc")
	if s.Files[0].SHA256 != "" {
		t.Error("the snapshot was changed")
	}
	// Same size and time: the digest is remembered, so the new content is not seen.
	put("xyz", old)
	expect("abc")
	// Another time of change.
	put("xyz", old.Add(time.Nanosecond*100))
	expect("xyz")
	// Changed just now: true, and not remembered.
	put("new", time.Now())
	expect("new")
	b, err := os.ReadFile(cacheFile)
	if err != nil || strings.Contains(string(b), sha256Hex([]byte("new"))) || !strings.Contains(string(b), sha256Hex([]byte("xyz"))) {
		t.Errorf("%s, %v", b, err)
	}
	// A damaged memo counts as empty, also one that names another digest.
	put("xyz", old)
	for _, text := range []string{"{", `[]`, `{"version":9,"files":{}}`, strings.ReplaceAll(string(b), sha256Hex([]byte("xyz")), "zz"),
		strings.ReplaceAll(string(b), sha256Hex([]byte("xyz")), sha256Hex([]byte("abc")))} {
		if err := os.WriteFile(cacheFile, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		expect("xyz")
	}
	// Entries of files that have gone are forgotten.
	second := filepath.Join(dir, "other.safetensors")
	if err := errors.Join(os.WriteFile(second, []byte("abc"), 0o666), os.Chtimes(second, old, old), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	s.Files[0].Name = "other.safetensors"
	expect("abc")
	if b, _ = os.ReadFile(cacheFile); strings.Contains(string(b), "model.safetensors") || !strings.Contains(string(b), "other.safetensors") {
		t.Errorf("%s", b)
	}
	cacheFile = ""
	expect("abc")
	// Small files are read every time.
	cacheFile = filepath.Join(t.TempDir(), "digests.json")
	path, s.Files[0].Name = filepath.Join(dir, "config.json"), "config.json"
	put("abc", old)
	expect("abc")
	put("xyz", old)
	expect("xyz")
}

// Reread finds what a disk has lost of weights without a trace in size or time.
func TestReread(t *testing.T) {
	dir, cacheFile := t.TempDir(), filepath.Join(t.TempDir(), "digests.json")
	path := filepath.Join(dir, "model.safetensors")
	old := time.Now().Add(-time.Hour)
	put := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	hashed := func() *Snapshot {
		t.Helper()
		s := &Snapshot{Dir: dir, Files: []File{{Name: "model.safetensors", Size: 3}}}
		if _, err := HashFiles(t.Context(), s, cacheFile); err != nil {
			t.Fatal(err)
		}
		return s
	}
	put("abc")
	first := hashed()
	put("abd")
	if err := first.Reread(t.Context()); err != nil {
		t.Errorf("what was just read is read again: %v", err)
	}
	later := hashed()
	if err := later.Reread(t.Context()); !errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), "model.safetensors") ||
		!strings.Contains(err.Error(), "touch it") {
		t.Errorf("a flipped bit: %v", err)
	}
	put("abc")
	if err := later.Reread(t.Context()); err != nil {
		t.Error(err)
	}
	put("abd")
	if err := later.Reread(t.Context()); err != nil {
		t.Errorf("read twice: %v", err)
	}
}

func TestHashFilesRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]File{
		"digest": {Name: "config.json", Size: 3, SHA256: sha256Hex([]byte("abd"))},
		"size":   {Name: "config.json", Size: 4},
	} {
		_, err := HashFiles(t.Context(), &Snapshot{Dir: dir, Files: []File{f}}, "")
		if !errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := HashFiles(t.Context(), &Snapshot{Dir: dir, Files: []File{{Name: "none"}}}, ""); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := HashFiles(ctx, &Snapshot{Dir: dir, Files: []File{{Name: "config.json", Size: 3}}}, ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHashFilesOfSnapshot fills in the digests of small files, which the hub does not give.
func TestHashFilesOfSnapshot(t *testing.T) {
	want := tinyFiles()
	_, _, _, o := realHub(t, want)
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	files, err := HashFiles(t.Context(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.SHA256 != sha256Hex(want[f.Name]) {
			t.Errorf("%+v", f)
		}
	}
}

// TestHashFilesOfFetched holds that what was hashed as it came is not read again, in this run or in the next, and that it is
// once it was touched.
func TestHashFilesOfFetched(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	memo := filepath.Join(t.TempDir(), "digests.json")
	blob := newCache(o, testRepo).blob(sha256Hex(files[shard1]))
	// change gives the blob other bytes of the same number. Only who reads it finds out, if its time stays as it was.
	change := func(touch bool) {
		t.Helper()
		st, err := os.Stat(blob)
		if err == nil {
			err = os.WriteFile(blob, bytes.Repeat([]byte("x"), len(files[shard1])), 0o666)
		}
		if err == nil && !touch {
			err = os.Chtimes(blob, time.Time{}, st.ModTime())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, noLinks := range []bool{false, true} {
		o.NoLinks = noLinks
		resolve := func() *Snapshot {
			t.Helper()
			s, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: commit}, o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := resolve()
		change(false)
		if _, err := HashFiles(t.Context(), s, memo); err != nil {
			t.Errorf("read again after it was fetched: %v", err)
		}
		s = resolve()
		if len(s.fetched) > 0 {
			t.Errorf("fetched again: %v", s.fetched)
		}
		if _, err := HashFiles(t.Context(), s, memo); err != nil {
			t.Errorf("read again in the next run: %v", err)
		}
		change(true)
		if _, err := HashFiles(t.Context(), s, memo); !errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), "removed from the cache") {
			t.Errorf("a change is not seen: %v", err)
		}
		h.ResetStats()
		s = resolve()
		if n := h.Sent(testRepo + "/" + shard1); n != int64(len(files[shard1])) {
			t.Errorf("%d bytes fetched in place of what was wrong", n)
		}
		checkFiles(t, s, files, tinyWanted)
		change(true)
		if _, err := HashFiles(t.Context(), s, memo); !errors.Is(err, fault.ErrCorrupt) {
			t.Errorf("a change just after it was fetched is not seen: %v", err)
		}
		if err := os.RemoveAll(newCache(o, testRepo).dir); err != nil {
			t.Fatal(err)
		}
	}
}
