package stage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/manifest"
)

// What the checkpoint's card says of its licence is in the manifest, and a change of it makes another package.
func TestTerms(t *testing.T) {
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
		if err := os.WriteFile(filepath.Join(source, publish.CardName), []byte(tc.card), 0o666); err != nil {
			t.Fatal(err)
		}
		jobs := w.must(t, "publish=[{dir: dist/small, replace: true}]")
		m, err := manifest.Open(w.out())
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Source; got.License != tc.want.License || got.LicenseName != tc.want.LicenseName || got.Access != "" {
			t.Errorf("%q: license %q, name %q, access %q", tc.card, got.License, got.LicenseName, got.Access)
		}
		for _, a := range jobs[0].Artifacts {
			if r, ok := a.Detail.(publish.Receipt); a.Kind == pipeline.Published && (!ok || r.Digest != m.Digest) {
				t.Errorf("receipt %+v", a.Detail)
			}
		}
		if _, err := os.Stat(filepath.Join(w.cache(), stage.ReceiptsFile)); err != nil {
			t.Error(err)
		}
	}
}
