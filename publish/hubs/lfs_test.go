package hubs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// storageServer takes parts at /UPLOAD/NUMBER and the completion at /UPLOAD/done.
type storageServer struct {
	mu        sync.Mutex
	got       []string // paths in order
	parts     map[string]string
	answer    func(path string, n int) (status int, etag string) // n counts the requests for the path
	completed string
}

func (s *storageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r.URL.Path)
	n := 0
	for _, p := range s.got {
		if p == r.URL.Path {
			n++
		}
	}
	status, etag := http.StatusOK, fmt.Sprintf(`"%s-%d"`, r.URL.Path, n)
	if s.answer != nil {
		status, etag = s.answer(r.URL.Path, n)
	}
	if status == http.StatusOK && strings.HasSuffix(r.URL.Path, "done") {
		var a struct {
			Parts []struct {
				PartNumber int
				ETag       string
			}
		}
		if json.Unmarshal(b, &a) != nil {
			status = http.StatusBadRequest
		}
		s.completed = ""
		for i, p := range a.Parts {
			if p.PartNumber != i+1 {
				status = http.StatusBadRequest
			}
			s.completed += s.parts[p.ETag]
		}
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
		s.parts[etag] = string(b)
	}
	w.WriteHeader(status)
}

func TestLFSParts(t *testing.T) {
	const content = "aaaabbbbccccdddde"
	ok := func(path string, n int) (int, string) { return 200, fmt.Sprintf(`"%s-%d"`, path, n) }
	tests := map[string]struct {
		answer func(path string, n int) (int, string)
		same   bool // new addresses are of the same upload
		want   int  // requests for parts
		err    error
	}{
		"plain": {ok, false, 5, nil},
		"ran out, same upload": {func(path string, n int) (int, string) {
			if strings.HasSuffix(path, "/5") && n == 1 {
				return 403, ""
			}
			return ok(path, n)
		}, true, 9, nil}, // and the concurrent uploads
		"ran out, another upload": {func(path string, n int) (int, string) {
			if path == "/u1/5" {
				return 403, ""
			}
			return ok(path, n)
		}, false, 10, nil},
		"wrong etags": {func(path string, n int) (int, string) {
			if path == "/u1/done" {
				return 400, ""
			}
			return ok(path, n)
		}, false, 10, nil},
		"no etag":       {func(path string, n int) (int, string) { return 200, "" }, false, -1, tensor.ErrUnsupported},
		"always refuse": {func(path string, n int) (int, string) { return 403, "" }, false, -1, errRefused},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := &storageServer{parts: map[string]string{}, answer: tc.answer}
			srv := httptest.NewServer(s)
			defer srv.Close()
			home, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			batches := 0
			l := &lfs{http: &transfer.Client{Home: home}, o: transfer.Options{Pause: time.Millisecond},
				batch: func(ctx context.Context, objects []place.Cargo) (map[string]*lfsUpload, error) {
					batches++
					id := "u" + strconv.Itoa(batches)
					if tc.same {
						id = "u1"
					}
					u := &lfsUpload{chunk: 4, to: home.JoinPath(id, "done")}
					u.to.RawQuery = "uploadId=" + id
					for i := range 5 {
						u.parts = append(u.parts, home.JoinPath(id, strconv.Itoa(i+1)))
					}
					return map[string]*lfsUpload{objects[0].SHA256: u}, nil
				}}
			err = l.send(t.Context(), []place.Cargo{place.Loaded("weights", []byte(content))})
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			if tc.err != nil {
				return
			}
			parts := slices.DeleteFunc(s.got, func(p string) bool { return strings.HasSuffix(p, "done") })
			if s.completed != content || len(parts) > tc.want {
				t.Errorf("%d parts, want %d; completed %q", len(parts), tc.want, s.completed)
			}
			if l.sent.Load() != int64(len(content)) {
				t.Errorf("%d bytes", l.sent.Load())
			}
		})
	}
	// Content that is not what is listed is never completed.
	c := place.Loaded("weights", []byte("x"+content[1:]))
	c.File = place.Loaded("weights", []byte(content)).File
	s := &storageServer{parts: map[string]string{}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	home, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	l := &lfs{http: &transfer.Client{Home: home}, batch: func(context.Context, []place.Cargo) (map[string]*lfsUpload, error) {
		u := &lfsUpload{chunk: 100, to: home.JoinPath("u", "done"), parts: []*url.URL{home.JoinPath("u", "1")}}
		return map[string]*lfsUpload{c.SHA256: u}, nil
	}}
	if err := l.send(t.Context(), []place.Cargo{c}); !errors.Is(err, tensor.ErrCorrupt) || s.completed != "" {
		t.Errorf("damaged: %v", err)
	}
}
