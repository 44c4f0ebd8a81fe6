package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

const shard1 = "model-00001-of-00002.safetensors"

var mainRef = Ref{Repo: testRepo}

// checkSnapshot compares names and bytes with what the hub serves.
func checkSnapshot(t *testing.T, h *fakeHub, s *Snapshot) {
	t.Helper()
	var names []string
	for _, f := range s.Files {
		names = append(names, f.Name)
		b, err := os.ReadFile(filepath.Join(s.Dir, f.Name))
		if err != nil || !bytes.Equal(b, h.files[f.Name]) || f.Size != int64(len(b)) {
			t.Errorf("%s: %d bytes, listed %d, %v", f.Name, len(b), f.Size, err)
		}
		if f.SHA256 != "" && f.SHA256 != sha256Hex(b) {
			t.Errorf("%s: SHA-256 %s", f.Name, f.SHA256)
		}
	}
	if d := cmp.Diff(wantedFiles, names); d != "" {
		t.Error(d)
	}
	if s.Repo != testRepo || s.Revision != testCommit {
		t.Errorf("repository %s, revision %s", s.Repo, s.Revision)
	}
}

// tree lists the files below dir that are no locks and no .incomplete files.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(p, ".lock") && !strings.HasSuffix(p, ".incomplete") {
			rel, _ := filepath.Rel(dir, p)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestResolveDownloads(t *testing.T) {
	h := newFakeHub(t)
	h.needToken = true
	o := h.options(t)
	last := map[string]int64{}
	o.Progress = func(file string, done, total int64) {
		if done < last[file] || done > total || total != int64(len(h.files[file])) {
			t.Errorf("%s: %d after %d of %d", file, done, last[file], total)
		}
		last[file] = done
	}
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, h, s)
	for _, name := range wantedFiles {
		if last[name] != int64(len(h.files[name])) {
			t.Errorf("%s: progress ended at %d", name, last[name])
		}
	}
	for _, name := range []string{".bin", "consolidated", "onnx", ".log"} {
		if got := h.seen(name); len(got) != 0 {
			t.Errorf("asked for %v", got)
		}
	}

	// The layout is the one of huggingface_hub.
	repo := filepath.Join(o.CacheDir, "models--org--tiny")
	if b, err := os.ReadFile(filepath.Join(repo, "refs", "main")); string(b) != testCommit {
		t.Errorf("refs/main is %q, %v", b, err)
	}
	for name, blob := range map[string]string{"config.json": gitSHA1(h.files["config.json"]), shard1: sha256Hex(h.files[shard1])} {
		if _, err := os.Stat(filepath.Join(repo, "blobs", blob)); err != nil {
			t.Error(err)
		}
		link, err := os.Readlink(filepath.Join(s.Dir, name))
		if want := filepath.Join("..", "..", "blobs", blob); err == nil && link != want {
			t.Errorf("%s -> %s, want %s", name, link, want)
		}
	}

	// A branch is looked up again, a commit is not; neither downloads again.
	before := len(h.seen(""))
	for _, c := range []struct {
		ref      Ref
		offline  bool
		requests int
	}{
		{mainRef, false, 1},
		{Ref{Repo: testRepo, Revision: testCommit}, false, 0},
		{Ref{Repo: testRepo, Revision: testCommit}, true, 0},
		{mainRef, true, 0},
	} {
		o.Offline = c.offline
		s, err := Resolve(t.Context(), c.ref, o)
		if err != nil {
			t.Fatal(err)
		}
		checkSnapshot(t, h, s)
		if n := len(h.seen("")) - before; n != c.requests {
			t.Errorf("%v, offline %t: %d requests, want %d", c.ref, c.offline, n, c.requests)
		}
		before = len(h.seen(""))
	}
}

func TestResolveRefs(t *testing.T) {
	h := newFakeHub(t)
	o := h.options(t)
	s, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: "refs/pr/1"}, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, h, s)
	b, err := os.ReadFile(filepath.Join(o.CacheDir, "models--org--tiny", "refs", "refs", "pr", "1"))
	if string(b) != testCommit {
		t.Errorf("%q, %v", b, err)
	}
}

// TestResolveFallsBack uses the cache when the hub cannot be reached.
func TestResolveFallsBack(t *testing.T) {
	h := newFakeHub(t)
	o := h.options(t)
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	h.hub.Close()
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, h, s)
	o.CacheDir = t.TempDir()
	if _, err := Resolve(t.Context(), mainRef, o); err == nil || !strings.Contains(err.Error(), "cache does not help") {
		t.Error(err)
	}
}

