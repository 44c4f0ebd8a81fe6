package hubs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelScopeStore is the target on the same hub, by its other protocol.
func modelScopeStore(h *placetest.Hub, o ...func(*ModelScope)) ModelScope {
	m := ModelScope{Repo: placetest.Repo, Options: &hub.Options{Endpoint: h.URL, Token: fakehub.Token},
		Transfer: transfer.Options{Pause: time.Millisecond, Stall: 5 * time.Second}}
	for _, f := range o {
		f(&m)
	}
	return m
}

func TestModelScope(t *testing.T) {
	h := placetest.NewHub(t)
	p := placetest.ModelScopePackage(t, 1)
	s := modelScopeStore(h, func(m *ModelScope) { m.Private, m.Tag = true, "v1" })
	d, err := s.Diff(h.Ctx, p)
	if err != nil || d.Status != place.Published || d.Creates != "private repository tester/tiny, tag v1" || len(d.Add) != 7 {
		t.Errorf("diff %+v, %v", d, err)
	}
	r := h.Publish(t, s, p)
	h.Want(t, "main", p)
	repo := h.Repo(placetest.Repo)
	head := repo.Head("main")
	_, sum, err := p.Manifest.Seal()
	if err != nil {
		t.Fatal(err)
	}
	want := place.Receipt{Status: place.Published, Store: "modelscope", Ref: "ms://tester/tiny@" + head, URL: h.URL + "/models/tester/tiny",
		Digest: sum, Files: 7, Bytes: d.Upload, Uploaded: d.Upload}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if private, _ := repo.Settings(); !private || repo.Head("v1") != head {
		t.Errorf("private %v, tag at %s", private, repo.Head("v1"))
	}
	h.ResetStats()
	if again := h.Publish(t, s, p); again.Status != place.Unchanged || again.Ref != r.Ref || h.Stats().Commits+h.Stats().LFSUploads > 0 {
		t.Errorf("again: %+v", again)
	}
	q := placetest.ModelScopePackage(t, 2)
	if err := os.Remove(filepath.Join(q.Dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	q.Manifest.Files = slices.DeleteFunc(q.Manifest.Files, func(f manifest.File) bool { return f.Name == "config.json" })
	s.Tag = ""
	staged, err := s.Stage(h.Ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	h.Want(t, "main", p)
	if r, err = staged.Commit(h.Ctx); err != nil || r.Status != place.Replaced {
		t.Errorf("%+v, %v", r, err)
	}
	h.Want(t, "main", q)
	if err := errors.Join(staged.Revert(h.Ctx), staged.Close()); err != nil {
		t.Error(err)
	}
	h.Want(t, "main", p)

	o := hub.Options{Endpoint: h.URL, Token: fakehub.Token}
	for _, ref := range []string{"tester/tiny", "tester/tiny@" + head, "tester/tiny@v1"} {
		origin, err := OpenModelScopeAt(h.Ctx, ref, o, transfer.Options{Pause: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		placetest.WantOrigin(t, origin, p)
	}
	o.Token = ""
	if _, err := OpenModelScopeAt(h.Ctx, "tester/tiny", o, transfer.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("private: %v", err)
	}
}

func TestModelScopeFaults(t *testing.T) {
	type rule = fakehub.Rule
	tests := map[string]struct {
		rule rule
		err  string // empty: it succeeds in spite of it
	}{
		"cut":             {rule{Fault: fakehub.CutRequest, Path: "/open/*", After: 10_000, Times: 3}, ""},
		"500":             {rule{Fault: fakehub.Status, Status: 500, Path: "/open/*", Times: 2}, ""},
		"answer lost":     {rule{Fault: fakehub.Lost, Path: "/open/*", Times: 1}, ""},
		"ran out":         {rule{Fault: fakehub.Expired, Path: "/open/*", Times: 1}, ""},
		"429":             {rule{Fault: fakehub.Status, Status: 429, RetryAfter: "0", Times: 4, Skip: 2}, ""},
		"commit lost":     {rule{Fault: fakehub.Lost, Path: "*/commit/master", Times: 1}, ""},
		"commit 502":      {rule{Fault: fakehub.Status, Status: 502, Path: "*/commit/master", Times: 2}, ""},
		"commit refused":  {rule{Fault: fakehub.Status, Status: 400, Path: "*/commit/master"}, "400"},
		"create lost":     {rule{Fault: fakehub.Lost, Path: "/api/v1/models", Times: 1}, ""},
		"not ours":        {rule{Fault: fakehub.Status, Status: 403, Path: "/api/v1/models"}, "is not allowed"},
		"storage is down": {rule{Fault: fakehub.Status, Status: 500, Path: "/open/*"}, "5 tries failed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := placetest.NewHub(t)
			p := placetest.ModelScopePackage(t, 1)
			h.Fault(tc.rule)
			_, err := place.To(h.Ctx, modelScopeStore(h), p)
			placetest.Secrets(t, err)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if h.Met()[0] == 0 {
				t.Error("the fault was not met")
			}
			h.ClearFaults()
			h.Publish(t, modelScopeStore(h), p)
			h.Want(t, "main", p)
			if n := len(h.Repo(placetest.Repo).History("main")); n != 2 {
				t.Errorf("%d commits, want the first and ours", n)
			}
		})
	}
}

func TestModelScopeRefuses(t *testing.T) {
	p := placetest.ModelScopePackage(t, 1)
	for name, tc := range map[string]struct {
		prepare func(h *placetest.Hub)
		option  func(m *ModelScope)
		err     string
	}{
		"foreign files": {func(h *placetest.Hub) {
			h.Repo(placetest.Repo).Commit("main", map[string][]byte{"notes.txt": {1}, "configuration.json": {2}})
		}, nil, `contains 1 files that are not part of a package, "notes.txt" first`},
		"public": {func(h *placetest.Hub) { h.Repo(placetest.Repo).Commit("main", map[string][]byte{"README.md": {1}}) },
			func(m *ModelScope) { m.Private = true }, "exists and is public"},
		"no branch": {func(h *placetest.Hub) { h.Repo(placetest.Repo).Commit("main", map[string][]byte{"README.md": {1}}) },
			func(m *ModelScope) { m.Branch = "b" }, "has no branch b"},
		"no token":    {nil, func(m *ModelScope) { m.Options.Token = "" }, "set MODELSCOPE_API_TOKEN"},
		"wrong token": {nil, func(m *ModelScope) { m.Options.Token = "x" }, "missing or invalid"},
		"endpoint":    {nil, func(m *ModelScope) { m.Endpoint = "https://evil.example" }, "set MODELSCOPE_ENDPOINT"},
	} {
		t.Run(name, func(t *testing.T) {
			h := placetest.NewHub(t)
			if tc.prepare != nil {
				tc.prepare(h)
			}
			s := modelScopeStore(h)
			if tc.option != nil {
				tc.option(&s)
			}
			_, err := s.Stage(h.Ctx, p)
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			placetest.Secrets(t, err)
		})
	}
	// Somebody else commits between Stage and Commit.
	h := placetest.NewHub(t)
	h.Publish(t, modelScopeStore(h), p)
	staged, err := modelScopeStore(h).Stage(h.Ctx, placetest.ModelScopePackage(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	h.Repo(placetest.Repo).Commit("main", map[string][]byte{"config.json": []byte("theirs")})
	if _, err := staged.Commit(h.Ctx); !errors.Is(err, errConflict) {
		t.Errorf("got %v", err)
	}
	staged.Close()
	// A file that is not what the manifest says.
	bad := placetest.ModelScopePackage(t, 3)
	b, err := os.ReadFile(filepath.Join(bad.Dir, "llm.mnn.weight"))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	placetest.Write(t, filepath.Join(bad.Dir, "llm.mnn.weight"), string(b))
	if _, err := place.To(h.Ctx, modelScopeStore(h, func(m *ModelScope) { m.Repo = "tester/other" }), bad); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}
