package stage_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// firstLayer is a model cut to its first layer.
func firstLayer(d *arch.Decoder) *arch.Decoder {
	cut := *d
	cut.Layers = d.Layers[:1]
	return &cut
}

// withDraft lowers a model and gives it a second part, "draft", which is its first layer between embedding and head.
func withDraft(m *arch.Model, o lower.Options) (*lower.Model, error) {
	whole, err := lower.Lower(m, o)
	if err != nil {
		return nil, err
	}
	draft, err := lower.Classic(firstLayer(m.Text), o)
	if err != nil {
		return nil, err
	}
	draft.Parts[0].Name = "draft"
	whole.Parts = append(whole.Parts, draft.Parts...)
	return whole, nil
}

// twoParts is a run that makes a package of two parts.
func (w work) twoParts(t *testing.T, cache string, show func(pipeline.State), overrides ...string) *stage.Run {
	t.Helper()
	overrides = append(overrides, "verify.tokenizer.strings=300")
	r, err := recipes.LoadFile(w.recipe(), stage.Sections(), overrides...)
	if err != nil {
		t.Fatal(err)
	}
	l := pipeline.Limits{Memory: 1 << 30, Threads: 2}
	if show != nil {
		l.Progress = pipeline.NewProgress(show)
	}
	run, err := stage.New(r, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.LowerWith(withDraft)
	store, err := pipeline.OpenStore(filepath.Join(w.dir, cache))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	run.Store = store
	return run
}

// A second part is planned, written, verified, described in the manifest, published, and opened under its own name.
func TestParts(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const sections = "quantize: {bits: 16}\nverify: {perplexity: {window: 64, windows: 2, decode: 8}}"
	alone, w := newWork(t, tiny, sections), newWork(t, tiny, sections)
	alone.must(t)
	run := w.twoParts(t, "cache", nil)
	if _, err := run.Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(w.out())
	if err != nil || !m.Verified {
		t.Fatalf("%v: %+v", err, m.Checks)
	}
	if err := m.VerifyFiles(t.Context(), w.out()); err != nil {
		t.Error(err)
	}
	// The text model is what it is alone.
	for _, name := range []string{"llm.mnn", "llm.mnn.weight", "llm_config.json"} {
		if a, b := read(t, alone.out(), name), read(t, w.out(), name); a != b {
			t.Errorf("%s differs", name)
		}
	}
	roles, tensors := map[string]string{}, map[string]int{}
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, "draft") {
			roles[f.Name] = f.Role
		}
	}
	for _, x := range m.Tensors {
		tensors[x.Part+" in "+x.File]++
	}
	if diff := cmp.Diff(map[string]string{"draft.mnn": "graph", "draft.mnn.weight": "weights"}, roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	if n := tensors["draft in draft.mnn.weight"]; len(tensors) != 2 || n != 2+11 || tensors[" in llm.mnn.weight"] <= n {
		t.Errorf("tensors %v", tensors)
	}
	if config := read(t, w.out(), "config.json"); !strings.Contains(config, "\"parts\": [\n      \"draft\"\n    ]") {
		t.Errorf("config.json is %s", config)
	}
	// Memory and sizes count both parts.
	pl, err := run.Planned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	single := plan.Plan{Model: pl.Plan.Model, Parts: pl.Plan.Parts[:1]}
	if both, one := pl.Memory(), single.Memory(); both.Weights <= one.Weights || both.PerToken != one.PerToken {
		t.Errorf("memory %+v, of the text model %+v", both, one)
	}
	pkg, err := runtime.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	defer pkg.Close()
	cost, err := stage.CostOf(pkg)
	if err != nil || cost.Memory != pl.Memory() {
		t.Errorf("memory %+v of the package, %+v of the plan, %v", cost.Memory, pl.Memory(), err)
	}
	if files, err := pl.FileBytes(run.Inputs.Path); err != nil || files < cost.Bytes || files > cost.Bytes+100 {
		t.Errorf("%d bytes planned, %d made, %v", files, cost.Bytes, err)
	}
	checkDraft(t, pkg)
}

// checkDraft runs the second part and compares it with the first layer of the source.
func checkDraft(t *testing.T, pkg *runtime.Package) {
	t.Helper()
	src, err := source.Open(t.Context(), source.Origin{Dir: tiny}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ref, err := reference.New(firstLayer(src.Decoder), src.Weights, reference.Options{Threads: 2, Memory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{1, 20, 300, 4000, 50, 6}
	h, err := ref.Hidden(t.Context(), [][]int32{ids})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, len(ids)*src.Decoder.Vocab)
	if err := ref.Logits(t.Context(), want, h); err != nil {
		t.Fatal(err)
	}
	draft := *pkg
	draft.Parts = pkg.Parts[1:]
	if draft.Text().Name != "draft" {
		t.Fatalf("part %q", draft.Text().Name)
	}
	s, err := runtime.NewSession(&draft, cpu.Backend{}, runtime.Options{Mode: backend.Float, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Forward(t.Context(), ids)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d logits, %v", len(got), err)
	}
	for i, v := range got {
		if d := math.Abs(float64(v - want[i])); !(d <= halvesBound) {
			t.Fatalf("logit %d is off by %g", i, d)
		}
	}
}

// A run that ends in the second part resumes there, and gives the same bytes.
func TestPartsResume(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, "verify: {enabled: false}")
	if _, err := w.twoParts(t, "whole", nil).Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	want, text := listing(t, w.out()), int64(len(read(t, w.out(), "llm.mnn.weight")))
	w.unpublish(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	run := w.twoParts(t, "cut", func(s pipeline.State) {
		if s.Stage == "quantize" && s.Done > text && s.Done < s.Total {
			cancel(enough)
		}
	})
	if _, err := run.Execute(ctx, ""); !errors.Is(err, enough) {
		t.Fatalf("error %v", err)
	}
	names, err := filepath.Glob(filepath.Join(w.dir, "cut", "weights-*", "journal"))
	if err != nil || len(names) != 1 || !strings.Contains(read(t, filepath.Dir(names[0]), "journal"), `"part":1`) {
		t.Fatalf("journals %v, %v", names, err)
	}
	if _, err := run.Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Shards that come one after another fill both parts.
func TestPartsStreamed(t *testing.T) {
	w, h, dir := onHub(t, families+"qwen3-untied", 5, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
	if _, err := w.twoParts(t, "cache", nil).Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if n := len(fetched(h, dir)); n != 5 {
		t.Errorf("%d shards were fetched", n)
	}
	got := listing(t, w.out())
	if _, err := w.twoParts(t, "other", nil, "fetch.keep=true", "publish[0].dir=kept").Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(listing(t, filepath.Join(w.dir, "kept")), got); diff != "" {
		t.Errorf("(-kept +streamed):\n%s", diff)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
