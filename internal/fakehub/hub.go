package fakehub

import (
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Token is a token that every hub accepts. Its user may read and write everything.
const Token = "hf_fakeToken0123456789"

// Role is the access that a user has.
type Role int

const (
	// Owner reads and writes every repository.
	Owner Role = iota
	// Reader reads every repository, including private and gated ones.
	Reader
	// Stranger reads public repositories. Gated files are forbidden, private repositories are not found.
	Stranger
)

// User is the owner of a token.
type User struct {
	// Name is the user's name.
	Name string
	// Role is the access that the user has.
	Role Role
}

// Options configure a hub. The zero value is as the real hub.
type Options struct {
	// LFSFrom is the size in bytes from which a file is an LFS file regardless of its name. Default 10 MiB.
	LFSFrom int64
	// PartSize is the size in bytes of the parts of an upload, and of the largest upload in one piece. Default 8 MiB;
	// on the real hub some gigabytes, with parts of tens of megabytes.
	PartSize int64
	// PageSize is the number of entries on a page of a listing. Default 1000, or 50 for expanded listings.
	PageSize int
	// SignedFor is the time for which an address of storage is valid. Default 1 hour.
	SignedFor time.Duration
	// Dir is the directory for uploaded objects. Default: in memory.
	Dir string
	// Direct makes the hub serve small files itself, as it did before it redirected to its cache.
	Direct bool
	// Observe, if not nil, is called with every request before it is answered, by several goroutines.
	Observe func(Request)
}

// Hub holds repositories and serves them. Make one with New. Its methods are safe for concurrent use.
type Hub struct {
	o      Options
	secret []byte // signs addresses of storage

	mu      sync.RWMutex
	urls    [2]string // of hub and storage
	users   map[string]User
	repos   map[string]*Repo   // by kind and name, such as "models/org/name"
	objects map[string]*object // LFS objects by SHA-256
	parts   map[string]*upload // uploads in parts, by SHA-256
	clock   time.Time          // time of the next commit; fixed, so that commits have the same ids in every run

	faults faults
	stats  stats
	done   chan struct{} // closed when the servers stop, to end stalled responses
	stop   sync.Once
}

// New returns a hub without repositories.
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

// AddToken adds a token.
func (h *Hub) AddToken(token string, u User) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users[token] = u
}

// Repo returns the repository called name, and creates it if necessary. Names are "org/name" for models or
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

// repoKey returns a name with its kind.
func repoKey(name string) string {
	for _, kind := range kinds {
		if strings.HasPrefix(name, kind+"/") {
			return name
		}
	}
	return "models/" + name
}

// find returns a repository, or nil.
func (h *Hub) find(key string) *Repo {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.repos[key]
}

// Server is a listening hub.
type Server struct {
	// URL is the endpoint of the hub: HF_ENDPOINT. StorageURL is the address of large files.
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

// Close stops both servers and drops their connections.
func (s *Server) Close() {
	s.h.stop.Do(func() { close(s.h.done) })
	for _, srv := range s.servers {
		_ = srv.Close()
	}
}

// TB is the part of testing.TB that Start needs.
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

// Handler returns the handler of the hub: API, files by name, faults and counters. Without Listen, SetURLs must set the
// addresses of the servers.
func (h *Hub) Handler() http.Handler { return h.observed(onHub, http.HandlerFunc(h.serveHub)) }

// Storage returns the handler of the storage server.
func (h *Hub) Storage() http.Handler { return h.observed(onStorage, http.HandlerFunc(h.serveStorage)) }

// SetURLs sets the addresses of the two handlers if they are not served by Listen.
func (h *Hub) SetURLs(hub, storage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.urls = [2]string{strings.TrimRight(hub, "/"), strings.TrimRight(storage, "/")}
}

// url returns the address of one of the two servers.
func (h *Hub) url(side int) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.urls[side]
}
