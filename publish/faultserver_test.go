package publish

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/manifest"
)

// faulty is a server in front of which requests go wrong.
type faulty struct {
	fault  *fault
	always bool   // every request that fits goes wrong; else one does
	other  string // the address of a host that has no business here
	sum    string // of the content

	mu   sync.Mutex
	rand *rand.Rand
	skip int // requests that fit and pass before the one that goes wrong
	off  bool

	cutOne bool // the first answer has been cut, see fault.ranged
}

// n is a random number below max.
func (f *faulty) n(max int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if max <= 0 {
		return 0
	}
	return f.rand.IntN(max)
}

// meets reports whether a request that fits goes wrong.
func (f *faulty) meets() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.off:
		return false
	case f.always:
		return true
	case f.skip > 0:
		f.skip--
		return false
	}
	f.off = true
	return true
}

// clear ends the fault.
func (f *faulty) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
}

// wrap is h with the fault in the requests that fit.
func (f *faulty) wrap(h http.Handler, fits func(r *http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fits(r) {
			h.ServeHTTP(w, r)
			return
		}
		if f.fault.ranged && r.Header.Get("Range") == "" {
			// The first answer that has a lot is cut, so that something is left to ask for by a range.
			if a := answerOf(h, r); a.Body.Len() > 1<<16 && f.first() {
				f.cut(w, a, false)
			} else {
				body(w, a, a.Body.Bytes())
			}
			return
		}
		if !f.meets() {
			h.ServeHTTP(w, r)
			return
		}
		f.fault.do(f, h, w, r)
	})
}

// first is true once, while the fault lasts.
func (f *faulty) first() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.cutOne
	f.cutOne = f.cutOne || !f.off
	return !was && !f.off
}

// answerOf is what the server would say.
func answerOf(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	a := httptest.NewRecorder()
	h.ServeHTTP(a, r)
	return a
}

