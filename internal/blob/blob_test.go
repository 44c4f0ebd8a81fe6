package blob_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/blob/blobtest"
	"github.com/llmexport/llmexport/internal/fault"
)

func open(t *testing.T, dir string) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "tenant")
	blobtest.Run(t, open(t, dir))
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A link in place of a file or a directory of the store is not followed.
func TestDirLinks(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "texts", "name")); err != nil {
		t.Skip(err)
	}
	if b, err := d.Text(t.Context(), "name", 100); err == nil {
		t.Errorf("read %q through a link", b)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "blobs")), os.Symlink(outside, filepath.Join(dir, "blobs"))); err != nil {
		t.Fatal(err)
	}
	text := []byte("content")
	if err := d.Put(t.Context(), blobtest.BlobOf(text), strings.NewReader(string(text))); err == nil {
		t.Error("written through a link")
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 1 {
		t.Errorf("outside: %v, %v", list, err)
	}
}

// What a killed writer has left goes once it is old.
func TestDirTidy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	for _, name := range []string{"old", "young"} {
		if err := os.WriteFile(filepath.Join(dir, "tmp", name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "tmp", "old"), before, before.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := d.Tidy(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "codes-0123abcd", "codes-0123abcd.partial", "push-x", strings.Repeat("a", 120)} {
		if err := blob.CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", `a\b`, "../a", "a..b", "A", "a_b", "a ", "-a", "a.", "é", "a\x00",
		strings.Repeat("a", 121)} {
		if err := blob.CheckName(name); !errors.Is(err, fault.ErrCorrupt) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
