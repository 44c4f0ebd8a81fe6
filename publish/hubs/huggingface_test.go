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

// hubStore is the target on the hub, with options.
func hubStore(h *placetest.Hub, o ...func(*HuggingFace)) HuggingFace {
	s := HuggingFace{Repo: placetest.Repo, Options: &hub.Options{Endpoint: h.URL, Token: fakehub.Token},
		Transfer: transfer.Options{Pause: time.Millisecond, Stall: 5 * time.Second}}
	for _, f := range o {
		f(&s)
	}
	return s
}

func TestHub(t *testing.T) {
	h := placetest.NewHub(t)
	p := placetest.HubPackage(t, 1)
	s := hubStore(h, func(s *HuggingFace) { s.Private, s.Gated, s.Tag = true, "manual", "v1" })
	d, err := s.Diff(h.Ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"README.md", "config.json", "llm.mnn", "llm.mnn.weight", "manifest.json", "sub/empty.bin", "tokenizer.mtok"}
	if diff := cmp.Diff(place.Diff{Status: place.Published, Add: names, Upload: d.Upload, Creates: "private repository tester/tiny, tag v1"}, d); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if len(h.Requests("P*", "*")) > 0 {
		t.Error("the dry run wrote")
	}

	r := h.Publish(t, s, p)
	h.Want(t, "main", p)
	repo := h.Repo(placetest.Repo)
	head := repo.Head("main")
	_, sum, err := p.Manifest.Seal()
	if err != nil {
		t.Fatal(err)
	}
	want := place.Receipt{Status: place.Published, Store: "hub", Ref: "hf://tester/tiny@" + head, URL: h.URL + "/tester/tiny/tree/" + head,
		Digest: sum, Files: len(names), Bytes: d.Upload, Uploaded: r.Uploaded}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if private, gated := repo.Settings(); !private || gated != "manual" {
		t.Errorf("private %v, gated %q", private, gated)
	}
	if repo.Head("v1") != head || len(repo.History("main")) != 2 {
		t.Errorf("tag at %s, %d commits", repo.Head("v1"), len(repo.History("main")))
	}
	if a := string(repo.Files("main")[attributesFile]); !strings.Contains(a, "\nllm.mnn.weight filter=lfs ") || strings.Contains(a, "config.json") {
		t.Errorf("attributes:\n%s", a)
	}
	if n := len(h.Requests("PUT", "/uploads/*")); n != placetest.Parts+1 {
		t.Errorf("%d uploads, want %d parts and the graph", n, placetest.Parts)
	}

	// The same again is nothing.
	h.ResetStats()
	again := h.Publish(t, s, p)
	if again.Status != place.Unchanged || again.Ref != r.Ref || again.Uploaded != 0 || h.Stats().Commits != 0 || h.Stats().LFSUploads != 0 {
		t.Errorf("again: %+v", again)
	}

	// Another package replaces it, and its parts that are the same are not sent.
	q := placetest.HubPackage(t, 1)
	if err := os.Remove(filepath.Join(q.Dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	q.Manifest.Files = slices.DeleteFunc(q.Manifest.Files, func(f manifest.File) bool { return f.Name == "config.json" })
	s.Tag = "v2"
	d, err = s.Diff(h.Ctx, q)
	if err != nil || !slices.Equal(d.Remove, []string{"config.json"}) || !slices.Equal(d.Change, []string{"manifest.json"}) ||
		d.Status != place.Replaced || d.Creates != "tag v2" {
		t.Errorf("diff %+v, %v", d, err)
	}
	r = h.Publish(t, s, q)
	h.Want(t, "main", q)
	if r.Status != place.Replaced || r.Uploaded != d.Upload || h.Stats().LFSUploads != 0 {
		t.Errorf("replaced: %+v", r)
	}
	h.Want(t, "v1", p)

	// A tag is not moved.
	s.Tag = "v1"
	if _, err := s.Stage(h.Ctx, q); err == nil || !strings.Contains(err.Error(), "tag v1 already names commit "+head) {
		t.Errorf("moved tag: %v", err)
	}
}

func TestHubBranch(t *testing.T) {
	h := placetest.NewHub(t)
	p, q := placetest.HubPackage(t, 1), placetest.HubPackage(t, 2)
	h.Publish(t, hubStore(h), p)
	s := hubStore(h, func(s *HuggingFace) { s.Branch = "variants/int8" })
	if d, err := s.Diff(h.Ctx, q); err != nil || d.Creates != "branch variants/int8" {
		t.Errorf("diff %+v, %v", d, err)
	}
	h.Publish(t, s, q)
	h.Want(t, "main", p)
	h.Want(t, "variants/int8", q)
	// One with what main holds.
	s.Branch = "same"
	if r := h.Publish(t, s, p); r.Status != place.Published {
		t.Errorf("%+v", r)
	}
	h.Want(t, "same", p)
}

func TestHubRefuses(t *testing.T) {
	p := placetest.HubPackage(t, 1)
	tests := map[string]struct {
		prepare func(h *placetest.Hub)
		option  func(s *HuggingFace)
		err     string
		is      error
	}{
		"foreign files": {func(h *placetest.Hub) {
			h.Repo(placetest.Repo).Commit("main", map[string][]byte{"notes.txt": {1}, "z": {2}})
		}, nil, `contains 2 files that are not part of a package, "notes.txt" first`, nil},
		"foreign manifest": {func(h *placetest.Hub) {
			h.Repo(placetest.Repo).Commit("main", map[string][]byte{"manifest.json": []byte("{}")})
		}, nil, "contains no package that llmexport can read", nil},
		"public, not private": {func(h *placetest.Hub) { h.Repo(placetest.Repo).Commit("main", map[string][]byte{"README.md": {1}}) },
			func(s *HuggingFace) { s.Private = true }, "exists and is public", nil},
		"no token":    {nil, func(s *HuggingFace) { s.Options.Token = "" }, "publishing needs a token: set HF_TOKEN", fs.ErrPermission},
		"wrong token": {nil, func(s *HuggingFace) { s.Options.Token = "hf_wrong" }, "the token is invalid", fs.ErrPermission},
		"no rights": {func(h *placetest.Hub) { h.AddToken("hf_reader", fakehub.User{Name: "reader", Role: fakehub.Reader}) },
			func(s *HuggingFace) { s.Options.Token = "hf_reader" }, "write access to tester/tiny", fs.ErrPermission},
		"not ours to see": {func(h *placetest.Hub) {
			h.AddToken("hf_other", fakehub.User{Name: "other", Role: fakehub.Stranger})
			h.Repo(placetest.Repo).SetPrivate(true).Commit("main", map[string][]byte{"README.md": {1}})
		}, func(s *HuggingFace) { s.Options.Token = "hf_other" }, "write access to tester/tiny", fs.ErrPermission},
		"other endpoint": {nil, func(s *HuggingFace) { s.Endpoint = "https://evil.example" }, "set HF_ENDPOINT", nil},
		"no branch":      {nil, func(s *HuggingFace) { s.Branch = "a/../b" }, "is not a branch", nil},
		"commit":         {nil, func(s *HuggingFace) { s.Tag = strings.Repeat("a", 40) }, "looks like a commit", nil},
		"gated":          {nil, func(s *HuggingFace) { s.Gated = "yes" }, "neither auto nor manual", nil},
		"offline":        {nil, func(s *HuggingFace) { s.Options.Offline = true }, "HF_HUB_OFFLINE", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := placetest.NewHub(t)
			if tc.prepare != nil {
				tc.prepare(h)
			}
			s := hubStore(h)
			if tc.option != nil {
				tc.option(&s)
			}
			_, err := s.Stage(h.Ctx, p)
			if err == nil || !strings.Contains(err.Error(), tc.err) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want an error with %q", err, tc.err)
			}
			placetest.Secrets(t, err)
			if h.Stats().LFSUploads > 0 || h.Stats().Commits > 0 {
				t.Error("something was sent")
			}
		})
	}
}

