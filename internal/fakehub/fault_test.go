package fakehub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

const weights = "org/tiny/model.safetensors"

// content is a file that repeats at no power of two.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// tinyHub serves one repository with a file in storage and one on the hub.
func tinyHub(t *testing.T, o Options) (*Hub, *Server, []byte) {
	t.Helper()
	h := New(o)
	b := content(1 << 20)
	h.Repo("org/tiny").Commit("main", map[string][]byte{"model.safetensors": b, "config.json": []byte("{}")})
	return h, h.Start(t), b
}

// get asks once, follows redirects as the standard client does, and reads to the end.
func get(t *testing.T, url, ranges string) (*http.Response, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return resp, b, err
}

// TestFaults shows every fault as a client meets it, and that the request after it is served well.
func TestFaults(t *testing.T) {
	const path = "/org/tiny/resolve/main/model.safetensors"
	for _, tc := range []struct {
		name   string
		rule   Rule
		ranges string
		check  func(t *testing.T, resp *http.Response, got, want []byte, err error)
	}{
		{name: "cut", rule: Rule{Fault: Cut, After: 1000}, check: func(t *testing.T, _ *http.Response, got, want []byte, err error) {
			if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, want[:1000]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "cut at once", rule: Rule{Fault: Cut}, check: func(t *testing.T, _ *http.Response, _, _ []byte, err error) {
			if err == nil {
				t.Error("no error")
			}
		}},
		{name: "reset", rule: Rule{Fault: Reset, After: 1000, Server: "storage"}, check: func(t *testing.T, _ *http.Response, got, _ []byte, err error) {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) || len(got) > 1000 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "lost", rule: Rule{Fault: Lost, Server: "storage"}, check: func(t *testing.T, _ *http.Response, _, _ []byte, err error) {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}},
		{name: "flip", rule: Rule{Fault: Flip, After: 5000}, check: func(t *testing.T, _ *http.Response, got, want []byte, err error) {
			if err != nil || len(got) != len(want) || got[5000] != want[5000]^1 || !bytes.Equal(got[5001:], want[5001:]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "flip in a range", rule: Rule{Fault: Flip, After: 5000}, ranges: "bytes=4990-5009",
			check: func(t *testing.T, _ *http.Response, got, want []byte, err error) {
				if err != nil || len(got) != 20 || got[10] != want[5000]^1 || got[9] != want[4999] {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}},
		{name: "long", rule: Rule{Fault: Long, Bytes: 7}, check: func(t *testing.T, resp *http.Response, got, want []byte, err error) {
			if !errors.Is(err, io.ErrUnexpectedEOF) || resp.ContentLength != int64(len(want)+7) || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "short", rule: Rule{Fault: Short, Bytes: 7}, check: func(t *testing.T, _ *http.Response, got, want []byte, err error) {
			if err != nil || !bytes.Equal(got, want[:len(want)-7]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "changed", rule: Rule{Fault: Changed}, check: func(t *testing.T, resp *http.Response, got, want []byte, err error) {
			if err != nil || len(got) != len(want) || got[0] == want[0] || strings.Trim(resp.Header.Get("ETag"), `"`) == memory(want).sha256 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "range ignored", rule: Rule{Fault: IgnoreRange}, ranges: "bytes=100-", check: func(t *testing.T, resp *http.Response, got, want []byte, err error) {
			if err != nil || resp.StatusCode != 200 || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "wrong range", rule: Rule{Fault: WrongRange}, ranges: "bytes=100-199", check: func(t *testing.T, resp *http.Response, got, want []byte, err error) {
			if err != nil || resp.Header.Get("Content-Range") != fmt.Sprintf("bytes 101-199/%d", len(want)) || !bytes.Equal(got, want[100:200]) {
				t.Errorf("%d bytes, %v, %v", len(got), err, resp.Header)
			}
		}},
		{name: "endless", rule: Rule{Fault: Endless}, check: func(t *testing.T, resp *http.Response, got, want []byte, err error) {
			if err != nil || resp.ContentLength >= 0 || len(got) != 4<<20 || !bytes.HasPrefix(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "slow", rule: Rule{Fault: Slow, Rate: 20 << 20}, check: func(t *testing.T, _ *http.Response, got, want []byte, err error) {
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}},
		{name: "too many", rule: Rule{Fault: Status, Status: 429, RetryAfter: "3"}, check: func(t *testing.T, resp *http.Response, _, _ []byte, err error) {
			if err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3" {
				t.Errorf("%v %v", resp, err)
			}
		}},
		{name: "unavailable in storage", rule: Rule{Fault: Status, Status: 503, Server: "storage"},
			check: func(t *testing.T, resp *http.Response, _, _ []byte, err error) {
				if err != nil || resp.StatusCode != 503 {
					t.Errorf("%v %v", resp, err)
				}
			}},
		{name: "expired", rule: Rule{Fault: Expired, Server: "storage"}, check: func(t *testing.T, resp *http.Response, got, _ []byte, err error) {
			if err != nil || resp.StatusCode != 403 || !bytes.Contains(got, []byte("Request has expired")) {
				t.Errorf("%v %v", resp, err)
			}
		}},
		{name: "loop", rule: Rule{Fault: RedirectLoop, Times: 100}, check: func(t *testing.T, _ *http.Response, _, _ []byte, err error) {
			if err == nil || !strings.Contains(err.Error(), "stopped after 10 redirects") {
				t.Error(err)
			}
		}},
		{name: "elsewhere", rule: Rule{Fault: Redirect, Location: "http://127.0.0.1:1{path}"}, check: func(t *testing.T, _ *http.Response, _, _ []byte, err error) {
			if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1"+path) {
				t.Error(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, s, want := tinyHub(t, Options{})
			tc.rule.Path = weights
			if tc.rule.Times == 0 {
				tc.rule.Times = 1
			}
			h.Fault(tc.rule)
			resp, got, err := get(t, s.URL+path, tc.ranges)
			tc.check(t, resp, got, want, err)
			if h.Met()[0] == 0 {
				t.Error("no request met the rule")
			}
			h.ClearFaults()
			if _, got, err = get(t, s.URL+path, ""); err != nil || !bytes.Equal(got, want) {
				t.Errorf("afterwards: %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestStall leaves the connection open after some bytes.
func TestStall(t *testing.T) {
	h, s, want := tinyHub(t, Options{})
	h.Fault(Rule{Fault: Stall, After: 1000, Path: weights})
	resp, err := http.Get(s.URL + "/org/tiny/resolve/main/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 1000)
	if _, err := io.ReadFull(resp.Body, b); err != nil || !bytes.Equal(b, want[:1000]) {
		t.Fatal(err)
	}
	more := make(chan error, 1)
	go func() {
		_, err := resp.Body.Read(b)
		more <- err
	}()
	select {
	case err := <-more:
		t.Fatalf("the answer went on: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Close()
	if err := <-more; err == nil {
		t.Error("the answer went on when the server ended")
	}
}

// TestFaultyUpload cuts a request, and loses the answer to one that was done.
func TestFaultyUpload(t *testing.T) {
	h, s, _ := tinyHub(t, Options{})
	url := s.URL + "/api/models/org/tiny/commit/main"
	first := h.Repo("org/tiny").Head("main")
	send := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(ndjson("", putFile("x", strings.Repeat("x", 1000)))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+Token)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		return nil
	}
	h.Fault(Rule{Fault: CutRequest, After: 100, Path: "*/commit/*", Times: 1}, Rule{Fault: Lost, Path: "*/commit/*", Times: 1})
	if err := send(); err == nil || h.Repo("org/tiny").Head("main") != first {
		t.Errorf("cut: %v", err)
	}
	if err := send(); err == nil || h.Repo("org/tiny").Head("main") == first {
		t.Errorf("lost: %v, or no commit", err)
	}
	if fmt.Sprint(h.Met()) != "[1 1]" {
		t.Errorf("met %v", h.Met())
	}
}

// TestModelScopeFaults has the redirect pass and the content go wrong, by that API too.
func TestModelScopeFaults(t *testing.T) {
	h, s, want := tinyHub(t, Options{})
	h.Fault(Rule{Fault: Flip, Path: weights, Times: 1}, Rule{Fault: Flip, Path: "org/tiny/config.json", Times: 1})
	for _, c := range []struct {
		file string
		want []byte
	}{{"model.safetensors", want}, {"config.json", []byte("{}")}} {
		_, got, err := get(t, s.URL+"/api/v1/models/org/tiny/repo?Revision=master&FilePath="+c.file, "")
		if err != nil || len(got) != len(c.want) || got[0] != c.want[0]^1 {
			t.Errorf("%s: %d bytes, %v", c.file, len(got), err)
		}
	}
}
