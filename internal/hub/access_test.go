package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// TestAccess tells apart why a hub, which is held to the Python client, gives nothing.
func TestAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	files := tinyFiles()
	h, _, _, o := realHub(t, files)
	h.AddToken("hf_stranger", fakehub.User{Name: "stranger", Role: fakehub.Stranger})
	h.Repo("org/private").SetPrivate(true).Commit("main", files)
	h.Repo("org/gated").SetGated("manual").Commit("main", files)
	h.Repo("org/auto").SetGated("auto").Commit("main", files)
	for _, c := range []struct {
		name, repo, revision, token string
		gated                       string
		private                     bool
		is                          error
		want                        string
	}{
		{"public", "org/tiny", "", "", "", false, nil, ""},
		{"gated, may", "org/gated", "", fakehub.Token, "manual", false, nil, ""},
		{"gated by itself, may", "org/auto", "", fakehub.Token, "auto", false, nil, ""},
		{"private, may", "org/private", "", fakehub.Token, "", true, nil, ""},
		{"gated, no token", "org/gated", "", "", "", false, fs.ErrPermission, "is gated: accept its terms at http"},
		{"gated, no access", "org/gated", "", "hf_stranger", "", false, fs.ErrPermission, "account has no access: accept"},
		{"private, no token", "org/private", "", "", "", false, fs.ErrPermission, "or it is private: check the name, or set HF_TOKEN"},
		{"private, no access", "org/private", "", "hf_stranger", "", false, fs.ErrNotExist, "may not see it"},
		{"absent, no token", "org/none", "", "", "", false, fs.ErrPermission, "no such repository"},
		{"absent", "org/none", "", fakehub.Token, "", false, fs.ErrNotExist, "no such repository"},
		{"no such revision", "org/tiny", "none", fakehub.Token, "", false, fs.ErrNotExist, "no such branch, tag or commit"},
		{"wrong token", "org/tiny", "", "hf_wrong", "", false, fs.ErrPermission,
			"the token is not valid: it may have expired or been withdrawn; set another HF_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := o
			o.Token, o.CacheDir = c.token, t.TempDir()
			s, err := Resolve(t.Context(), Ref{Repo: c.repo, Revision: c.revision}, o)
			if c.is == nil {
				if err != nil {
					t.Fatal(err)
				}
				if s.Gated != c.gated || s.Private != c.private || !s.Listed {
					t.Errorf("gated %q, private %t", s.Gated, s.Private)
				}
				// The cache remembers it.
				o.Offline = true
				if again, err := Resolve(t.Context(), Ref{Repo: c.repo}, o); err != nil || again.Gated != c.gated || again.Private != c.private || !again.Listed {
					t.Errorf("%+v, %v", again, err)
				}
				return
			}
			status := (*StatusError)(nil)
			if !errors.Is(err, c.is) || !errors.As(err, &status) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.repo) ||
				c.token != "" && strings.Contains(err.Error(), c.token) {
				t.Errorf("%v", err)
			}
			for _, name := range tree(t, o.CacheDir) {
				if strings.Contains(name, "safetensors") && !strings.Contains(name, "index") {
					t.Errorf("left %s", name)
				}
			}
		})
	}
	for _, c := range []struct {
		rule fakehub.Rule
		want string
	}{
		{fakehub.Rule{Fault: fakehub.Status, Status: 429, RetryAfter: "0"}, "429: too many requests"},
		{fakehub.Rule{Fault: fakehub.Status, Status: 503}, "the hub has a problem"},
		{fakehub.Rule{Fault: fakehub.Status, Status: 451}, "for legal reasons"},
	} {
		h.ClearFaults()
		h.Fault(c.rule)
		o.CacheDir = t.TempDir()
		if _, err := Resolve(t.Context(), mainRef, o); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), " (Too Many Requests)", ""), c.want) {
			t.Errorf("%v: %v", c.rule.Status, err)
		}
	}
	h.ClearFaults()
	o.Offline = true
	if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "while online") {
		t.Error(err)
	}
}

