// Package blobtest holds implementations of [blob.Store] to their promises.
package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

// BlobOf describes bytes.
func BlobOf(b []byte) transfer.Blob {
	return transfer.Blob{Size: int64(len(b)), SHA256: digest.Of(b).Hex()}
}

// quick are retries that do not wait.
var quick = transfer.Options{Pause: time.Microsecond}

// read reads a blob as [transfer] does.
func read(t *testing.T, s blob.Store, b transfer.Blob) ([]byte, error) {
	t.Helper()
	return transfer.ReadBlob(t.Context(), "read", b, s.Range(b), quick)
}

// put stores bytes.
func put(t *testing.T, s blob.Store, b []byte) transfer.Blob {
	t.Helper()
	x := BlobOf(b)
	if err := s.Put(t.Context(), x, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return x
}

// Run tells the story of an empty store.
func Run(t *testing.T, s blob.Store) {
	t.Run("blobs", func(t *testing.T) { blobs(t, s) })
	t.Run("texts", func(t *testing.T) { texts(t, s) })
	t.Run("at the same time", func(t *testing.T) { together(t, s) })
	if w, ok := s.(blob.Sweeper); ok {
		t.Run("sweep", func(t *testing.T) { sweep(t, w) })
	}
}

func blobs(t *testing.T, s blob.Store) {
	small, large := []byte("content"), bytes.Repeat([]byte("0123456789abcdef"), 3<<16+1) // several parts of all services in tests
	for _, b := range [][]byte{small, large, {}} {
		x := BlobOf(b)
		if there, err := s.Has(t.Context(), x); there || err != nil {
			t.Errorf("before: %v, %v", there, err)
		}
		if got, err := read(t, s, x); err == nil && len(b) > 0 {
			t.Errorf("read %d bytes that nobody has stored", len(got))
		}
		for range 2 { // the second one replaces the first
			put(t, s, b)
			if got, err := read(t, s, x); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%d bytes of %d, %v", len(got), len(b), err)
			}
		}
		if there, err := s.Has(t.Context(), x); !there || err != nil {
			t.Errorf("after: %v, %v", there, err)
		}
		other := x
		other.Size++
		if there, err := s.Has(t.Context(), other); there || err != nil {
			t.Errorf("of another size: %v, %v", there, err)
		}
	}
	t.Run("part", func(t *testing.T) {
		x := BlobOf(large)
		r, err := s.Range(x)(t.Context(), 1000, 50)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, large[1000:1050]) {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("other content", func(t *testing.T) {
		for _, claimed := range [][]byte{[]byte("contemt"), bytes.Repeat([]byte("x"), len(large))} {
			x := BlobOf(claimed)
			other := bytes.Clone(claimed)
			other[len(other)/2] ^= 1
			if err := s.Put(t.Context(), x, bytes.NewReader(other)); !errors.Is(err, fault.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			if there, err := s.Has(t.Context(), x); there || err != nil {
				t.Errorf("it was stored: %v, %v", there, err)
			}
		}
	})
	t.Run("bad digest", func(t *testing.T) {
		for _, sum := range []string{"", "../../secret", "ABCDEF"} {
			x := transfer.Blob{Size: 1, SHA256: sum}
			_, herr := s.Has(t.Context(), x)
			_, rerr := s.Range(x)(t.Context(), 0, 1)
			if perr := s.Put(t.Context(), x, bytes.NewReader([]byte("x"))); herr == nil || rerr == nil || perr == nil {
				t.Errorf("%q: %v, %v, %v", sum, herr, rerr, perr)
			}
		}
	})
}

func names(t *testing.T, s blob.Store) (names []string) {
	t.Helper()
	list, err := s.Texts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	return names
}

func texts(t *testing.T, s blob.Store) {
	if _, err := s.Text(t.Context(), "codes-1", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if err := s.RemoveText(t.Context(), "codes-1"); err != nil {
		t.Errorf("removing what is absent: %v", err)
	}
	about := []transfer.Blob{put(t, s, []byte("one")), put(t, s, []byte("two")), put(t, s, []byte("one"))}
	for _, text := range []string{"first", "second", ""} {
		if err := s.SetText(t.Context(), "codes-1", []byte(text), about); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Text(t.Context(), "codes-1", 100); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := s.SetText(t.Context(), "codes-1.partial", []byte("partial"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Text(t.Context(), "codes-1.partial", 6); !errors.Is(err, fault.ErrCorrupt) {
		t.Errorf("a longer text: %v", err)
	}
	if got := names(t, s); !slices.Equal(got, []string{"codes-1", "codes-1.partial"}) {
		t.Errorf("names %q", got)
	}
	if err := s.RemoveText(t.Context(), "codes-1.partial"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s); !slices.Equal(got, []string{"codes-1"}) {
		t.Errorf("names %q", got)
	}
	if _, err := s.Text(t.Context(), "codes-1.partial", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	for _, name := range []string{"", "a/b", "../a", "A"} {
		_, rerr := s.Text(t.Context(), name, 100)
		serr := s.SetText(t.Context(), name, nil, nil)
		if derr := s.RemoveText(t.Context(), name); rerr == nil || serr == nil || derr == nil {
			t.Errorf("%q: %v, %v, %v", name, rerr, serr, derr)
		}
	}
}

// together writes the same names from many sides: one of them wins, whole.
func together(t *testing.T, s blob.Store) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			b := []byte("the same for all")
			if err := s.Put(t.Context(), BlobOf(b), bytes.NewReader(b)); err != nil {
				t.Error(err)
			}
			if err := s.SetText(t.Context(), "shared-1", fmt.Appendf(nil, "text %d", i), []transfer.Blob{BlobOf(b)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := s.Text(t.Context(), "shared-1", 100); err != nil || len(got) != len("text 0") {
		t.Errorf("%q, %v", got, err)
	}
}

func sweep(t *testing.T, s blob.Sweeper) {
	x := put(t, s, []byte("garbage"))
	list, err := s.Blobs(t.Context())
	i := slices.IndexFunc(list, func(b blob.Info) bool { return b.Name == x.SHA256 })
	if err != nil || i < 0 || list[i].Size != x.Size || time.Since(list[i].Time).Abs() > time.Hour {
		t.Fatalf("%d of %+v, %v", i, list, err)
	}
	for range 2 { // the second one removes nothing
		if err := s.RemoveBlob(t.Context(), x.SHA256); err != nil {
			t.Error(err)
		}
	}
	if there, err := s.Has(t.Context(), x); there || err != nil {
		t.Errorf("removed: %v, %v", there, err)
	}
	if err := s.RemoveBlob(t.Context(), "../texts/codes-1"); err == nil {
		t.Error("a digest leads out of the blobs")
	}
	if err := s.Tidy(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
}
