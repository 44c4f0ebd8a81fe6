//go:build hub

package fakehub

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// python is the interpreter that has huggingface_hub.
func python(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("HUB_PYTHON"); p != "" {
		return p
	}
	p, err := filepath.Abs(filepath.FromSlash("../../.venv/hub/bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("no huggingface_hub: run by make hub, or set HUB_PYTHON: %v", err)
	}
	return p
}

// client runs testdata/client.py and gives what it says, step by step.
func client(t *testing.T, s *Server, home, part string, env ...string) []map[string]any {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), "testdata/client.py", part)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HF_HOME=" + home, "HF_ENDPOINT=" + s.URL, "HF_TOKEN=" + Token,
		"HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_TELEMETRY=1"}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("client.py %s: %v\n%s\n%s", part, err, stdout.String(), stderr.String())
	}
	var steps []map[string]any
	lines := bufio.NewScanner(&stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var step map[string]any
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			t.Fatalf("client.py %s says %q: %v", part, lines.Text(), err)
		}
		steps = append(steps, step)
	}
	return steps
}

// digests gives the digests of a revision's files, as the client reports them.
func digests(r *Repo, revision string) map[string]any {
	sums := map[string]any{}
	for name, b := range r.Files(revision) {
		sums[name] = memory(b).sha256
	}
	return sums
}

// TestPython holds the hub to the client it is for, in both directions.
func TestPython(t *testing.T) {
	h := New(Options{PageSize: 3})
	h.AddToken("hf_stranger", User{Name: "stranger", Role: Stranger})
	h.AddToken("hf_reader", User{Name: "reader", Role: Reader})
	tiny := h.Repo("org/tiny")
	first := tiny.Commit("main", map[string][]byte{"config.json": []byte("{}"), "old.txt": []byte("old")})
	tiny.Tag("v1", first)
	tiny.Ref("refs/pr/1", first)
	second := tiny.Commit("main", map[string][]byte{"README.md": []byte("---\nlicense: apache-2.0\n---\n"), "old.txt": nil,
		"model.safetensors": bytes.Repeat([]byte("weights "), 1<<18), "sub/a/b.txt": []byte("b"), "sub/name with space+é.txt": []byte("c"), "empty.txt": {}})
	tiny.Branch("side", first)
	h.Repo("org/private").SetPrivate(true).Commit("main", map[string][]byte{"config.json": []byte("{}")})
	h.Repo("org/gated").SetGated("manual").Commit("main", map[string][]byte{"config.json": []byte("{}")})
	s := h.Start(t)
	home := t.TempDir()

	steps := map[string]map[string]any{}
	for _, step := range client(t, s, home, "read") {
		steps[step["step"].(string)] = step
		if step["step"] == "revision" {
			if diff := cmp.Diff(digests(tiny, first), step["files"]); diff != "" {
				t.Errorf("%s: %s", step["revision"], diff)
			}
		}
	}
	for _, c := range []struct {
		step, key string
		want      any
	}{
		{"info", "sha", second},
		{"info", "license", "apache-2.0"},
		{"snapshot", "files", digests(tiny, "main")},
		{"tree", "paths", toAny([]string{"README.md", "config.json", "empty.txt", "model.safetensors", "sub", "sub/a", "sub/a/b.txt", "sub/name with space+é.txt"})},
		{"refs", "branches", map[string]any{"main": second, "side": first}},
		{"refs", "tags", map[string]any{"v1": first}},
		{"refs", "prs", []any{"refs/pr/1"}},
		{"commits", "ids", []any{second, first}},
		{"paths", "paths", []any{"config.json", "sub"}},
		{"again", "link", memory(tiny.Files("main")["model.safetensors"]).sha256},
		{"user", "name", "tester"},
	} {
		if diff := cmp.Diff(c.want, steps[c.step][c.key]); diff != "" {
			t.Errorf("%s %s: %s", c.step, c.key, diff)
		}
	}
	if n := len(h.Requests(http.MethodGet, "/objects/*")); n != 1 {
		t.Errorf("storage was asked %d times for one file", n)
	}

	before := len(h.Stats().Requests)
	for _, step := range client(t, s, home, "offline", "HF_HUB_OFFLINE=1") {
		if diff := cmp.Diff(digests(tiny, "main"), step["files"]); diff != "" {
			t.Errorf("offline: %s", diff)
		}
	}
	if n := len(h.Stats().Requests); n != before {
		t.Errorf("the client made %d requests offline", n-before)
	}
	if h.Leaked() {
		t.Error("a token reached storage")
	}
}

