package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// server is a service with a storage server behind it, which both count.
type server struct {
	content []byte
	hub     *httptest.Server
	storage *httptest.Server

	resolved atomic.Int32 // requests to the hub
	asked    atomic.Int32 // requests to storage
	served   atomic.Int64 // bytes of bodies that storage wrote

	mu     sync.Mutex
	ranges []string

	// answer may handle the n-th request to storage, counted from 1; true if it has. Tests change it by setAnswer once there are
	// requests: one of a transfer that has ended may still be at work.
	answer func(w http.ResponseWriter, r *http.Request, n int32) bool
	etag   string
}

func (s *server) setAnswer(f func(w http.ResponseWriter, r *http.Request, n int32) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// newServer serves noise; setup may change the configuration of storage.
func newServer(t testing.TB, size int, setup ...func(storage *http.Server)) *server {
	s := &server{content: noise(size), etag: `"v1"`}
	s.storage = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token goes to storage")
		}
		n := s.asked.Add(1)
		s.mu.Lock()
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		answer := s.answer
		s.mu.Unlock()
		w = &counted{w, &s.served}
		if answer == nil || !answer(w, r, n) {
			s.serve(w, r)
		}
	}))
	for _, f := range setup {
		f(s.storage.Config)
	}
	s.storage.Start()
	s.hub = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.resolved.Add(1)
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Error("no token at the hub")
		}
		http.Redirect(w, r, s.storage.URL+"/f?signature="+strings.Repeat("s", int(n)), http.StatusFound)
	}))
	t.Cleanup(s.storage.Close)
	t.Cleanup(s.hub.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", s.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.content))
}

func (s *server) blob() Blob { return blobOf(s.content) }

func (s *server) open() Range {
	home, _ := url.Parse(s.hub.URL)
	c := &Client{Home: home, UserAgent: "test", Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") },
		Judge: func(resp *http.Response) error {
			if err := StatusOf(resp); resp.StatusCode != 403 {
				return err
			}
			return &Retryable{Err: StatusOf(resp)}
		}}
	return c.Range(home.JoinPath("file"), int64(len(s.content)))
}

// counted counts the bytes of bodies.
type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c *counted) Flush()                      { c.ResponseWriter.(http.Flusher).Flush() }

// noise is the same for the same size.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{byte(n)}), b)
	return b
}

func blobOf(b []byte) Blob {
	sum := sha256.Sum256(b)
	return Blob{Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}
}

// quick is for tests.
var quick = Options{Pause: time.Millisecond, Stall: 5 * time.Second}

// checkFile requires the content, and no other file in the directory.
func checkFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
	}
	if names, err := filepath.Glob(filepath.Dir(path) + "/*"); err != nil || len(names) != 1 {
		t.Errorf("there are %q, %v", names, err)
	}
}
