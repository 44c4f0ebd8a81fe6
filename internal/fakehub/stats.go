package fakehub

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// maxRequests bounds the number of recorded requests.
const maxRequests = 200_000

// Request is a request and its response.
type Request struct {
	// Server is "hub" or "storage".
	Server string `json:"server"`
	// Method and Path are the request's; the query is left out, because it may contain a signature.
	Method string `json:"method"`
	Path   string `json:"path"`
	// File is the requested file, such as "org/name/model.safetensors"; may be empty.
	File string `json:"file,omitempty"`
	// Range is the header.
	Range string `json:"range,omitempty"`
	// Conn identifies the connection: the client's address.
	Conn string `json:"conn"`
	// UserAgent is the header.
	UserAgent string `json:"user_agent,omitempty"`
	// Authorized reports whether there was an Authorization header.
	Authorized bool `json:"authorized,omitempty"`
	// Status is the response's; 0 if there is none yet, or the connection was dropped before.
	Status int `json:"status"`
	// Sent and Received are the bytes of the bodies so far. Sent bytes may not have arrived.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received,omitempty"`
	// Fault is the rule that applied.
	Fault Fault `json:"fault,omitempty"`
}

// Total counts requests and bytes of one file or path.
type Total struct {
	// Requests is the number of requests.
	Requests int `json:"requests"`
	// Sent is the number of bytes of the bodies.
	Sent int64 `json:"sent"`
}

// Stats are all counters.
type Stats struct {
	// Files are totals by file name, of responses with content: redirects are not counted.
	Files map[string]Total `json:"files"`
	// Requests are all requests in the order of their arrival.
	Requests []Request `json:"requests"`
	// Conns are totals by connection.
	Conns map[string]Total `json:"conns"`
	// LFSUploads is the number of valid uploaded LFS objects.
	LFSUploads int `json:"lfs_uploads"`
	// Commits is the number of commits by clients.
	Commits int `json:"commits"`
	// Leaked is the number of requests to storage with an Authorization header or ModelScope's cookie. It must be 0.
	Leaked int `json:"leaked"`
}

// record is a request during and after its handling. Everything is counted before a client can notice it.
type record struct {
	Request
	status, sent, received atomic.Int64
}

// now returns a snapshot of the request.
func (r *record) now() Request {
	n := r.Request
	n.Status, n.Sent, n.Received = int(r.status.Load()), r.sent.Load(), r.received.Load()
	return n
}

type stats struct {
	mu       sync.Mutex
	requests []*record
	sent     map[string]*atomic.Int64 // bytes of each file, updated while it is being sent
	uploads  int
	commits  int
	leaked   int
}

// counter returns the counter for a file's bytes.
func (s *stats) counter(file string) *atomic.Int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[string]*atomic.Int64{}
	}
	if s.sent[file] == nil {
		s.sent[file] = &atomic.Int64{}
	}
	return s.sent[file]
}

// add begins a record.
func (s *stats) add(r *record, leaked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leaked {
		s.leaked++
	}
	if len(s.requests) < maxRequests {
		s.requests = append(s.requests, r)
	}
}

// observed counts requests and applies rules.
func (h *Hub) observed(side int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if side == onHub && (r.URL.Path == "/_faults" || r.URL.Path == "/_stats") {
			next.ServeHTTP(w, r)
			return
		}
		t := h.targetOf(side, r)
		f := h.faults.pick(side, r, t)
		r = withFault(r, f)
		note := &record{Request: Request{Server: sides[side], Method: r.Method, Path: r.URL.Path, File: t.file, Range: r.Header.Get("Range"), Conn: r.RemoteAddr,
			UserAgent: r.UserAgent(), Authorized: r.Header.Get("Authorization") != ""}}
		if f != nil {
			note.Fault = f.Fault
		}
		_, err := r.Cookie(sessionCookie)
		h.stats.add(note, side == onStorage && (note.Authorized || err == nil))
		if h.o.Observe != nil {
			h.o.Observe(note.Request)
		}
		r.Body = &counted{r.Body, &note.received}
		rw := &response{ResponseWriter: w, r: r, h: h, fault: f, record: note, count: &atomic.Int64{}}
		if t.content && !t.redirects && r.Method == http.MethodGet {
			rw.count = h.stats.counter(t.file)
		}
		if f != nil {
			if f.Fault == IgnoreRange || f.Fault == Endless {
				r.Header.Del("Range")
			}
			if f.instead(rw, r) {
				return
			}
		}
		next.ServeHTTP(rw, r)
		rw.finish(r)
	})
}

// counted counts the bytes read from a request body.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// Stats returns the current counters.
func (h *Hub) Stats() Stats {
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	s := Stats{Files: map[string]Total{}, Conns: map[string]Total{}, Requests: []Request{}, LFSUploads: h.stats.uploads,
		Commits: h.stats.commits, Leaked: h.stats.leaked}
	for _, file := range slices.Sorted(maps.Keys(h.stats.sent)) {
		s.Files[file] = Total{Sent: h.stats.sent[file].Load()}
	}
	for _, record := range h.stats.requests {
		r := record.now()
		s.Requests = append(s.Requests, r)
		c := s.Conns[r.Conn]
		c.Requests++
		c.Sent += r.Sent
		s.Conns[r.Conn] = c
		if f, ok := s.Files[r.File]; ok && r.Sent > 0 && r.Method == http.MethodGet && r.Status/100 == 2 {
			f.Requests++
			s.Files[r.File] = f
		}
	}
	return s
}

// Sent returns the number of bytes sent so far of a file, such as "org/name/model.safetensors".
func (h *Hub) Sent(file string) int64 { return h.stats.counter(file).Load() }

// Requests returns the requests so far whose method and path match. A * in either stands for any characters; the path
// is also matched against the name of the file.
func (h *Hub) Requests(method, path string) []Request {
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	var list []Request
	for _, r := range h.stats.requests {
		if glob(method, r.Method) && (glob(path, r.Path) || glob(path, r.File)) {
			list = append(list, r.now())
		}
	}
	return list
}

// Leaked reports whether a request to storage ever had an Authorization header or ModelScope's cookie.
func (h *Hub) Leaked() bool {
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	return h.stats.leaked > 0
}

// ResetStats sets all counters to 0.
func (h *Hub) ResetStats() {
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	h.stats.requests, h.stats.sent, h.stats.uploads, h.stats.commits, h.stats.leaked = nil, nil, 0, 0, 0
}

// serveStats returns the counters on GET, and sets them to 0 on DELETE.
func (h *Hub) serveStats(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		h.ResetStats()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(h.Stats())
}
