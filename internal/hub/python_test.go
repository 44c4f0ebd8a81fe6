//go:build hub

package hub

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/fakehub"
)

// python is the interpreter that has huggingface_hub.
func python(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("HUB_PYTHON"); p != "" {
		return p
	}
	p, err := filepath.Abs(filepath.FromSlash("../../.venv/hub/bin/python"))
	if err == nil {
		_, err = os.Stat(p)
	}
	if err != nil {
		t.Fatalf("no huggingface_hub: run by make hub, or set HUB_PYTHON: %v", err)
	}
	return p
}

// runClient runs a part of testdata/client.py on a cache, and decodes what it says.
func runClient(t *testing.T, o Options, part string, into any, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), "testdata/client.py", part)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "HF_HUB_CACHE=" + o.CacheDir, "HF_ENDPOINT=" + o.Endpoint,
		"HF_TOKEN=" + o.Token, "HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_TELEMETRY=1"}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("client.py %s: %v\n%s", part, err, stderr.String())
		return
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		t.Errorf("client.py %s says %q: %v", part, stdout.String(), err)
	}
}

// digests are those of the wanted files, as the client reports them.
func digests(files map[string][]byte, names []string) map[string]string {
	sums := map[string]string{}
	for _, name := range names {
		sums[name] = sha256Hex(files[name])
	}
	return sums
}

// found is what client.py says of a cache.
type found struct {
	Files    map[string]string   `json:"files"`
	Each     map[string]string   `json:"each"` // by hf_hub_download
	Absent   []string            `json:"absent"`
	Repos    map[string][]string `json:"repos"` // files by repository, as scan_cache_dir finds them
	Refs     []string            `json:"refs"`
	Warnings []string            `json:"warnings"`
	Verified int                 `json:"verified"`
	Bad      []string            `json:"bad"`
	Extra    []string            `json:"extra"`
}

// TestPythonFindsOurs has the Python library find what we have fetched, without a hub, and verify it with one.
func TestPythonFindsOurs(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	h.Repo(testRepo).Ref("refs/pr/1", commit)
	h.Repo(testRepo).Branch("feature/x", commit)
	for _, revision := range []string{"main", "refs/pr/1", "feature/x"} {
		if _, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: revision}, o); err != nil {
			t.Fatal(err)
		}
	}
	ms := o
	ms.Source = ModelScope
	if _, err := Resolve(t.Context(), mainRef, ms); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{"main", "refs/pr/1", "feature/x", commit} {
		var got found
		runClient(t, o, "find", &got, "HF_HUB_OFFLINE=1", "REVISION="+revision)
		want := digests(files, tinyWanted)
		if d := cmp.Diff(want, got.Files); d != "" {
			t.Errorf("%s: %s", revision, d)
		}
		if d := cmp.Diff(want, got.Each); d != "" {
			t.Errorf("%s: %s", revision, d)
		}
		if !slices.Contains(got.Absent, "added_tokens.json") || slices.Contains(got.Absent, "config.json") || slices.Contains(got.Absent, "tokenizer.model") {
			t.Errorf("absent: %q", got.Absent)
		}
		if len(got.Warnings) > 0 || len(got.Repos) != 2 || len(got.Repos[testRepo]) != len(tinyWanted) {
			t.Errorf("scan: %q, %q", got.Warnings, got.Repos)
		}
		if d := cmp.Diff([]string{"feature/x", "main", "refs/pr/1"}, got.Refs); d != "" {
			t.Error(d)
		}
	}
	var got found
	runClient(t, o, "verify", &got)
	if got.Verified != len(tinyWanted) || len(got.Bad) > 0 || len(got.Extra) > 0 {
		t.Errorf("verify: %+v", got)
	}

	// It adds what we did not want, and nothing else.
	h.ResetStats()
	runClient(t, o, "fetch", &got)
	for _, name := range tinyWanted {
		if n := h.Sent(testRepo + "/" + name); n > 0 {
			t.Errorf("%s was fetched again, %d bytes", name, n)
		}
	}
	if len(got.Files) != len(files) {
		t.Errorf("%d files of %d", len(got.Files), len(files))
	}
}

