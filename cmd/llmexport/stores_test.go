package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/llmexport/llmexport/internal/fakes3"
)

// stores are an OCI registry and an S3 store in front of which requests may fail.
type stores struct {
	mu     sync.Mutex
	method string // of requests that fail; empty for none
	part   string // of their addresses
	status int
}

func (s *stores) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		bad := s.method == r.Method && strings.Contains(r.URL.String(), s.part)
		status := s.status
		s.mu.Unlock()
		if bad {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// cmdStores is "stores" and what is done with them:
//
//	stores start                  an OCI registry, whose host is $REGISTRY, and an S3 store, which is $S3
//	stores fail METHOD PART CODE  requests of the method whose address has the part are answered with the status
//	stores well                   all goes well again
func cmdStores(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case !neg && len(args) == 1 && args[0] == "start":
		s := &stores{}
		ts.Value(hubKey{}).(*hubValue).stores = s
		reg := httptest.NewServer(s.wrap(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
		ts.Defer(reg.Close)
		s3 := httptest.NewServer(s.wrap(fakes3.New()))
		ts.Defer(s3.Close)
		ts.Setenv("REGISTRY", strings.TrimPrefix(reg.URL, "http://"))
		ts.Setenv("S3", s3.URL)
		ts.Setenv("AWS_ACCESS_KEY_ID", fakes3.AccessKey)
		ts.Setenv("AWS_SECRET_ACCESS_KEY", fakes3.SecretKey)
		ts.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		ts.Setenv("AWS_ENDPOINT_URL", s3.URL)
		ts.Setenv("AWS_REGION", "us-east-1")
		ts.Setenv("DOCKER_CONFIG", ts.MkAbs("docker"))
	case !neg && len(args) == 4 && args[0] == "fail", !neg && len(args) == 1 && args[0] == "well":
		s := ts.Value(hubKey{}).(*hubValue).stores
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.method = ""; len(args) == 4 {
			status, err := strconv.Atoi(args[3])
			ts.Check(err)
			s.method, s.part, s.status = args[1], args[2], status
		}
	default:
		ts.Fatalf("usage: stores start | stores fail METHOD PART CODE | stores well")
	}
}
