//go:build hub

package hubs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// hubPython runs the client of a kind of hub.
func hubPython(t *testing.T, h *placetest.Hub, kind string, args ...string) {
	t.Helper()
	python := os.Getenv("HUB_PYTHON")
	if python == "" {
		python = filepath.FromSlash("../../.venv/hub/bin/python")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", kind, "client.py")}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HF_HOME=" + home, "HF_ENDPOINT=" + h.URL, "HF_TOKEN=" + fakehub.Token,
		"HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_XET=1",
		"MODELSCOPE_ENDPOINT=" + h.URL, "MODELSCOPE_API_TOKEN=" + fakehub.Token, "MODELSCOPE_CACHE=" + home}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: client.py %s: %v\n%s", kind, strings.Join(args, " "), err, out)
	}
}

// TestHubLibraries holds what is published to the libraries of the hubs: they download what we published, and we find
// nothing to do where they uploaded the same package.
func TestHubLibraries(t *testing.T) {
	for kind, store := range map[string]func(h *placetest.Hub) place.Store{
		"hub":        func(h *placetest.Hub) place.Store { return hubStore(h) },
		"modelscope": func(h *placetest.Hub) place.Store { return modelScopeStore(h) },
	} {
		t.Run(kind, func(t *testing.T) {
			p := placetest.ModelScopePackage(t, 1)
			// modelscope_hub sends an empty file of this ending to LFS storage, where there are none.
			p.Manifest.Files = slices.DeleteFunc(p.Manifest.Files, func(f manifest.File) bool { return f.Size == 0 })
			if err := os.RemoveAll(filepath.Join(p.Dir, "sub")); err != nil {
				t.Fatal(err)
			}
			b, err := p.Manifest.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			placetest.Write(t, filepath.Join(p.Dir, manifest.FileName), string(b))

			h := placetest.NewHub(t)
			r := h.Publish(t, store(h), p)
			got := t.TempDir()
			_, revision, _ := strings.Cut(r.Ref, "@")
			if h.Leaked() {
				t.Error("the token reached storage")
			}
			hubPython(t, h, kind, "get", placetest.Repo, got, revision)
			h.ResetStats() // modelscope_hub sends its token to storage
			files, want := placetest.Tree(t, got), placetest.Tree(t, p.Dir)
			for name, text := range want {
				if files[name] != text {
					t.Errorf("%s differs, of %q", name, slices.Sorted(maps.Keys(files)))
				}
			}

			h = placetest.NewHub(t)
			hubPython(t, h, kind, "put", placetest.Repo, p.Dir)
			h.Want(t, "main", p)
			h.ResetStats()
			commits := len(h.Repo(placetest.Repo).History("main"))
			if r := h.Publish(t, store(h), p); r.Status != place.Unchanged || r.Uploaded > 0 {
				t.Errorf("%+v", r)
			}
			if n := len(h.Repo(placetest.Repo).History("main")); n != commits {
				t.Errorf("%d commits more", n-commits)
			}
		})
	}
}
