package fakehub

import (
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Token is the token that every hub knows. Its user may read and write everything.
const Token = "hf_fakeToken0123456789"

// Role is what a user may do.
type Role int

const (
	// Owner reads and writes every repository.
	Owner Role = iota
	// Reader reads every repository, private and gated ones too.
	Reader
	// Stranger reads what is public. Gated files are refused, private repositories are not found.
	Stranger
)

// User is who a token belongs to.
type User struct {
	// Name is the user's name.
	Name string
	// Role is what the user may do.
	Role Role
}

// Options are what tests may want otherwise. The zero value is as the real hub.
type Options struct {
	// LFSFrom is the size in bytes from which on a file is an LFS file whatever its name. Default 10 MiB.
	LFSFrom int64
	// PartSize is the size in bytes of the parts of an upload, and of the largest upload in one piece. Default 8 MiB,
	// where the real hub has some gigabytes and parts of tens of megabytes.
	PartSize int64
	// PageSize is the number of entries of one page of a listing. Default 1000, and 50 of what is expanded.
	PageSize int
	// SignedFor is how long an address of storage holds. Default 1 hour.
	SignedFor time.Duration
	// Dir is where uploaded objects are kept. Default: in memory.
	Dir string
	// Direct makes the hub answer itself for small files, as it did before it redirected to its cache.
	Direct bool
}

// Hub holds repositories and serves them. Make one by New. Its methods may be called at any time by any goroutine.
type Hub struct {
	o      Options
	secret []byte // signs addresses of storage

	mu      sync.RWMutex
	urls    [2]string // of hub and storage
	users   map[string]User
	repos   map[string]*Repo   // by kind and name, such as "models/org/name"
	objects map[string]*object // LFS objects by SHA-256
	parts   map[string]*upload // uploads in parts, by SHA-256
	clock   time.Time          // of the next commit: fixed, so that commits have the same names in every run

	faults faults
	stats  stats
	done   chan struct{} // closed when the servers stop, so that stalled answers end
	stop   sync.Once
}

// New makes a hub without repositories.
func New(o ...Options) *Hub {
	h := &Hub{secret: make([]byte, 32), users: map[string]User{Token: {Name: "tester"}}, repos: map[string]*Repo{},
		objects: map[string]*object{}, parts: map[string]*upload{}, done: make(chan struct{}),
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if len(o) > 0 {
		h.o = o[0]
	}
	if h.o.LFSFrom <= 0 {
		h.o.LFSFrom = 10 << 20
	}
	if h.o.PartSize <= 0 {
		h.o.PartSize = 8 << 20
	}
	if h.o.SignedFor <= 0 {
		h.o.SignedFor = time.Hour
	}
	_, _ = rand.Read(h.secret)
	return h
}

// AddToken makes a token known.
func (h *Hub) AddToken(token string, u User) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users[token] = u
}

// Repo gives the repository of that name, and makes it if there is none. Names are "org/name" of a model or
// "datasets/org/name".
func (h *Hub) Repo(name string) *Repo {
	key := repoKey(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[key]
	if r == nil {
		r = newRepo(h, key)
		h.repos[key] = r
	}
	return r
}

// repoKey is a name with its kind.
func repoKey(name string) string {
	for _, kind := range kinds {
		if strings.HasPrefix(name, kind+"/") {
			return name
		}
	}
	return "models/" + name
}

// find gives a repository, or nil.
func (h *Hub) find(key string) *Repo {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.repos[key]
}

// Server is a hub that listens.
type Server struct {
	// URL is the endpoint of the hub: HF_ENDPOINT. StorageURL is where large files are.
	URL, StorageURL string

	servers [2]*http.Server
	h       *Hub
}

// Listen starts both servers, the hub on an address such as "127.0.0.1:0" and storage on a free port of the same host.
// A hub listens once. Close the server after use.
func (h *Hub) Listen(address string) (*Server, error) {
	hub, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(hub.Addr().String())
	storage, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		hub.Close()
		return nil, err
	}
	s := &Server{h: h, URL: "http://" + hub.Addr().String(), StorageURL: "http://" + storage.Addr().String()}
	h.mu.Lock()
	h.urls = [2]string{s.URL, s.StorageURL}
	h.mu.Unlock()
	for i, l := range []net.Listener{hub, storage} {
		s.servers[i] = &http.Server{Handler: []http.Handler{h.Handler(), h.Storage()}[i], ReadHeaderTimeout: time.Minute}
		go func() { _ = s.servers[i].Serve(l) }()
	}
	return s, nil
}

// Close stops both servers and cuts what they are sending.
func (s *Server) Close() {
	s.h.stop.Do(func() { close(s.h.done) })
	for _, srv := range s.servers {
		_ = srv.Close()
	}
}

// TB is what Start needs of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Start listens on a free port of the loopback interface until the test ends.
func (h *Hub) Start(t TB) *Server {
	t.Helper()
	s, err := h.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatalf("fakehub: %v", err)
		return nil
	}
	t.Cleanup(s.Close)
	return s
}

// Handler serves the hub's side: API, files by name, faults and counters. Without Listen, SetURLs must say where the
// servers are.
func (h *Hub) Handler() http.Handler { return h.observed(onHub, http.HandlerFunc(h.serveHub)) }

// Storage serves the storage's side.
func (h *Hub) Storage() http.Handler { return h.observed(onStorage, http.HandlerFunc(h.serveStorage)) }

// SetURLs says where the two handlers are reached, for who serves them otherwise than by Listen.
func (h *Hub) SetURLs(hub, storage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.urls = [2]string{strings.TrimRight(hub, "/"), strings.TrimRight(storage, "/")}
}

// url is the address of one of the two servers.
func (h *Hub) url(side int) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.urls[side]
}