// TestHubDamaged publishes files that are not what the manifest says.
func TestHubDamaged(t *testing.T) {
	for _, name := range []string{"llm.mnn.weight", "llm.mnn", "config.json"} {
		t.Run(name, func(t *testing.T) {
			h := placetest.NewHub(t)
			p := placetest.HubPackage(t, 1)
			path := filepath.Join(p.Dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			placetest.Write(t, path, string(b))
			if _, err := place.To(h.Ctx, hubStore(h), p); !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
			if h.Stats().Commits > 0 {
				t.Error("it was committed")
			}
		})
	}
}

// TestHubFaults publishes while something goes wrong, and demands the right package or an error, and then once more.
func TestHubFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	type rule = fakehub.Rule
	tests := map[string]struct {
		rules []rule
		err   string // empty: it succeeds in spite of it
	}{
		"cut in a part":         {[]rule{{Fault: fakehub.CutRequest, Path: "/uploads/*", After: 10_000, Times: 3}}, ""},
		"500 at parts":          {[]rule{{Fault: fakehub.Status, Status: 500, Path: "/uploads/*", Skip: 2, Times: 3}}, ""},
		"503 everywhere":        {[]rule{{Fault: fakehub.Status, Status: 503, Server: "hub", Times: 3}}, ""},
		"429":                   {[]rule{{Fault: fakehub.Status, Status: 429, RetryAfter: "0", Times: 4, Skip: 4}}, ""},
		"answer of a part lost": {[]rule{{Fault: fakehub.Lost, Path: "/uploads/*", Skip: 1, Times: 2}}, ""},
		"addresses ran out":     {[]rule{{Fault: fakehub.Expired, Path: "/uploads/*", Skip: 3, Times: 1}}, ""},
		"always ran out":        {[]rule{{Fault: fakehub.Expired, Path: "/uploads/*"}}, "storage does not accept the upload"},
		"storage is down":       {[]rule{{Fault: fakehub.Status, Status: 500, Path: "/uploads/*"}}, "5 tries failed"},
		"completion lost":       {[]rule{{Fault: fakehub.Lost, Path: "/api/complete_multipart", Times: 1}}, ""},
		"completion refused":    {[]rule{{Fault: fakehub.Status, Status: 400, Path: "/api/complete_multipart", Times: 1}}, ""},
		"verify lost":           {[]rule{{Fault: fakehub.Lost, Path: "*/objects/verify", Times: 1}}, ""},
		"batch cut":             {[]rule{{Fault: fakehub.Cut, Path: "*/objects/batch", After: 20, Times: 1}}, ""},
		"commit lost":           {[]rule{{Fault: fakehub.Lost, Path: "*/commit/main", Times: 1}}, ""},
		"commit cut":            {[]rule{{Fault: fakehub.CutRequest, Path: "*/commit/main", After: 100, Times: 2}}, ""},
		"commit 500":            {[]rule{{Fault: fakehub.Status, Status: 500, Path: "*/commit/main", Times: 1}}, ""},
		"commit 403":            {[]rule{{Fault: fakehub.Status, Status: 403, Path: "*/commit/main"}}, "write access to tester/tiny"},
		"create lost":           {[]rule{{Fault: fakehub.Lost, Path: "/api/repos/create", Times: 1}}, ""},
		"tag lost":              {[]rule{{Fault: fakehub.Lost, Path: "*/tag/*", Times: 1}}, ""},
		"tree cut":              {[]rule{{Fault: fakehub.Cut, Path: "*/tree/*", After: 30, Times: 2}}, ""},
		"redirect loop":         {[]rule{{Fault: fakehub.RedirectLoop, Path: "/uploads/*"}}, "does not say what to send where"},
		"redirected elsewhere":  {[]rule{{Fault: fakehub.Redirect, Path: "*/commit/main", Location: "http://127.0.0.1:1{path}"}}, "does not say what to send where"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := placetest.NewHub(t)
			p := placetest.HubPackage(t, 1)
			h.Fault(tc.rules...)
			s := hubStore(h, func(s *HuggingFace) { s.Tag = "v1" })
			_, err := place.To(h.Ctx, s, p)
			placetest.Secrets(t, err)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if n := h.Met(); n[0] == 0 {
				t.Error("the fault was not met")
			}
			h.ClearFaults()
			if err != nil {
				if n := h.Stats().Commits; n > 0 {
					t.Errorf("%d commits were made", n)
				}
			}
			h.Publish(t, s, p)
			h.Want(t, "main", p)
			h.Want(t, "v1", p)
			if n := len(h.Repo(placetest.Repo).History("main")); n != 2 {
				t.Errorf("%d commits, want the first and ours", n)
			}
		})
	}
}

