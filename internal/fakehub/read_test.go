package fakehub

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAnswers looks at heads that clients go by.
func TestAnswers(t *testing.T) {
	h := New(Options{SignedFor: time.Nanosecond})
	r := h.Repo("org/tiny")
	id := r.Commit("main", map[string][]byte{"config.json": []byte("{}"), "m.safetensors": []byte("weights")})
	h.Repo("org/gated").SetGated("auto").Commit("main", map[string][]byte{"config.json": []byte("{}")})
	s := h.Start(t)

	status, head, _ := ask(t, "HEAD", s.URL+"/org/tiny/resolve/main/config.json", "", "")
	want := `"` + gitID("blob", []byte("{}")) + `"`
	if status != 307 || !strings.HasPrefix(head.Get("Location"), "/api/resolve-cache/models/org/tiny/"+id+"/config.json?") ||
		head.Get("X-Linked-Etag") != want || head.Get("X-Repo-Commit") != id {
		t.Errorf("small: %d %v", status, head)
	}
	status, head, _ = ask(t, "GET", s.URL+head.Get("Location"), "", "")
	if status != 200 || head.Get("ETag") != want || head.Get("Content-Length") != "2" {
		t.Errorf("small: %d %v", status, head)
	}
	status, head, _ = ask(t, "HEAD", s.URL+"/org/tiny/resolve/main/m.safetensors", "", "")
	if status != 302 || !strings.HasPrefix(head.Get("Location"), s.StorageURL) || head.Get("X-Linked-Size") != "7" ||
		head.Get("X-Linked-Etag") != `"`+memory([]byte("weights")).sha256+`"` {
		t.Errorf("large: %d %v", status, head)
	}
	if status, _, _ = ask(t, "GET", head.Get("Location"), "", ""); status != 403 {
		t.Errorf("an address that has expired: %d", status)
	}

	status, head, _ = ask(t, "GET", s.URL+"/api/models/org/tiny/revision/main?blobs=true", "", "")
	req, _ := http.NewRequest("GET", s.URL+"/api/models/org/tiny/revision/main?blobs=true", nil)
	req.Header.Set("If-None-Match", head.Get("ETag"))
	for _, want := range []int{304, 200} {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if status != 200 || resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
		r.Commit("main", map[string][]byte{"new": nil, "config.json": []byte("{} ")})
	}

	for path, want := range map[string]string{
		"/org/none/resolve/main/x":              "401 RepoNotFound",
		"/org/tiny/resolve/none/x":              "404 RevisionNotFound",
		"/org/tiny/resolve/main/x":              "404 EntryNotFound",
		"/org/gated/resolve/main/config.json":   "401 GatedRepo",
		"/api/models/org/none":                  "401 RepoNotFound",
		"/api/models/org/tiny/tree/main/none":   "404 EntryNotFound",
		"/api/models/org/tiny/revision/a%2Fb":   "404 RevisionNotFound",
		"/api/models/org/tiny/xet-write-token/": "404 ",
	} {
		if status, head, _ := ask(t, "GET", s.URL+path, "", ""); fmt.Sprint(status, " ", head.Get("X-Error-Code")) != want || head.Get("X-Error-Message") == "" {
			t.Errorf("%s: %d %v", path, status, head)
		}
	}
	if status, _, _ := ask(t, "GET", s.URL+"/api/models/org/none", Token, ""); status != 404 {
		t.Errorf("with a token: %d", status)
	}
	if status, head, _ := ask(t, "GET", s.URL+"/api/models/org/tiny", "hf_wrong", ""); status != 401 ||
		head.Get("X-Error-Message") != "Invalid credentials in Authorization header" {
		t.Errorf("a wrong token: %d %v", status, head)
	}
}

// TestCommitDisk serves a file that nobody has read, under the digest given.
func TestCommitDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.safetensors"), content(5<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	given := strings.Repeat("ab", 32)
	sums, err := ReadSums(strings.NewReader(given + "  ./m.safetensors\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := New()
	if _, err := h.Repo("org/tiny").CommitDir("main", dir, sums); err != nil {
		t.Fatal(err)
	}
	s := h.Start(t)
	_, head, _ := ask(t, "HEAD", s.URL+"/org/tiny/resolve/main/m.safetensors", "", "")
	if head.Get("X-Linked-Etag") != strconv.Quote(given) {
		t.Errorf("%v", head)
	}
	if _, b, err := get(t, s.URL+"/org/tiny/resolve/main/m.safetensors", "bytes=4194300-"); err != nil || !bytes.Equal(b, content(5 << 20)[4194300:]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for _, bad := range []string{"x", given, given + " ", given + "x  a", "\n"} {
		if _, err := ReadSums(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestGitNames compares names of trees and commits with those that git 2.39 gave to the same files.
func TestGitNames(t *testing.T) {
	r := New().Repo("org/tiny")
	id := r.Commit("main", map[string][]byte{"a/b/c.txt": []byte("hello"), "a.txt": []byte("x"), "a-b/z": []byte("y"), "a/empty": {},
		"m.safetensors": []byte("weights")})
	if id != "ec5f54a28e024fbaef7de9828788a8c8c874fd3d" {
		t.Errorf("commit %s", id)
	}
	want := map[string]string{"": "f8c27a7644a404d697f938cac745d5cebd510b52", "a-b": "2dd821e08cc77fb93ebccea4dd6300846e324592",
		"a": "297d9619aa6059f4b106c6bd1f1be8daed5e304a", "a/b": "0004d4b9b2f0d667f93d3c99d72d264430db680e"}
	if diff := cmp.Diff(want, r.at("main").trees); diff != "" {
		t.Error(diff)
	}
}

// FuzzReadSums gives digests that are digests, and nothing with an error.
func FuzzReadSums(f *testing.F) {
	f.Add(strings.Repeat("ab", 32) + "  a\n" + strings.Repeat("0", 64) + " *b/c\n")
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {
		sums, err := ReadSums(strings.NewReader(s))
		if err != nil && sums != nil {
			t.Fatal("results with an error")
		}
		for name, sum := range sums {
			if !digestPattern.MatchString(sum) || len(unhex(sum)) != 32 {
				t.Fatalf("%q: %q", name, sum)
			}
		}
	})
}
