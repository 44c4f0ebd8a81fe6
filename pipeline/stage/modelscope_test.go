package stage_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
	"github.com/llmexport/llmexport/recipes"
)

// onModelScope has the hub of onHub speak ModelScope's protocol only.
func onModelScope(t *testing.T) {
	t.Helper()
	t.Setenv("MODELSCOPE_ENDPOINT", os.Getenv("HF_ENDPOINT"))
	t.Setenv("MODELSCOPE_API_TOKEN", "")
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
}

// A package whose source comes from ModelScope is the same whether the source is kept or passes by, and what goes with it
// names the right hub.
func TestModelScope(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, dir := onHub(t, tiny, 5, "quantize: {bits: 8}\nverify: {perplexity: {window: 64, windows: 1}}\nfetch: {source: modelscope, keep: false}")
	onModelScope(t)
	w.must(t)
	none(t, w.dir)
	if got := fetched(h, dir); len(got) != 5 {
		t.Errorf("fetched %v", got)
	}
	m, err := manifest.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	s := m.Source
	if !m.Verified || s.Hub != manifest.ModelScope || s.Repo != "org/tiny" || len(s.Revision) != 40 || s.Access != manifest.Unknown {
		t.Errorf("verified %t, %+v", m.Verified, s)
	}
	at := "git+https://www.modelscope.cn/org/tiny.git@" + s.Revision
	if got := provenance.SourceURI(s); got != at {
		t.Error(got)
	}
	for name, want := range map[string]string{
		about.CardName:   "[`ms://org/tiny`](https://modelscope.cn/models/org/tiny) at revision `" + s.Revision + "`",
		about.ReportName: `"hub": "modelscope"`,
	} {
		b, err := os.ReadFile(filepath.Join(w.out(), name))
		if err != nil || !strings.Contains(string(b), want) || strings.Contains(string(b), "base_model") {
			t.Errorf("%s, %v: no %s in\n%s", name, err, want, b)
		}
	}

	// The recipe in the package asks the same hub.
	r, err := recipes.Load(m.Recipe, "recipe.json", stage.Sections())
	if err != nil {
		t.Fatal(err)
	}
	f := stage.NewFetch()
	if err := r.Stages["fetch"].Decode(f); err != nil || f.Keep || f.Source != hub.ModelScope {
		t.Errorf("%+v, %v", f, err)
	}

	// Of one that keeps its source the recipe says only which hub.
	w.must(t, "fetch.keep=true", "verify.enabled=false", "publish[0].dir=kept")
	if m, err = manifest.Open(filepath.Join(w.dir, "kept")); err != nil {
		t.Fatal(err)
	}
	var recipe struct{ Fetch json.RawMessage }
	if err := json.Unmarshal(m.Recipe, &recipe); err != nil || strings.Join(strings.Fields(string(recipe.Fetch)), "") != `{"source":"modelscope"}` {
		t.Errorf("%s, %v", recipe.Fetch, err)
	}
	if m.Source.Hub != s.Hub || m.Source.Revision != s.Revision {
		t.Errorf("%+v", m.Source)
	}
	w.must(t, "fetch.keep=false", "verify.enabled=false", "publish[0].dir=passed")
	if got, want := listing(t, filepath.Join(w.dir, "passed")), listing(t, filepath.Join(w.dir, "kept")); got != want {
		t.Errorf("streamed\n%s\nfrom the disk\n%s", got, want)
	}
}
