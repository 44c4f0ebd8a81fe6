package disk

import (
	"bytes"
	"os"
	"path/filepath"
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