// TestResolveOfflineForeignCache reads a snapshot that has no record of ours.
func TestResolveOfflineForeignCache(t *testing.T) {
	h := newFakeHub(t)
	o := h.options(t)
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(o.CacheDir, "models--org--tiny", ".llmexport")); err != nil {
		t.Fatal(err)
	}
	o.Offline = true
	if got, err := Resolve(t.Context(), mainRef, o); err != nil || len(got.Files) != len(s.Files) || got.Revision != testCommit {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{shard1, indexFile, "config.json"} {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil {
			t.Fatal(err)
		}
		want := name
		if name == indexFile {
			want = "model.safetensors"
		}
		if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want+" is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if _, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: "dev"}, o); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if n := len(h.seen("api")); n != 1 {
		t.Errorf("%d list requests", n)
	}
}

// TestRecordedSnapshotIsChecked downloads a file that has gone from a complete snapshot.
func TestRecordedSnapshotIsChecked(t *testing.T) {
	h := newFakeHub(t)
	o := h.options(t)
	ref := Ref{Repo: testRepo, Revision: testCommit}
	s, err := Resolve(t.Context(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(s.Dir, shard1), 10); err != nil {
		t.Fatal(err)
	}
	if s, err = Resolve(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, h, s)
	if n := len(h.seen("storage:/" + shard1)); n != 2 {
		t.Errorf("%d downloads", n)
	}
}

func TestResolveLocal(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors", "pytorch_model.bin"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Resolve(t.Context(), Ref{Path: dir}, Options{})
	want := &Snapshot{Dir: dir, Files: []File{{Name: "config.json", Size: 11}, {Name: "model.safetensors", Size: 17}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, ref := range []Ref{{Path: filepath.Join(dir, "none")}, {Path: t.TempDir()}, {Path: dir, Repo: "a/b"}, {Path: filepath.Join(dir, "config.json")}} {
		if s, err := Resolve(t.Context(), ref, Options{}); err == nil || s != nil {
			t.Errorf("%+v: %v", ref, s)
		}
	}
}

// TestTokenStaysHome also covers storage on another port of the same machine, which is the fake's.
func TestTokenStaysHome(t *testing.T) {
	h := newFakeHub(t)
	withToken := 0
	h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		if r.Header.Get("Authorization") == "Bearer "+testToken && !storage {
			withToken++
		}
		return false
	}
	o := h.options(t)
	o.Parallel = 1
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	if n := len(h.seen("")) - len(h.seen("storage:")); withToken != n {
		t.Errorf("token on %d of %d requests to the hub", withToken, n)
	}
	for _, s := range []string{o.String(), fmt.Sprintf("%v", o), fmt.Sprintf("%+v", o), fmt.Sprintf("%#v", o), fmt.Sprint(o)} {
		if strings.Contains(s, testToken) {
			t.Errorf("printed: %s", s)
		}
	}
}

// TestLogHasNoSecrets reads what a troubled download logs.
func TestLogHasNoSecrets(t *testing.T) {
	h := newFakeHub(t)
	h.storage.Close()
	var log bytes.Buffer
	ctx := zerolog.New(&log).WithContext(t.Context())
	o := h.options(t)
	o.Parallel = 1
	_, err := Resolve(ctx, mainRef, o)
	if err == nil {
		t.Fatal("no error without storage")
	}
	text := log.String() + err.Error()
	if !strings.Contains(text, "trying again") || strings.Contains(text, "secret") {
		t.Error(text)
	}
}

func TestRedirectRefused(t *testing.T) {
	for name, to := range map[string]string{"loop": "?again", "scheme": "ftp://x/y", "file": "file:///etc/passwd"} {
		h := newFakeHub(t)
		h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
			http.Redirect(w, r, to, http.StatusFound)
			return true
		}
		if _, err := Resolve(t.Context(), mainRef, h.options(t)); err == nil || !strings.Contains(err.Error(), "redirects") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResolveCancelled(t *testing.T) {
	h := newFakeHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		if !storage {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(h.files[filepath.Base(r.URL.Path)])))
		_, _ = w.Write(h.files[filepath.Base(r.URL.Path)][:1000])
		w.(http.Flusher).Flush()
		cancel()
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
		}
		return true
	}
	o := h.options(t)
	o.Parallel = 1
	s, err := Resolve(ctx, mainRef, o)
	if !errors.Is(err, context.Canceled) || s != nil {
		t.Errorf("got %v", err)
	}
	for _, name := range tree(t, o.CacheDir) {
		if strings.Contains(name, "refs/") || strings.Contains(name, ".llmexport") || strings.Contains(name, "safetensors") && !strings.Contains(name, "index") {
			t.Errorf("left %s", name)
		}
	}
	h.answer = nil
	if s, err = Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, h, s)
}