// TestPythonWrites uploads by basic transfer and in three parts, and commits.
func TestPythonWrites(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		h := New(Options{Dir: dir})
		h.AddToken("hf_reader", User{Name: "reader", Role: Reader})
		s := h.Start(t)
		steps := client(t, s, t.TempDir(), "write", "HF_HUB_DISABLE_XET=1")
		made := steps[len(steps)-1]
		repo := h.Repo("org/made")
		if diff := cmp.Diff(digests(repo, "main"), made["files"]); diff != "" {
			t.Errorf("files: %s", diff)
		}
		want := []string{".gitattributes", "COPY.md", "README.md", "copy.safetensors", "empty.txt", "model.safetensors", "new.bin",
			"small.safetensors", "sub/second.bin"}
		if diff := cmp.Diff(toAny(want), made["listed"]); diff != "" {
			t.Errorf("listed: %s", diff)
		}
		files := repo.Files("main")
		if !bytes.Equal(files["copy.safetensors"], files["model.safetensors"]) || len(files["model.safetensors"]) != 20<<20 {
			t.Error("the copy is not the file")
		}
		st := h.Stats()
		// small.safetensors, model.safetensors, second.bin and new.bin, of which two are larger than a part.
		if st.LFSUploads != 4 || st.Leaked != 0 {
			t.Errorf("%d uploads, want 4; %d requests with a token at storage", st.LFSUploads, st.Leaked)
		}
		if parts := h.Requests(http.MethodPut, "/uploads/*/*/*/*"); len(parts) != 3+2 {
			t.Errorf("%d parts, want 5", len(parts))
		}
		// On main also the one that made the repository; elsewhere one on a branch and one in a pull request.
		if n := len(repo.History("main")); n != 5 || st.Commits != 6 {
			t.Errorf("%d commits on main, want 5; %d by the client, want 6", n, st.Commits)
		}
	}
}

// TestPythonXet shows what becomes of hf_xet: downloads fall back, as no answer names a Xet hash; uploads do not.
func TestPythonXet(t *testing.T) {
	h := New()
	h.Repo("org/tiny").Commit("main", map[string][]byte{"model.safetensors": []byte("weights")})
	s := h.Start(t)
	steps := client(t, s, t.TempDir(), "xet")
	if steps[0]["available"] != true {
		t.Skip("hf_xet is not installed")
	}
	t.Logf("an upload by hf_xet: %v", steps[1]["error"])
	if steps[1]["error"] == "" || h.Stats().LFSUploads != 0 {
		t.Errorf("an upload by hf_xet gave %v", steps[1])
	}
	if got := h.Sent("org/tiny/model.safetensors"); got != int64(len("weights")) {
		t.Errorf("sent %d bytes", got)
	}
	for _, r := range h.Stats().Requests {
		if strings.Contains(r.Path, "xet-read-token") {
			t.Errorf("the client asked for %s", r.Path)
		}
	}
}

func toAny(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// TestModelScope holds the other API to its client, modelscope_hub.
func TestModelScope(t *testing.T) {
	if err := exec.CommandContext(t.Context(), python(t), "-c", "import modelscope_hub").Run(); err != nil {
		t.Skip("modelscope_hub is not installed")
	}
	h := New()
	s := h.Start(t)
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python(t), "testdata/modelscope.py", s.URL, Token)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if st := h.Stats(); st.LFSUploads != 1 || st.Commits != 2 {
		t.Errorf("%d uploads, want 1; %d commits, want 2", st.LFSUploads, st.Commits)
	}
	if got := len(h.Repo("org/made").Files("main")["model.safetensors"]); got != 3<<20 {
		t.Errorf("%d bytes arrived", got)
	}
}
