package publish

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/manifest"
)

// faulty is a server in front of which requests go wrong.
type faulty struct {
	fault  *fault
	always bool   // every request that fits goes wrong; else one does
	other  string // the address of a host that has no business here
	sum    string // of the content
	// request, if set, is the name of the requests that go wrong, whatever the operation says; see requestName.
	request string

	mu   sync.Mutex
	rand *rand.Rand
	skip int // requests that fit and pass before the one that goes wrong
	off  bool

	cutOne bool // the first answer has been cut, see fault.ranged

	seen   map[string]bool // names of the requests while nothing is paused
	echoed []string        // credentials that were repeated
}

// hex digits, and what follows them, that differ from run to run.
var (
	digestPart  = regexp.MustCompile(`(sha256:)?[0-9a-f]{32,64}`)
	sessionPart = regexp.MustCompile(`(uploads/)[^/]+`)
	numberPart  = regexp.MustCompile(`/[0-9]+(/|$)`)
	filePart    = regexp.MustCompile(`/(resolve/[^/]+|bucket/tiny|files)/.+`)
)

// requestName names a kind of request.
func requestName(q *http.Request) string {
	path := digestPart.ReplaceAllString(q.URL.Path, "{digest}")
	path = sessionPart.ReplaceAllString(path, "$1{session}")
	path = numberPart.ReplaceAllString(numberPart.ReplaceAllString(path, "/{n}$1"), "/{n}$1")
	if !strings.HasSuffix(path, manifest.FileName) {
		path = filePart.ReplaceAllString(path, "/$1/{file}")
	}
	var keys []string
	for key := range q.URL.Query() {
		if slices.Contains(nameKeys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > 0 {
		path += "?" + strings.Join(keys, "&")
	}
	return q.Method + " " + path
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
		name := requestName(r)
		f.mu.Lock()
		if f.seen != nil && !f.off {
			f.seen[name] = true
		}
		f.mu.Unlock()
		if f.request == "" && !fits(r) || f.request != "" && f.request != name {
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
	{name: "half of what is asked for", read: true, ranged: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		shorter(h, w, r, func(n int) int { return (n + 1) / 2 })
	}},
	{name: "one byte in each answer", read: true, ranged: true, do: func(_ *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		shorter(h, w, r, func(int) int { return 1 })
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

// credentials gives those of a request, and notes that they are repeated.
func (f *faulty) credentials(r *http.Request) string {
	var all []string
	for _, name := range []string{"Authorization", "Cookie", "X-Amz-Security-Token"} {
		if v := r.Header.Get(name); v != "" {
			all = append(all, v)
		}
	}
	for _, name := range []string{"X-Amz-Signature", "Signature", "sig", "token"} {
		if v := r.URL.Query().Get(name); v != "" {
			all = append(all, v)
		}
	}
	var secrets []string
	for _, v := range all {
		s := v
		for _, before := range []string{"Bearer ", "Basic ", "Signature=", "m_session_id="} {
			if _, after, ok := strings.Cut(s, before); ok {
				s = after
			}
		}
		secrets = append(secrets, s)
		if b, err := base64.StdEncoding.DecodeString(s); err == nil && strings.HasPrefix(v, "Basic ") {
			_, password, _ := strings.Cut(string(b), ":")
			secrets = append(secrets, password)
		}
	}
	f.mu.Lock()
	f.echoed = append(f.echoed, secrets...)
	f.mu.Unlock()
	for _, s := range secrets {
		all = append(all, formsOf(s)...)
	}
	return strings.Join(all, " ")
}

// formsOf are what a server may make of a secret.
func formsOf(s string) []string {
	std, plain := base64.StdEncoding.EncodeToString, base64.URLEncoding.EncodeToString
	return []string{s, url.QueryEscape(s), std([]byte(s)), plain([]byte("x:" + s))}
}

// echoHeaders are those that repeat credentials.
var echoHeaders = []string{"X-Error-Message", "X-Error-Code", "X-Request-Id", "ETag", "WWW-Authenticate", "Link",
	"Docker-Distribution-Api-Version", "X-Amz-Request-Id"}

// nameKeys are the parameters that tell requests apart.
var nameKeys = []string{"uploads", "uploadId", "partNumber", "list-type", "FilePath", "Revision", "expand", "blobs", "recursive"}

// echo answers by hand, with credentials in the status line, in headers and in the body.
func (f *faulty) echo(w http.ResponseWriter, r *http.Request, status int, header http.Header, body string) {
	_, _ = io.Copy(io.Discard, r.Body)
	text := f.credentials(r)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	fmt.Fprintf(buf, "HTTP/1.1 %d %s\r\nConnection: close\r\n", status, text)
	for _, name := range echoHeaders {
		if header.Get(name) == "" {
			fmt.Fprintf(buf, "%s: %s\r\n", name, text)
		}
	}
	header.Del("Content-Length")
	header.Del("Connection")
	_ = header.Write(buf)
	if body == "" && r.Method != http.MethodHead && status != http.StatusNoContent {
		quoted, _ := json.Marshal(text)
		body = strings.ReplaceAll(`{"error":T,"message":T,"Message":T,"Success":false,"Code":T,"sha":T,"commitOid":T,"gated":T,"private":T,
			"siblings":[{"rfilename":T,"size":1}],"files":[{"path":T,"uploadMode":T}],"objects":[{"oid":T,"error":{"code":1,"message":T}}],
			"errors":[{"code":T,"message":T,"detail":T}],"mediaType":T,"layers":[{"mediaType":T,"digest":T}],"name":T,"token":""}`, "T", string(quoted))
		if strings.Contains(r.URL.Path, "bucket") {
			body = "<Error><Code>" + text + "</Code><Message>" + text + "</Message><Resource>" + text + "</Resource></Error>"
		}
	}
	fmt.Fprintf(buf, "Content-Length: %d\r\n\r\n", len(body))
	if r.Method != http.MethodHead {
		_, _ = buf.WriteString(body)
	}
	_ = buf.Flush()
}

// echoes are faults that repeat the credentials of a request; see [faulty.echo].
var echoes = []fault{
	{name: "credentials in a refusal", do: func(f *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		f.echo(w, r, http.StatusForbidden, http.Header{}, "")
	}},
	{name: "credentials in nonsense", do: func(f *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		status := http.StatusBadRequest
		if r.Method == http.MethodGet {
			status = http.StatusOK
		}
		f.echo(w, r, status, http.Header{}, "")
	}},
	{name: "credentials in a success", do: func(f *faulty, h http.Handler, w http.ResponseWriter, r *http.Request) {
		a := answerOf(h, r)
		f.echo(w, r, a.Code, a.Header(), a.Body.String())
	}},
	{name: "credentials in a redirect", do: func(f *faulty, _ http.Handler, w http.ResponseWriter, r *http.Request) {
		text := url.QueryEscape(f.credentials(r))
		f.echo(w, r, http.StatusTemporaryRedirect, http.Header{"Location": {f.other + "/" + text + "?x=" + text}}, "")
	}},
}

// requestFaults are those that can happen to every request.
var requestFaults = append(slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
	return !slices.Contains([]string{"cut after some bytes", "done, and the answer is lost", "never ends", "stall", "429", "500", "404",
		"redirect to another host", "redirect loop"}, f.name)
}), echoes...)

// shorter answers a request for a range with the beginning of it.
func shorter(h http.Handler, w http.ResponseWriter, r *http.Request, give func(n int) int) {
	a := answerOf(h, r)
	b := a.Body.Bytes()
	var first, last, size int
	if _, err := fmt.Sscanf(a.Header().Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size); err == nil && len(b) > 0 {
		b = b[:give(len(b))]
		a.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+len(b)-1, size))
	}
	body(w, a, b)
}

// lie changes a list, and gives a manifest a right digest again.
func lie(b []byte, old, new string) []byte {
	text := strings.Replace(string(b), old, new, 1)
	if m, err := manifest.Parse(b); err == nil {
		text = strings.Replace(text, string(m.Digest), "", 1)
		text = strings.Replace(text, `"digest": ""`, `"digest": "`+string(digest.Of([]byte(text)))+`"`, 1)
	}
	return []byte(text)
}

// drip gives a little at a time.
type drip struct{ io.Reader }

func (s drip) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.Reader.Read(b[:min(len(b), 32<<10)])
}
