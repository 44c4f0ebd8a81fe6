package transfer

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

	"github.com/llmexport/llmexport/internal/fault"
)

const faultSize = 8*pieceSize + 12345 // four connections

// span is the range that a request asks for; all without one.
func span(r *http.Request, size int) (first, last int) {
	last = size - 1
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	return first, last
}

// part sends a range with the headers of the whole of it, but only n bytes, and cuts the connection.
func part(w http.ResponseWriter, r *http.Request, content []byte, n int) {
	first, last := span(r, len(content))
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(content)))
	w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(content[first:min(first+n, last+1)])
	panic(http.ErrAbortHandler)
}

// TestFaults is the table of what servers do wrong. Each ends in the right file or in one error.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	type answer func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool
	status := func(code int, header ...string) answer {
		return func(_ *server, w http.ResponseWriter, _ *http.Request, _ int32) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return true
		}
	}
	at := func(ns string, a answer) answer { // at some requests only
		return func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			return strings.Contains(" "+ns+" ", fmt.Sprintf(" %d ", n)) && a(s, w, r, n)
		}
	}
	all := func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
		_, _ = w.Write(s.content)
		return true
	}
	cases := []struct {
		name    string
		answer  answer
		want    string // of the error; empty if it ends well
		corrupt bool   // the error is fault.ErrCorrupt
		extra   int64  // bytes served beyond the size, at most; -1 for any number
		kept    bool   // there is something to go on with after the error
	}{
		{name: "nothing wrong"},
		{name: "every connection cut after 300000 bytes, ten times", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			if n <= 10 {
				part(w, r, s.content, 300_000)
			}
			return false
		}, extra: 0},
		{name: "reset before the header, at the 2nd to 4th", answer: at("2 3 4", func(*server, http.ResponseWriter, *http.Request,
			int32) bool {
			panic(http.ErrAbortHandler)
		})},
		{name: "all but the first connection fail six times", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			if first, _ := span(r, len(s.content)); first > 0 && n > 1 && n < 8 {
				w.WriteHeader(503)
				return true
			}
			return false
		}},
		{name: "500 for ever", answer: status(500), want: "5 tries failed: 127.0.0.1:"},
		{name: "404", answer: status(404), want: "answers 404"},
		{name: "501", answer: status(501), want: "answers 501"},
		{name: "429 and a long wait", answer: status(429, "Retry-After", "3600"), want: "asks to wait 1h"},
		{name: "signature runs out at every third", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			if n%3 == 0 {
				w.WriteHeader(403)
			}
			return n%3 == 0
		}},
		{name: "403 for ever", answer: status(403), want: "5 tries failed"},
		{name: "416 once", answer: at("2", status(416))},
		{name: "416 for ever", answer: status(416), want: "has no byte 0", corrupt: true},
		{name: "ranges ignored", answer: all, extra: -1},
		{name: "ranges ignored in the middle", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			return n > 2 && all(s,
				w, r, n)
		}, extra: -1},
		{name: "ranges ignored and cut", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			w.Header().Set("Content-Length", fmt.Sprint(len(s.content)))
			if n < 5 {
				_, _ = w.Write(s.content[:int(n)*len(s.content)/5])
				panic(http.ErrAbortHandler)
			}
			return all(s, w, r, n)
		}, extra: -1},
		{name: "another range once", answer: at("3", func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-9/%d", len(s.content)))
			w.WriteHeader(206)
			_, _ = w.Write(s.content[5:10])
			return true
		}), extra: 5},
		{name: "no Content-Range", answer: status(206), want: "sends the range", corrupt: true},
		{name: "another size in Content-Range", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			first, last := span(r, len(s.content))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)+1))
			w.WriteHeader(206)
			return true
		}, want: "are listed", corrupt: true},
		{name: "another length", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			_, _ = w.Write([]byte("<html>"))
			return true
		}, want: "the server has 6 bytes", corrupt: true},
		{name: "shorter ranges", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			first, last := span(r, len(s.content))
			last = min(last, first+700_000)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)))
			w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
			w.WriteHeader(206)
			_, _ = w.Write(s.content[first : last+1])
			return true
		}},
		{name: "a range that never ends", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			first, last := span(r, len(s.content))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)))
			w.WriteHeader(206)
			w.(http.Flusher).Flush()
			for b := s.content[first:]; r.Context().Err() == nil; b = s.content {
				if _, err := w.Write(b); err != nil {
					break
				}
			}
			return true
		}, want: "more than the", corrupt: true, extra: -1},
		{name: "wrong bytes once", answer: at("2", func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			first, last := span(r, len(s.content))
			b := bytes.Clone(s.content[first : last+1])
			b[len(b)/2] ^= 1
			w.Header().Set("ETag", s.etag)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)))
			w.WriteHeader(206)
			_, _ = w.Write(b)
			return true
		}), extra: faultSize},
		{name: "changed between two requests", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			if n == 1 {
				first, last := span(r, len(s.content))
				w.Header().Set("ETag", `"v0"`)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)))
				w.WriteHeader(206)
				_, _ = w.Write(noise(last - first + 1))
				return true
			}
			return false
		}, extra: faultSize},
		{name: "changes at every request", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			first, last := span(r, len(s.content))
			w.Header().Set("ETag", fmt.Sprintf(`"v%d"`, n))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)))
			w.WriteHeader(206)
			_, _ = w.Write(s.content[first : last+1])
			return true
		}, want: "changes on", corrupt: true, extra: -1},
		{name: "stalls before the header and after some bytes", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			if n > 3 {
				return false
			}
			if n > 1 {
				first, last := span(r, len(s.content))
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(s.content)))
				w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
				w.WriteHeader(206)
				_, _ = w.Write(s.content[first : first+1000])
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
			return true
		}, extra: 0},
		{name: "bytes and then cuts for ever", answer: func(s *server, w http.ResponseWriter, r *http.Request, n int32) bool {
			if n < 4 { // less than all of it, however it is shared out
				part(w, r, s.content, 5*pieceSize/2)
			}
			w.WriteHeader(500)
			return true
		}, want: "5 tries failed", kept: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, faultSize)
			if c.answer != nil {
				s.setAnswer(func(w http.ResponseWriter, r *http.Request, n int32) bool { return c.answer(s, w, r, n) })
			}
			path := filepath.Join(t.TempDir(), "file")
			o := quick
			if strings.HasPrefix(c.name, "stalls") {
				o.Stall = 2 * time.Second // a busy machine must not look like a stalled server
			}
			err := Fetch(t.Context(), path, s.blob(), s.open(), o)
			if extra := s.served.Load() - faultSize; c.want == "" && c.extra >= 0 && extra > c.extra {
				t.Errorf("%d bytes too many served", extra)
			}
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				checkFile(t, path, s.content)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, fault.ErrCorrupt) != c.corrupt {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "signature") {
				t.Errorf("%v shows a signed address", err)
			}
			names, _ := filepath.Glob(path + "*")
			if c.kept != (len(names) == 2) || !c.kept && len(names) > 0 {
				t.Errorf("left %q", names)
			}
			if c.kept { // and it is of use
				s.setAnswer(nil)
				before := s.served.Load()
				if err := Fetch(t.Context(), path, s.blob(), s.open(), o); err != nil {
					t.Fatal(err)
				}
				checkFile(t, path, s.content)
				// How far each request came before the cut depends on how the rest was shared out at that moment.
				if kept := before + faultSize - s.served.Load(); kept < pieceSize {
					t.Errorf("%d bytes of %d were not fetched again", kept, before)
				}
			}
		})
	}
}

