package hub

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// onShard lets a test answer the n-th request, counted from 1, that reaches storage for the first shard.
func onShard(h *fakeHub, answer func(w http.ResponseWriter, r *http.Request, n int32) bool) {
	var n atomic.Int32
	h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		return storage && filepath.Base(r.URL.Path) == shard1 && answer(w, r, n.Add(1))
	}
}

// TestDownloadTrouble is about transfers that end well after all.
func TestDownloadTrouble(t *testing.T) {
	const cut = 100_000
	for _, c := range []struct {
		name   string
		part   func(b []byte) []byte // what an earlier run left, nil for nothing
		answer func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool
		want   []string // ranges that storage is asked for
	}{
		{"cut three times", nil, func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool {
			if n > 3 {
				return false
			}
			start := int(n-1) * cut
			w.Header().Set("Content-Length", fmt.Sprint(len(b)-start))
			if start > 0 {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(b)-1, len(b)))
				w.WriteHeader(206)
			}
			_, _ = w.Write(b[start : start+cut])
			return true
		}, []string{"", "bytes=100000-319999", "bytes=200000-319999", "bytes=300000-319999"}},
		{"resumed", func(b []byte) []byte { return b[:cut] }, nil, []string{"bytes=100000-319999"}},
		{"resumed from our own", func(b []byte) []byte { return b[:cut] }, nil, []string{"bytes=100000-319999"}},
		{"whole already", func(b []byte) []byte { return b }, nil, nil},
		{"part is damaged", func(b []byte) []byte { return bytes.Repeat([]byte("x"), cut) }, nil, []string{"bytes=100000-319999", ""}},
		{"part is whole and damaged", func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }, nil, []string{""}},
		{"part is too long", func(b []byte) []byte { return append(bytes.Clone(b), 'x') }, nil, []string{""}},
		{"range ignored", func(b []byte) []byte { return b[:cut] }, func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool {
			_, _ = w.Write(b)
			return true
		}, []string{"bytes=100000-319999", ""}},
		{"wrong range", func(b []byte) []byte { return b[:cut] }, func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool {
			if n > 1 {
				return false
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(b)-1, len(b)))
			w.WriteHeader(206)
			_, _ = w.Write(b)
			return true
		}, []string{"bytes=100000-319999", "bytes=100000-319999"}},
		{"range refused", func(b []byte) []byte { return b[:cut] }, func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool {
			if n > 1 {
				return false
			}
			w.WriteHeader(416)
			return true
		}, []string{"bytes=100000-319999", "bytes=100000-319999"}},
		{"signature ran out", nil, func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool {
			if n > 1 {
				return false
			}
			w.WriteHeader(403)
			return true
		}, []string{"", ""}},
		{"busy", nil, func(w http.ResponseWriter, r *http.Request, b []byte, n int32) bool {
			status := []int{429, 503, 500, 502}
			if int(n) > len(status) {
				return false
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status[n-1])
			return true
		}, []string{"", "", "", "", ""}},
	} {
		suffix := ".incomplete" // of another program
		if strings.HasSuffix(c.name, "our own") {
			suffix = partName
		}
		t.Run(c.name, func(t *testing.T) {
			h := newFakeHub(t)
			b := h.files[shard1]
			if c.answer != nil {
				onShard(h, func(w http.ResponseWriter, r *http.Request, n int32) bool { return c.answer(w, r, b, n) })
			}
			o := h.options(t)
			blob := newCache(o, testRepo).blob(sha256Hex(b))
			if c.part != nil {
				if err := replaceFile(blob+suffix, c.part(b)); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Resolve(t.Context(), mainRef, o)
			if err != nil {
				t.Fatal(err)
			}
			checkSnapshot(t, h, s)
			got := h.seen("storage:/" + shard1)
			for i := range got {
				got[i] = strings.TrimSpace(strings.TrimPrefix(got[i], "storage:/"+shard1))
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || len(got) != len(c.want) {
				t.Errorf("ranges %q, want %q", got, c.want)
			}
			if left, err := filepath.Glob(blob + ".*"); err != nil || len(left) > 0 {
				t.Errorf("left %q, %v", left, err)
			}
		})
	}
}

// TestDownloadRefuses is about content that must never get its name.
func TestDownloadRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, b []byte)
		want   string
		tries  int
	}{
		{"flipped bit", func(w http.ResponseWriter, b []byte) { b[len(b)/2] ^= 1; _, _ = w.Write(b) }, "digest is", 2},
		{"short with its length", func(w http.ResponseWriter, b []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)-1))
			_, _ = w.Write(b[:len(b)-1])
		}, "are listed", 1},
		{"long with its length", func(w http.ResponseWriter, b []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)+1))
			_, _ = w.Write(append(b, 'x'))
		}, "are listed", 1},
		{"long without a length", func(w http.ResponseWriter, b []byte) { w.(http.Flusher).Flush(); _, _ = w.Write(append(b, 'x')) }, "more than the", 2},
		{"a page", func(w http.ResponseWriter, b []byte) { _, _ = w.Write([]byte("<html>")) }, "are listed", 1},
		{"nothing at all, for ever", func(w http.ResponseWriter, b []byte) { w.(http.Flusher).Flush() }, "5 tries failed", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFakeHub(t)
			onShard(h, func(w http.ResponseWriter, r *http.Request, n int32) bool {
				c.answer(w, bytes.Clone(h.files[shard1]))
				return true
			})
			o := h.options(t)
			s, err := Resolve(t.Context(), mainRef, o)
			if err == nil || s != nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), shard1) {
				t.Fatalf("got %v", err)
			}
			if c.tries < 5 && !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("%v is not ErrCorrupt", err)
			}
			for _, name := range tree(t, o.CacheDir) {
				if strings.Contains(name, shard1) || strings.Contains(name, sha256Hex(h.files[shard1])) || strings.Contains(name, "refs/") {
					t.Errorf("left %s", name)
				}
			}
			if n := len(h.seen("storage:/" + shard1)); n != c.tries {
				t.Errorf("%d tries, want %d", n, c.tries)
			}
		})
	}
	t.Run("small file", func(t *testing.T) {
		h := newFakeHub(t)
		h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
			if filepath.Base(r.URL.Path) == "config.json" {
				_, _ = w.Write(bytes.Replace(h.files["config.json"], []byte("T"), []byte("X"), 1))
				return true
			}
			return false
		}
		if _, err := Resolve(t.Context(), mainRef, h.options(t)); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "config.json: digest") {
			t.Error(err)
		}
	})
}

