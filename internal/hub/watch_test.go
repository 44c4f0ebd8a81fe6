package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

func TestHead(t *testing.T) {
	const tag = `W/"1c5-abc"`
	answer := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	good := `{"_id":"1","id":"org/tiny","sha":"` + testCommit + `"}`
	for _, tc := range []struct {
		name     string
		etag     string
		revision string
		handler  http.HandlerFunc
		want     Tip
		is       error  // the error is this one
		text     string // and has this in its text
	}{
		{name: "new", handler: answer(200, good, "ETag", tag), want: Tip{Commit: testCommit, ETag: tag}},
		{name: "no etag", handler: answer(200, good), want: Tip{Commit: testCommit}},
		{name: "changed", etag: `"old"`, handler: answer(200, good, "ETag", tag), want: Tip{Commit: testCommit, ETag: tag}},
		{name: "unchanged", etag: tag, handler: answer(304, "", "ETag", tag), want: Tip{ETag: tag, Unchanged: true}},
		{name: "unchanged unasked", handler: answer(304, ""), text: "answers 304"},
		{name: "etag that is none", handler: answer(200, good, "ETag", "no quotes"), want: Tip{Commit: testCommit}},
		{name: "etag too long", handler: answer(200, good, "ETag", `"`+strings.Repeat("x", 300)+`"`), want: Tip{Commit: testCommit}},
		{name: "full answer", handler: answer(200, `{"sha":"`+testCommit+`","siblings":[{"rfilename":"a"}],"likes":3}`), want: Tip{Commit: testCommit}},
		{name: "gone", handler: answer(404, "", "X-Error-Code", "RepoNotFound"), is: fs.ErrNotExist, text: "RepoNotFound"},
		{name: "gated", handler: answer(403, "", "X-Error-Code", "GatedRepo"), is: fs.ErrPermission, text: "accept its terms"},
		{name: "no json", handler: answer(200, "<html>"), is: fault.ErrCorrupt},
		{name: "no commit", handler: answer(200, `{"id":"org/tiny"}`), is: fault.ErrCorrupt},
		{name: "bad commit", handler: answer(200, `{"sha":"../../etc"}`), is: fault.ErrCorrupt},
		{name: "another commit", revision: strings.Repeat("1", 40), handler: answer(200, good), is: fault.ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				revision := "refs%2Fpr%2F1"
				if tc.revision != "" {
					revision = tc.revision
				}
				if got, want := r.URL.EscapedPath()+"?"+r.URL.RawQuery, "/api/models/org/tiny/revision/"+revision+"?expand=sha"; got != want {
					t.Errorf("asks for %s, want %s", got, want)
				}
				if got := r.Header.Get("If-None-Match"); got != tc.etag {
					t.Errorf("If-None-Match %q, want %q", got, tc.etag)
				}
				tc.handler(w, r)
			}))
			defer srv.Close()
			o := Options{Endpoint: srv.URL, Token: testToken, Pause: time.Millisecond}
			ref := Ref{Repo: testRepo, Revision: "refs/pr/1"}
			if tc.revision != "" {
				ref.Revision = tc.revision
			}
			got, err := Head(t.Context(), ref, tc.etag, o)
			if got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if wrong := tc.is != nil || tc.text != ""; wrong != (err != nil) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("error %v, want %v", err, tc.is)
			}
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), tc.text) || !strings.HasPrefix(err.Error(), ref.String()) || strings.Contains(err.Error(), testToken) {
				t.Errorf("error %q", err)
			}
			if _, ok := Transient(err); ok {
				t.Errorf("%v counts as transient", err)
			}
		})
	}
}

// TestHeadBusy: a hub that is busy is asked again as it wishes, and in the end the error says how long it wants to rest.
func TestHeadBusy(t *testing.T) {
	var asked atomic.Int32
	after := "0"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%3 == 0 {
			fmt.Fprintf(w, `{"sha":%q}`, testCommit)
			return
		}
		w.Header().Set("Retry-After", after)
		w.WriteHeader(429)
	}))
	defer srv.Close()
	o := Options{Endpoint: srv.URL, Pause: time.Millisecond}
	tip, err := Head(t.Context(), Ref{Repo: testRepo}, "", o)
	if err != nil || tip.Commit != testCommit || asked.Load() != 3 {
		t.Errorf("%+v after %d requests, %v", tip, asked.Load(), err)
	}
	after = "7200"
	_, err = Head(t.Context(), Ref{Repo: testRepo}, "", o)
	if wait, ok := Transient(err); !ok || wait != 2*time.Hour || asked.Load() != 4 {
		t.Errorf("wait %v, %v after %d requests: %v", wait, ok, asked.Load(), err)
	}
}

// TestHeadConfined: neither the token nor a request goes where it should not.
func TestHeadConfined(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to another server")
		}
		fmt.Fprintf(w, `{"sha":%q}`, testCommit)
	}))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			t.Error("no token")
		}
		http.Redirect(w, r, other.URL+"/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	if _, err := Head(t.Context(), Ref{Repo: testRepo}, `"x"`, Options{Endpoint: srv.URL, Token: testToken}); err != nil {
		t.Error(err)
	}
	for name, ref := range map[string]Ref{
		"path": {Path: "x"}, "repo": {Repo: "../x"}, "double hyphen": {Repo: "a--b"}, "revision": {Repo: testRepo, Revision: "../main"}, "empty": {},
	} {
		if _, err := Head(t.Context(), ref, "", Options{Endpoint: "http://127.0.0.1:1"}); err == nil {
			t.Errorf("%s: no error", name)
		} else if _, ok := Transient(err); ok {
			t.Errorf("%s: was asked: %v", name, err)
		}
	}
	if _, err := Head(t.Context(), Ref{Repo: testRepo}, "", Options{Endpoint: srv.URL, Offline: true}); err == nil || !strings.Contains(err.Error(),
		"HF_HUB_OFFLINE") {
		t.Errorf("offline: %v", err)
	}
}

func TestTransient(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":      {nil, false},
		"refused":   {fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		"dns":       {&net.DNSError{Err: "no such host"}, true},
		"disk full": {&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, false},
		"status":    {&StatusError{Status: 404}, false},
		"busy":      {fmt.Errorf("x: %w", &transfer.Retryable{Err: &StatusError{Status: 503}}), true},
		"ended":     {context.Canceled, false},
	} {
		if _, ok := Transient(tc.err); ok != tc.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

func FuzzParseTip(f *testing.F) {
	for _, s := range []string{`{"sha":"` + testCommit + `"}`, `{"sha":1}`, `[]`, `{"sha":""}`, ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		commit, err := parseTip(b)
		if (err == nil) != isCommit(commit) || err != nil && !errors.Is(err, fault.ErrCorrupt) {
			t.Fatalf("%q, %v", commit, err)
		}
	})
}
