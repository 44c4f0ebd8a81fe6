package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowReader gives n bytes each time, after a pause.
type slowReader struct {
	io.Reader
	n     int
	pause time.Duration
}

func (s slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Reader.Read(p[:min(len(p), s.n)])
}

// TestMinSpeed lets connections give n bytes a second; the clock is that of the bubble.
func TestMinSpeed(t *testing.T) {
	for _, c := range []struct {
		perSecond int
		wait      time.Duration // before the first byte
		min       int64
		good      bool
	}{
		{1001, 0, 0, true}, {900, 0, 0, false}, {1, 0, 0, false}, {900, 0, 800, true}, {1500, 0, 2000, false},
		{1001, 59 * time.Second, 0, false}, // waiting for an answer counts
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := noise(600_000)
				asked, began := 0, time.Now()
				open := func(_ context.Context, off, n int64) (io.ReadCloser, error) {
					asked++
					time.Sleep(c.wait)
					return io.NopCloser(slowReader{bytes.NewReader(b[off : off+n]), c.perSecond, time.Second}), nil
				}
				o := Options{MinSpeed: c.min}
				path := filepath.Join(t.TempDir(), "file")
				err := Fetch(t.Context(), path, blobOf(b), open, o)
				switch {
				case c.good && (err != nil || asked != 1):
					t.Errorf("%d requests, %v", asked, err)
				case !c.good && (!errors.Is(err, errSlow) || asked > maxTries || time.Since(began) > 2*maxTries*time.Minute):
					t.Errorf("%d requests in %v: %v", asked, time.Since(began), err)
				}
				// The same of an answer that is read whole.
				asked = 0
				err = Retry(t.Context(), "ask", o, func(ctx context.Context, touch func(int)) (bool, error) {
					asked++
					r := Watch(Cancellable(ctx, slowReader{bytes.NewReader(b), c.perSecond, time.Second}), touch)
					if _, err := io.Copy(io.Discard, r); err != nil {
						return true, &Retryable{Err: err}
					}
					return false, nil
				})
				if good := c.good || c.wait > 0; good && err != nil || !good && (!errors.Is(err, errSlow) || asked > maxTries) {
					t.Errorf("%d tries, %v", asked, err)
				}
			})
		})
	}
}

// TestShorterAnswers: a server may give less than it is asked for, again and again; one that gives a byte at a time is given up.
func TestShorterAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, size := range []int{700, 300_000, 9 << 20} {
		for name, give := range map[string]func(n int) int{
			"half":     func(n int) int { return (n + 1) / 2 },
			"100 KiB":  func(n int) int { return min(n, 100<<10) },
			"one byte": func(int) int { return 1 },
			"a tenth":  func(n int) int { return max(1, n/10) },
		} {
			t.Run(fmt.Sprint(name, " of ", size), func(t *testing.T) {
				t.Parallel()
				b := noise(size)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					first, last := 0, size-1
					if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil && r.URL.Path == "/file" {
						// All of it was asked for, in a connection that breaks.
						w.Header().Set("Content-Length", fmt.Sprint(size))
						_, _ = w.Write(b[:give(size)])
						_ = http.NewResponseController(w).Flush()
						panic(http.ErrAbortHandler)
					}
					n := give(last - first + 1)
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, size))
					w.Header().Set("Content-Length", fmt.Sprint(n))
					w.WriteHeader(http.StatusPartialContent)
					_, _ = w.Write(b[first : first+n])
				}))
				defer server.Close()
				home, _ := url.Parse(server.URL)
				c := &Client{Home: home}
				o := Options{Pause: time.Nanosecond, Connections: 2}
				path := filepath.Join(t.TempDir(), "file")
				open := func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
					return c.Range(home.JoinPath("blob"), int64(size))(ctx, off, n)
				}
				err := Fetch(t.Context(), path, blobOf(b), open, o)
				got, _ := os.ReadFile(path)
				inMemory, memErr := ReadBlob(t.Context(), "read", blobOf(b), open, o)
				file, fileErr := c.ReadFile(t.Context(), "read", home.JoinPath("file"), int64(size), o)
				for i, x := range []struct {
					err error
					b   []byte
				}{{err, got}, {memErr, inMemory}, {fileErr, file}} {
					if name == "one byte" {
						if !errors.Is(x.err, errSlow) && !(i == 2 && strings.Contains(fmt.Sprint(x.err), "tries failed")) {
							t.Errorf("%d: %v", i, x.err)
						}
					} else if x.err != nil || !bytes.Equal(x.b, b) {
						t.Errorf("%d: %d bytes, %v", i, len(x.b), x.err)
					}
				}
			})
		}
	}
}

// TestReadAgain: a blob that arrives damaged is read once more.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	b := noise(1000)
	for wrong, good := range map[int]bool{0: true, 1: true, 2: false} {
		asked := 0
		got, err := ReadBlob(t.Context(), "read", blobOf(b), func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			body := bytes.Clone(b[off : off+n])
			if asked++; asked <= wrong {
				body[0] ^= 1
			}
			return io.NopCloser(bytes.NewReader(body)), nil
		}, quick)
		if good != (err == nil && bytes.Equal(got, b)) {
			t.Errorf("%d times wrong: %v", wrong, err)
		}
	}
}
