package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16)
	if _, err := f.Write(want[:5]); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(f, 5)
	for i := 5; i < len(want); i += 1 << 20 {
		n, err := w.Write(want[i:min(i+1<<20, len(want))])
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	for range 20 {
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, bytes.Repeat(want, 21)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestWriterFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if n, err := NewWriter(f, 0).Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestReserve demands that what is reserved is not content.
func TestReserve(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Reserve(f, 1<<20); err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("%d bytes, %v", st.Size(), err)
	}
	if Full(os.ErrClosed) || Full(nil) {
		t.Error("an error of another kind is a full disk")
	}
}

// TestDirect demands that what is written directly is what others read, and the other way round.
func TestDirect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 3*Alignment+7), 0o666); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := OpenDirect(dir, "file")
	if err != nil {
		t.Skip("no direct access here: ", err)
	}
	defer f.Close()
	b := make([]byte, 1<<20) // of its own pages
	if !Aligned(b, 0) || Aligned(b[:7], 0) || Aligned(b[8:], 0) || Aligned(b, 8) || Aligned(nil, 0) {
		t.Error("what is aligned?")
	}
	copy(b, bytes.Repeat([]byte("y"), Alignment))
	if _, err := f.WriteAt(b[:Alignment], Alignment); err != nil {
		t.Skip("no direct access here: ", err)
	}
	want := strings.Repeat("x", Alignment) + strings.Repeat("y", Alignment) + strings.Repeat("x", Alignment+7)
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("others read %d bytes, %v", len(got), err)
	}
	if _, err := f.ReadAt(b[:2*Alignment], 0); err != nil || string(b[:2*Alignment]) != want[:2*Alignment] {
		t.Error("another content is read, or ", err)
	}
}