func TestParseGated(t *testing.T) {
	for text, want := range map[string]string{"false": "", "true": "manual", `"auto"`: "auto", `"manual"`: "manual", "null": "unknown", `"é"`: "manual", "7": "error", "{}": "error"} {
		b := []byte(`{"sha":"` + testCommit + `","private":false,"gated":` + text + `,"siblings":[{"rfilename":"model.safetensors","size":1,"blobId":"` + testCommit + `"}]}`)
		l, err := parseListing(b)
		switch {
		case want == "error":
			if !errors.Is(err, fault.ErrCorrupt) {
				t.Errorf("%s: %v", text, err)
			}
		case want == "unknown":
			if err != nil || l.listed || l.gated != "" {
				t.Errorf("%s: %+v, %v", text, l, err)
			}
		case err != nil || l.gated != want || !l.listed:
			t.Errorf("%s: %+v, %v", text, l, err)
		}
	}
}

// TestAccessOfOthers asks for what the cache of another program does not say, and remembers it.
func TestAccessOfOthers(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	h.Repo(testRepo).SetGated("manual")
	pinned := Ref{Repo: testRepo, Revision: commit}
	if _, err := Resolve(t.Context(), pinned, o); err != nil {
		t.Fatal(err)
	}
	c := newCache(o, testRepo)
	foreign(t, c, commit)
	putTree(t, c, commit, files)

	down := fakehub.Rule{Fault: fakehub.Status, Status: 503, Path: "/api/*"}
	lies := fakehub.Rule{Fault: fakehub.Redirect, Location: "/" + testRepo + "/resolve/" + commit + "/README.md", Path: "/api/*"}
	for _, step := range []struct {
		name    string
		rules   []fakehub.Rule
		offline bool
		listed  bool
		asked   int
	}{
		{"offline", nil, true, false, 0},
		{"the hub is down", []fakehub.Rule{down}, false, false, 5},
		{"the answer is none", []fakehub.Rule{lies}, false, false, 1},
		{"asked", nil, false, true, 1},
		{"remembered", nil, false, true, 0},
		{"remembered offline", nil, true, true, 0},
	} {
		h.ClearFaults()
		h.Fault(step.rules...)
		h.ResetStats()
		o.Offline = step.offline
		s, err := Resolve(t.Context(), pinned, o)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if asked := len(h.Requests("GET", "/api/models/*")); s.Listed != step.listed || (s.Gated == "manual") != step.listed || asked != step.asked {
			t.Errorf("%s: listed %t, gated %q, %d requests", step.name, s.Listed, s.Gated, asked)
		}
	}
}

// TestCheck is called before anything of the weights is asked for, and ends the call.
func TestCheck(t *testing.T) {
	h, _, _, o := realHub(t, tinyFiles())
	h.Repo(testRepo).SetGated("auto")
	refused := errors.New("refused")
	fail := true
	seen := 0
	o.Check = func(s *Snapshot) error {
		seen++
		if b, err := os.ReadFile(filepath.Join(s.Dir, "README.md")); err != nil || !strings.Contains(string(b), "license") || s.Gated != "auto" || !s.Listed {
			t.Errorf("%+v, %v", s, err)
		}
		if fail {
			return refused
		}
		return nil
	}
	resolve := func() error { _, err := Resolve(t.Context(), mainRef, o); return err }
	headers := func() error { _, err := Headers(t.Context(), mainRef, o); return err }
	for _, call := range []func() error{resolve, headers} {
		if err := call(); !errors.Is(err, refused) {
			t.Error(err)
		}
	}
	for _, name := range []string{shard1, shard2} {
		if n := len(h.Requests("*", "*/"+name)); n > 0 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	fail = false
	for _, call := range []func() error{resolve, headers} { // the second from the cache
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	if seen != 4 {
		t.Errorf("%d calls", seen)
	}
}