// TestDamage is about what lies on the disk when a fetch begins.
func TestDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const whole = 7 // pieces that an earlier run brought
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
		most   int64 // bytes fetched then, in addition to those of the missing pieces
	}{
		{"nothing", func(*testing.T, string) {}, 0},
		{"a bit of a piece", func(t *testing.T, path string) { flip(t, path, 2*pieceSize+77) }, pieceSize},
		{"bits of three pieces", func(t *testing.T, path string) {
			for i := range int64(3) {
				flip(t, path, i*2*pieceSize)
			}
		}, 3 * pieceSize},
		{"the file is cut", func(t *testing.T, path string) { must(t, os.Truncate(path, 3*pieceSize+5)) }, 4 * pieceSize},
		{"the file is gone", func(t *testing.T, path string) { must(t, os.Remove(path)) }, 7 * pieceSize},
		{"a record of the journal", func(t *testing.T, path string) { flip(t, path+journalName, headSize+recordSize+1) }, pieceSize},
		{"the journal is torn", func(t *testing.T, path string) {
			must(t, os.Truncate(path+journalName, headSize+2*recordSize+5))
		}, 5 * pieceSize},
		{"the head of the journal", func(t *testing.T, path string) { flip(t, path+journalName, 50) }, whole * pieceSize},
		{"the journal is gone", func(t *testing.T, path string) { must(t, os.Remove(path+journalName)) }, 0},
		{"the file is too long", func(t *testing.T, path string) { must(t, os.Truncate(path, faultSize+1)) }, whole * pieceSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, faultSize)
			path := filepath.Join(t.TempDir(), "file")
			seven := func(w http.ResponseWriter, r *http.Request, n int32) bool {
				if n == 1 {
					part(w, r, s.content, whole*pieceSize)
				}
				w.WriteHeader(404)
				return true
			}
			s.setAnswer(seven)
			o := quick
			o.Connections = 1
			if err := Fetch(t.Context(), path, s.blob(), s.open(), o); err == nil {
				t.Fatal("nothing is missing")
			}
			c.damage(t, path)
			s.setAnswer(nil)
			before := s.served.Load()
			if err := Fetch(t.Context(), path, s.blob(), s.open(), quick); err != nil {
				t.Fatal(err)
			}
			checkFile(t, path, s.content)
			if got := s.served.Load() - before - (faultSize - whole*pieceSize); got > c.most {
				t.Errorf("%d bytes fetched again, %d are damaged", got, c.most)
			}
		})
	}
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	b[at] ^= 4
	must(t, os.WriteFile(path, b, 0o666))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRetryAfterHoldsAll demands that no connection asks while one has been told to wait.
func TestRetryAfterHoldsAll(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	s := newServer(t, faultSize)
	var until atomic.Int64
	s.setAnswer(func(w http.ResponseWriter, r *http.Request, n int32) bool {
		switch now := time.Now().UnixMilli(); {
		case n == 3:
			until.Store(now + 900)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return true
		case n <= 4: // may be on its way already, and does not end before the third is told
			time.Sleep(200 * time.Millisecond)
		case now < until.Load():
			t.Errorf("request %d comes %d ms early", n, until.Load()-now)
		}
		return false
	})
	path := filepath.Join(t.TempDir(), "file")
	if err := Fetch(t.Context(), path, s.blob(), s.open(), quick); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path, s.content)
}