// TestWeFindPythons finds what the Python library has fetched, and asks only who may read the repository, which it does not note.
func TestWeFindPythons(t *testing.T) {
	files := tinyFiles()
	for _, env := range []string{"X=", "HF_HUB_DISABLE_SYMLINKS=1"} {
		h, _, commit, o := realHub(t, files)
		var got found
		runClient(t, o, "fetch", &got, env)
		h.ResetStats()
		for _, offline := range []bool{true, false} {
			o.Offline = offline
			s, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: commit}, o)
			if err != nil {
				t.Fatal(err)
			}
			checkFiles(t, s, files, tinyWanted)
			if _, err := HashFiles(t.Context(), s, ""); err != nil {
				t.Error(err)
			}
		}
		if list := h.Stats().Requests; len(list) != 1 || list[0].Path != "/api/models/"+testRepo {
			t.Errorf("%s: %+v", env, list)
		}
		o.Offline = true
		if s, err := Resolve(t.Context(), mainRef, o); err != nil || s.Revision != commit {
			t.Errorf("%v", err)
		}
	}
}

// TestBothAtOnce has several of both fetch into one cache: each blob is fetched once.
func TestBothAtOnce(t *testing.T) {
	files := with(tinyFiles(), map[string][]byte{shard1: shard("a", 8_000_000, 0)})
	h, s, _, o := realHub(t, files)
	h.Fault(fakehub.Rule{Fault: fakehub.Slow, Rate: 8 << 20, Path: testRepo + "/*", Server: "storage"})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var got found
			runClient(t, o, "fetch", &got)
			if len(got.Files) != len(files) {
				t.Errorf("python has %d files", len(got.Files))
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			got, err := Resolve(t.Context(), mainRef, o)
			if err != nil {
				t.Error(err)
				return
			}
			checkFiles(t, got, files, tinyWanted)
		})
	}
	wg.Wait()
	for name, b := range files {
		if n := h.Sent(testRepo + "/" + name); n != int64(len(b)) {
			t.Errorf("%s: %d bytes sent of %d", name, n, len(b))
		}
	}
	for _, name := range tree(t, o.CacheDir) {
		if strings.Contains(name, "incomplete") || strings.Contains(name, "llmexport-part") || strings.HasSuffix(name, ".tmp") {
			t.Errorf("left %s", name)
		}
	}
	s.Close()
}

// TestRenamedBoth has both find what the other has fetched of a repository under the name that it had before.
func TestRenamedBoth(t *testing.T) {
	files := tinyFiles()
	h := fakehub.New()
	h.Repo(testRepo).Commit("main", files)
	o := Options{Endpoint: renamed(t, h), Token: testToken, CacheDir: t.TempDir()}
	ref := Ref{Repo: oldName}
	if _, err := Resolve(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
	var got found
	runClient(t, o, "find", &got, "HF_HUB_OFFLINE=1", "REPO="+oldName)
	if d := cmp.Diff(digests(files, tinyWanted), got.Files); d != "" {
		t.Error(d)
	}
	o.CacheDir = t.TempDir()
	runClient(t, o, "fetch", &got, "REPO="+oldName)
	o.Offline = true
	s, err := Resolve(t.Context(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, s, files, tinyWanted)
}

// TestPythonCannotReach has both use what we have fetched when the hub is gone.
func TestPythonCannotReach(t *testing.T) {
	files := tinyFiles()
	_, s, _, o := realHub(t, files)
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	s.Close()
	var got found
	runClient(t, o, "fetch", &got)
	if d := cmp.Diff(digests(files, tinyWanted), got.Files); d != "" {
		t.Error(d)
	}
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Error(err)
	}
}