// head begins an answer with the length of what its body was, unless another is set.
func head(w http.ResponseWriter, a *httptest.ResponseRecorder, length int) {
	for k, v := range a.Header() {
		w.Header()[k] = v
	}
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.Itoa(length))
	} else {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(a.Code)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// cut sends a part of an answer and ends the connection.
func (f *faulty) cut(w http.ResponseWriter, a *httptest.ResponseRecorder, reset bool) {
	b := a.Body.Bytes()
	head(w, a, len(b))
	_, _ = w.Write(b[:f.n(len(b))])
	flush(w)
	drop(w, reset)
}

// drop ends the connection.
func drop(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// body is an answer with another body.
func body(w http.ResponseWriter, a *httptest.ResponseRecorder, b []byte) {
	head(w, a, len(b))
	_, _ = w.Write(b)
}

func answerStatus(code int, header ...string) func(*faulty, http.Handler, http.ResponseWriter, *http.Request) {
	return func(_ *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// fault is a row of the table.
type fault struct {
	name string
	// read and write say to what it can happen: content that is fetched, and content that is sent.
	read, write bool
	// list is for what lists the content: a listing of a hub, or the manifest of a package.
	list bool
	// ranged is for requests of a range only; before the first one there is a cut.
	ranged bool
	do     func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request)
}

// faults are the rows.
var faults = []fault{
	{name: "cut after some bytes", read: true, write: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			_, _ = io.CopyN(io.Discard, r.Body, int64(f.n(int(max(r.ContentLength, 1)))))
			drop(w, false)
			return
		}
		f.cut(w, answerOf(h, r), false)
	}},
	{name: "reset", read: true, write: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			_, _ = io.CopyN(io.Discard, r.Body, int64(f.n(int(max(r.ContentLength, 1)))))
			drop(w, true)
			return
		}
		f.cut(w, answerOf(h, r), true)
	}},
	{name: "done, and the answer is lost", write: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		answerOf(h, r)
		drop(w, false)
	}},
	{name: "wrong bytes", read: true, write: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		flip := func(b []byte) []byte {
			if len(b) > 0 {
				b[f.n(len(b))] ^= 1 << f.n(8)
			}
			return b
		}
		if r.Method != http.MethodGet {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(flip(b))))
			h.ServeHTTP(w, r)
			return
		}
		a := answerOf(h, r)
		body(w, a, flip(a.Body.Bytes()))
	}},
	{name: "shorter than listed", read: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		b := a.Body.Bytes()
		body(w, a, b[:f.n(len(b))])
	}},
	{name: "longer than listed", read: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		body(w, a, append(a.Body.Bytes(), make([]byte, 1+f.n(5000))...))
	}},
	{name: "never ends", read: true, write: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		head(w, a, -1)
		_, err := w.Write(a.Body.Bytes())
		for zeros := make([]byte, 64<<10); err == nil && r.Context().Err() == nil; {
			_, err = w.Write(zeros)
		}
	}},
	{name: "slow", read: true, write: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			r.Body = struct {
				io.Reader
				io.Closer
			}{drip{r.Body}, r.Body}
			h.ServeHTTP(w, r)
			return
		}
		a := answerOf(h, r)
		head(w, a, a.Body.Len())
		_, _ = io.Copy(struct{ io.Writer }{w}, drip{a.Body})
	}},
	{name: "stall", read: true, write: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			_, _ = io.CopyN(io.Discard, r.Body, int64(f.n(int(max(r.ContentLength, 1)))))
		} else {
			a := answerOf(h, r)
			head(w, a, a.Body.Len())
			_, _ = w.Write(a.Body.Bytes()[:f.n(a.Body.Len())])
			flush(w)
		}
		// A server notices that a client has gone only once it has read the request.
		select {
		case <-r.Context().Done():
		case <-time.After(2 * faultStall):
		}
		drop(w, false)
	}},
	{name: "429", read: true, write: true, do: answerStatus(429, "Retry-After", "0")},
	{name: "500", read: true, write: true, do: answerStatus(500)},
	{name: "503", read: true, write: true, do: answerStatus(503)},
	{name: "404", read: true, write: true, do: answerStatus(404)},
	{name: "redirect to another host", read: true, write: true, do: func(f *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, f.other+"/elsewhere", http.StatusTemporaryRedirect)
	}},
	{name: "redirect loop", read: true, write: true, do: func(_ *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}},
	{name: "signed address has expired", read: true, write: true, do: func(_ *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
	}},
	{name: "file changed between two requests", read: true, ranged: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		b := a.Body.Bytes()
		for i := range b {
			b[i] ^= 0x5a
		}
		a.Header().Set("ETag", `"another"`)
		body(w, a, b)
	}},
	{name: "200 for a range", read: true, ranged: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		h.ServeHTTP(w, r)
	}},
	{name: "wrong Content-Range", read: true, ranged: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		var first, last, size int
		if _, err := fmt.Sscanf(a.Header().Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size); err == nil {
			a.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first+1, last, size))
		}
		body(w, a, a.Body.Bytes())
	}},
	{name: "hostile names are listed", list: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		name, _ := json.Marshal(fakehub.HostileNames[f.n(len(fakehub.HostileNames))])
		body(w, a, lie(a.Body.Bytes(), `"README.md"`, string(name)))
	}},
	{name: "wrong digests are listed", list: true, do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		body(w, a, lie(a.Body.Bytes(), f.sum, strings.Repeat("0", len(f.sum))))
	}},
}

// lie changes a list, and gives a manifest a right digest again.
func lie(b []byte, old, new string) []byte {
	text := strings.Replace(string(b), old, new, 1)
	if m, err := manifest.Parse(b); err == nil {
		text = strings.Replace(text, string(m.Digest), "", 1)
		text = strings.Replace(text, `"digest": ""`, `"digest": "`+string(manifest.DigestOf([]byte(text)))+`"`, 1)
	}
	return []byte(text)
}

// drip gives a little at a time.
type drip struct{ io.Reader }

func (s drip) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.Reader.Read(b[:min(len(b), 32<<10)])
}
