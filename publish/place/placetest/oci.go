package placetest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
)

// OCI is a registry that somebody else wrote, with faults in front of it.
type OCI struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	requests []string
	// fault may answer in place of the registry; true if it has.
	fault func(w http.ResponseWriter, r *http.Request) bool
}

// NewOCI starts one.
func NewOCI(t testing.TB) *OCI {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	s := &OCI{t: t}
	reg := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		fault := s.fault
		s.mu.Unlock()
		if fault != nil && fault(w, r) {
			return
		}
		reg.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Ref is the reference of a tag, which begins with a colon, or of a digest.
func (s *OCI) Ref(tag string) string {
	return strings.TrimPrefix(s.URL, "http://") + "/org/tiny" + tag
}

// Seen counts the requests with a prefix since the last call of SetFault.
func (s *OCI) Seen(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// SetFault lets f answer requests; it says whether it has.
func (s *OCI) SetFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.requests = f, nil
}