// TestHubConflict lets somebody else commit between Stage and Commit.
func TestHubConflict(t *testing.T) {
	h := placetest.NewHub(t)
	p, q := placetest.HubPackage(t, 1), placetest.HubPackage(t, 2)
	h.Publish(t, hubStore(h), p)
	staged, err := hubStore(h).Stage(h.Ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	theirs := h.Repo(placetest.Repo).Commit("main", map[string][]byte{"config.json": []byte("theirs")})
	_, err = staged.Commit(h.Ctx)
	if !errors.Is(err, errConflict) || !strings.Contains(err.Error(), theirs) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(staged.Revert(h.Ctx), staged.Close()); err != nil {
		t.Error(err)
	}
	if got := h.Repo(placetest.Repo).Head("main"); got != theirs {
		t.Errorf("head is %s", got)
	}
}

func TestHubRevert(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	h := placetest.NewHub(t)
	p, q := placetest.HubPackage(t, 1), placetest.HubPackage(t, 2)
	stage := func(s HuggingFace, p place.Package) place.Staged {
		staged, err := s.Stage(h.Ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = staged.Commit(h.Ctx); err != nil {
			t.Fatal(err)
		}
		return staged
	}
	// A repository that the run has made.
	s := stage(hubStore(h, func(s *HuggingFace) { s.Tag = "v1" }), p)
	if err := s.Revert(h.Ctx); err == nil || !strings.Contains(err.Error(), "remains without the package") {
		t.Errorf("got %v", err)
	}
	s.Close()
	repo := h.Repo(placetest.Repo)
	if files := repo.Files("main"); len(files) != 1 || repo.Head("v1") != "" {
		t.Errorf("%d files and the tag %q stay", len(files), repo.Head("v1"))
	}
	h.Publish(t, hubStore(h), p)
	before := repo.Files("main")
	// Another package, and back.
	s = stage(hubStore(h), q)
	h.Want(t, "main", q)
	if err := errors.Join(s.Revert(h.Ctx), s.Close()); err != nil {
		t.Error(err)
	}
	h.Want(t, "main", p)
	if diff := cmp.Diff(before, repo.Files("main")); diff != "" {
		t.Error(diff)
	}
	// Terms for readers.
	s = stage(hubStore(h, func(s *HuggingFace) { s.Gated = "auto" }), q)
	if _, gated := repo.Settings(); gated != "auto" {
		t.Errorf("gated: %q", gated)
	}
	if err := errors.Join(s.Revert(h.Ctx), s.Close()); err != nil {
		t.Error(err)
	}
	if _, gated := repo.Settings(); gated != "" {
		t.Errorf("still gated: %q", gated)
	}
	// A branch that the run has made.
	s = stage(hubStore(h, func(s *HuggingFace) { s.Branch = "b" }), q)
	if err := errors.Join(s.Revert(h.Ctx), s.Close()); err != nil {
		t.Error(err)
	}
	if repo.Head("b") != "" {
		t.Error("the branch stays")
	}
	// Somebody has committed on top.
	s = stage(hubStore(h), q)
	repo.Commit("main", map[string][]byte{"config.json": []byte("theirs")})
	if err := s.Revert(h.Ctx); err == nil || !strings.Contains(err.Error(), "stays visible as commit") {
		t.Errorf("got %v", err)
	}
	s.Close()
}

func TestHubOrigin(t *testing.T) {
	h := placetest.NewHub(t)
	p, q := placetest.HubPackage(t, 1), placetest.HubPackage(t, 2)
	r := h.Publish(t, hubStore(h), p)
	h.Publish(t, hubStore(h), q)
	o := hub.Options{Endpoint: h.URL, Token: fakehub.Token}
	patient := transfer.Options{Pause: time.Millisecond}
	for ref, want := range map[string]place.Package{"tester/tiny": q, strings.TrimPrefix(r.Ref, "hf://"): p} {
		origin, err := OpenHuggingFaceAt(h.Ctx, ref, o, place.OpenOptions{Transfer: patient})
		if err != nil {
			t.Fatal(err)
		}
		placetest.WantOrigin(t, origin, want)
		if ref != "tester/tiny" && origin.String() != r.Ref {
			t.Errorf("%s is not %s", origin, r.Ref)
		}
	}
	h.Repo(placetest.Repo).SetGated("manual")
	h.AddToken("hf_stranger", fakehub.User{Name: "stranger", Role: fakehub.Stranger})
	for name, tc := range map[string]struct{ ref, token, err string }{
		"gated":       {"tester/tiny", "hf_stranger", "accept its terms"},
		"no revision": {"tester/tiny@v9", fakehub.Token, "no such branch, tag or commit"},
		"absent":      {"tester/other", fakehub.Token, "no such repository"},
		"no name":     {"../x", fakehub.Token, "a repository is ORG/NAME"},
		"hostile":     {"tester/tiny@../x", fakehub.Token, "not a branch"},
	} {
		t.Run(name, func(t *testing.T) {
			o.Token = tc.token
			origin, err := OpenHuggingFaceAt(h.Ctx, tc.ref, o, place.OpenOptions{Transfer: patient})
			if err == nil {
				_, err = origin.Read(h.Ctx, manifest.FileName, manifest.MaxSize)
			}
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			placetest.Secrets(t, err)
		})
	}
}

func TestWithAttributes(t *testing.T) {
	have := "*.bin filter=lfs diff=lfs merge=lfs -text\n/top.x filter=lfs\nno.bin -filter\nsub/*.y filter=lfs"
	got := string(withAttributes([]byte(have), []string{"a.bin", "s/a.bin", "top.x", "s/top.x", "no.bin", "sub/z.y", "z.y", "a b[1].w"}))
	want := have + "\na?b?1?.w filter=lfs diff=lfs merge=lfs -text\nno.bin filter=lfs diff=lfs merge=lfs -text\ns/top.x filter=lfs " +
		"diff=lfs merge=lfs -text\nz.y filter=lfs diff=lfs merge=lfs -text\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if withAttributes([]byte(want), []string{"a b[1].w", "z.y"}) != nil {
		t.Error("lines are added twice")
	}
}
