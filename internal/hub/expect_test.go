package hub

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

const oldName = "org/before"

// renamed serves org/tiny, to which the hub redirects who asks for the name that it had before.
func renamed(t *testing.T, h *fakehub.Hub) (endpoint string) {
	return through(t, h, func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		if storage || !strings.Contains(r.URL.EscapedPath(), oldName) {
			return false
		}
		to := *r.URL
		to.Path, to.RawPath = strings.Replace(to.Path, oldName, testRepo, 1), strings.Replace(to.EscapedPath(), oldName, testRepo, 1)
		w.Header().Set("Location", to.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
}

// TestRenamed follows a repository to its new name. In the cache it has the name that was asked for, as in that of
// huggingface_hub.
func TestRenamed(t *testing.T) {
	h := fakehub.New()
	commit := h.Repo(testRepo).SetPrivate(true).Commit("main", tinyFiles())
	o := Options{Endpoint: renamed(t, h), Token: testToken, CacheDir: t.TempDir()}
	for _, offline := range []bool{false, true} {
		o.Offline = offline
		s, err := Resolve(t.Context(), Ref{Repo: oldName}, o)
		if err != nil {
			t.Fatal(err)
		}
		checkFiles(t, s, tinyFiles(), tinyWanted)
		if s.Revision != commit || s.Dir != filepath.Join(o.CacheDir, "models--org--before", "snapshots", commit) {
			t.Error(s.Revision, s.Dir)
		}
	}
}

// TestRevisions fetches by every kind of name that a commit has, and finds that again without a hub.
func TestRevisions(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	r := h.Repo(testRepo)
	r.Ref("refs/pr/1", commit)
	r.Branch("feature/x", commit)
	r.Tag("v1.0", commit)
	for _, name := range []string{"main", "refs/pr/1", "feature/x", "v1.0", commit[:7], commit} {
		for _, offline := range []bool{false, true} {
			o.Offline = offline
			s, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: name}, o)
			if err != nil {
				t.Fatal(err)
			}
			checkSnapshot(t, s, commit)
		}
		if b, err := os.ReadFile(filepath.Join(o.CacheDir, "models--org--tiny", "refs", filepath.FromSlash(name))); name != commit && string(b) != commit {
			t.Errorf("refs/%s: %q, %v", name, b, err)
		}
	}
}

// TestRefusedNow holds that what the hub refuses is an error also where the cache has it, and that HF_HUB_OFFLINE helps.
func TestRefusedNow(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	h.Repo(testRepo).SetPrivate(true)
	o.Token = ""
	if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	o.Offline = true
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
}

// TestOldBlobs uses files whose blobs are named by other ETags, as hubs gave them once, if they are the content.
func TestOldBlobs(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	ref := Ref{Repo: testRepo, Revision: commit}
	s, err := Resolve(t.Context(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(o, testRepo)
	put := func(name string, content []byte) {
		t.Helper()
		old, link := c.blob("d41d8cd98f00b204e9800998ecf8427e-2."+name), filepath.Join(s.Dir, name)
		if err := errors.Join(os.WriteFile(old, content, 0o666), os.RemoveAll(link), os.Symlink(filepath.Join("..", "..", "blobs", filepath.Base(old)),
			link)); err != nil {
			t.Skip("links need a right here: ", err)
		}
	}
	for _, name := range []string{shard1, "config.json"} {
		blob := c.blob(sha256Hex(files[name]))
		if name == "config.json" {
			blob = c.blob(gitSHA1(files[name]))
		}
		if err := os.Remove(blob); err != nil {
			t.Fatal(err)
		}
		h.ResetStats()
		put(name, files[name])
		if s, err = Resolve(t.Context(), ref, o); err != nil || h.Sent(testRepo+"/"+name) != 0 {
			t.Errorf("%s was fetched again, %v", name, err)
		}
		put(name, bytes.Repeat([]byte("x"), len(files[name])))
		for range 2 {
			if s, err = Resolve(t.Context(), ref, o); err != nil {
				t.Fatal(err)
			}
			if _, err = HashFiles(t.Context(), s, ""); err != nil && !errors.Is(err, fault.ErrCorrupt) {
				t.Error(err)
			}
		}
		if err != nil || h.Sent(testRepo+"/"+name) != int64(len(files[name])) {
			t.Errorf("%s, wrong: %d bytes fetched, %v", name, h.Sent(testRepo+"/"+name), err)
		}
		checkFiles(t, s, files, tinyWanted)
	}
}