func TestDownloadStalls(t *testing.T) {
	h := newFakeHub(t)
	onShard(h, func(w http.ResponseWriter, r *http.Request, n int32) bool {
		if n > 2 {
			return false
		}
		if n == 2 { // after the header and some bytes; the first time before any
			w.Header().Set("Content-Length", fmt.Sprint(len(h.files[shard1])))
			_, _ = w.Write(h.files[shard1][:5000])
			w.(http.Flusher).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
			t.Error("the stalled request was not given up")
		}
		return true
	})
	o := h.options(t)
	o.Stall = 300 * time.Millisecond
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, h, s)
	if got := h.seen("bytes=5000-"); len(got) == 0 {
		t.Error("the bytes before the stall were fetched again")
	}
}

func TestRetryAfter(t *testing.T) {
	h := newFakeHub(t)
	h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
		return true
	}
	if _, err := Resolve(t.Context(), mainRef, h.options(t)); err == nil || !strings.Contains(err.Error(), "wait 1h") {
		t.Error(err)
	}
	if n := len(h.seen("")); n != 1 {
		t.Errorf("%d tries", n)
	}
}

// TestTwoProcesses lets two downloads meet in one cache; locks belong to open files, so two clients in
// one process stand for two processes.
func TestTwoProcesses(t *testing.T) {
	h := newFakeHub(t)
	o := h.options(t)
	errs := make(chan error)
	for range 2 {
		go func() {
			_, err := Resolve(t.Context(), mainRef, o)
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(h.seen("storage:/" + shard1)); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// TestWithoutLinks is Windows without the right to make symbolic links.
func TestWithoutLinks(t *testing.T) {
	defer func() { symlink = os.Symlink }()
	symlink = func(string, string) error { return errors.New("not allowed") }
	h := newFakeHub(t)
	o := h.options(t)
	for range 2 {
		s, err := Resolve(t.Context(), mainRef, o)
		if err != nil {
			t.Fatal(err)
		}
		checkSnapshot(t, h, s)
		if st, err := os.Lstat(filepath.Join(s.Dir, shard1)); err != nil || !st.Mode().IsRegular() {
			t.Error(err)
		}
	}
}
