package stage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
)

// What the checkpoint's card says of its licence is in the manifest, and a change of it makes another package.
func TestTerms(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "source")
	if err := os.CopyFS(source, os.DirFS(families+"qwen3-tied")); err != nil {
		t.Fatal(err)
	}
	w := newWork(t, source, "quantize: {block: 32}\nverify: {enabled: false}")
	for _, tc := range []struct {
		card string
		want manifest.Source
	}{
		{"", manifest.Source{}},
		{"---\nlicense: mit\n---\n", manifest.Source{License: "mit"}},
		{"---\nlicense: other\nlicense_name: mine\n---\n", manifest.Source{License: "other", LicenseName: "mine"}},
	} {
		if err := os.WriteFile(filepath.Join(source, about.CardName), []byte(tc.card), 0o666); err != nil {
			t.Fatal(err)
		}
		runs := w.must(t, "publish=[{dir: dist/small, replace: true}]")
		m, err := manifest.Open(w.out())
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Source; got.License != tc.want.License || got.LicenseName != tc.want.LicenseName || got.Access != "" {
			t.Errorf("%q: license %q, name %q, access %q", tc.card, got.License, got.LicenseName, got.Access)
		}
		if list := runs[0].Published; len(list) != 1 || list[0].Digest != m.Digest {
			t.Errorf("receipts %+v", list)
		}
		if _, err := os.Stat(filepath.Join(w.cache(), stage.ReceiptsFile)); err != nil {
			t.Error(err)
		}
	}
}

// What a public place asks for is asked before anything of the weights is fetched; what nobody said of a repository counts
// as if it were guarded.
func TestTermsBeforeWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	checkpoint := filepath.Join(t.TempDir(), "source")
	if err := os.CopyFS(checkpoint, os.DirFS(families+"qwen3-untied")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(checkpoint, about.CardName), []byte("---\nlicense: mit\n---\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	const public = "publish: [{hub: someone/x}]\nverify: {enabled: false}\nquantize: {block: 32}\n"
	for _, c := range []struct {
		name, fetch string
		prepare     func(t *testing.T, w work, h *fakehub.Hub)
		access      string // "" means that the package may go there
		why         string
	}{
		{"open", "{}", func(*testing.T, work, *fakehub.Hub) {}, "", ""},
		{"gated", "{}", func(_ *testing.T, _ work, h *fakehub.Hub) { h.Repo("org/tiny").SetGated("manual") }, manifest.Gated, "must accept its terms"},
		{"private", "{}", func(_ *testing.T, _ work, h *fakehub.Hub) { h.Repo("org/tiny").SetPrivate(true) }, manifest.Private, "is private"},
		{"ModelScope", "{source: modelscope}", func(t *testing.T, _ work, _ *fakehub.Hub) { onModelScope(t) }, manifest.Unknown, "ModelScope does not report"},
		{"offline, from the cache of another program", "{}", func(t *testing.T, w work, _ *fakehub.Hub) {
			w.must(t, "publish=[{dir: dist/small}]")
			if err := os.RemoveAll(filepath.Join(w.dir, "hub", "models--org--tiny", ".llmexport")); err != nil {
				t.Fatal(err)
			}
			t.Setenv("HF_HUB_OFFLINE", "1")
		}, manifest.Unknown, "its hub was not queried"},
	} {
		for _, keep := range []string{"true", "false"} {
			t.Run(c.name+", keep "+keep, func(t *testing.T) {
				w, h, _ := onHub(t, checkpoint, 2, public+"fetch: "+c.fetch)
				t.Setenv("HF_TOKEN", fakehub.Token)
				c.prepare(t, w, h)
				h.ResetStats()
				r, err := recipes.LoadFile(w.recipe(), stage.Sections(), "fetch.keep="+keep)
				if err != nil {
					t.Fatal(err)
				}
				run, err := stage.New(r, pipeline.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				sk, err := run.Fetch.Skeleton(t.Context(), run)
				if err != nil {
					t.Fatal(err)
				}
				note, err := run.Fetch.Terms(t.Context(), run, &sk.Snapshot)
				if err != nil || (note == "") != (c.access == "") || !strings.Contains(note, c.why) {
					t.Fatalf("%q, %v", note, err)
				}
				if c.access == "" {
					return
				}
				h.ResetStats()
				_, err = w.run(t, "fetch.keep="+keep)
				positioned := (*recipes.Error)(nil)
				if !errors.As(err, &positioned) || positioned.Line != 4 || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), `set license_ack: "mit"`) ||
					strings.Contains(err.Error(), "model:") {
					t.Error(err)
				}
				if got := h.Requests("*", "*.safetensors"); len(got) != 0 {
					t.Errorf("%d requests for weights, such as %+v", len(got), got[0])
				}
				// What was said of it is in the manifest of a package that stays here.
				w.must(t, "fetch.keep="+keep, "publish=[{dir: here}]")
				m, err := manifest.Open(filepath.Join(w.dir, "here"))
				if err != nil || m.Source.Access != c.access {
					t.Errorf("%+v, %v", m.Source, err)
				}
			})
		}
	}
}
