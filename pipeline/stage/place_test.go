package stage_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/verify"
)

// A package goes to every place that the recipe names.
func TestTwoPlaces(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\nverify: {enabled: false}\npublish: [{dir: a}, {dir: deep/b}]")
	runs := w.must(t)
	a, b := filepath.Join(w.dir, "a"), filepath.Join(w.dir, "deep", "b")
	if diff := cmp.Diff(listing(t, a), listing(t, b)); diff != "" {
		t.Errorf("places (-a +b):\n%s", diff)
	}
	var places []string
	for _, x := range runs[0].Published {
		places = append(places, x.Ref)
	}
	if !slices.Equal(places, []string{a, b}) {
		t.Errorf("places %q", places)
	}
	// Files are copies: editing a published config.json leaves the cache and the other place alone.
	change(t, filepath.Join(a, "config.json"), func(b []byte) []byte { return append(b, ' ') })
	listing(t, b)
	if _, err := w.run(t); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("an edited package is published over: %v", err)
	}
}

// What stands at the place and is no package of ours is left alone.
func TestOccupied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		put  func(path string) error
		text string
	}{
		{"file", func(path string) error { return os.WriteFile(path, []byte("mine"), 0o666) }, "not a directory"},
		{"directory", func(path string) error {
			if err := os.Mkdir(path, 0o777); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(path, "mine.txt"), []byte("mine"), 0o666)
		}, "no package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\nverify: {enabled: false}\npublish: [{dir: there, replace: true}]")
			place := filepath.Join(w.dir, "there")
			if err := c.put(place); err != nil {
				t.Fatal(err)
			}
			before := tree(t, place)
			if _, err := w.run(t); err == nil || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "publish: ") {
				t.Errorf("%v, want %q", err, c.text)
			}
			if diff := cmp.Diff(before, tree(t, place)); diff != "" {
				t.Errorf("the place (-before +after):\n%s", diff)
			}
			entries, err := os.ReadDir(w.dir)
			if err != nil || len(entries) != 3 { // recipe, cache, there
				t.Errorf("left: %v, %v", entries, err)
			}
		})
	}
}

// Another package at the place is replaced only when the recipe allows it.
func TestReplace(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\nverify: {enabled: false}")
	w.must(t)
	old := listing(t, w.out())
	if _, err := w.run(t, "quantize.bits=8"); err == nil || !strings.Contains(err.Error(), "replace") {
		t.Errorf("another package: %v", err)
	}
	if diff := cmp.Diff(old, listing(t, w.out())); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	runs := w.must(t, "quantize.bits=8", "publish[0].dir=dist/small", "publish[0].replace=true")
	if list := runs[0].Published; len(list) != 1 || list[0].Status != place.Replaced {
		t.Errorf("%+v", list)
	}
	if listing(t, w.out()) == old {
		t.Error("the old package is still there")
	}
}

// Variants are packages of their own that share what does not differ.
func TestVariants(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen2-tied", "quantize: {block: 32, bits: 4}\nverify: {enabled: false}\n"+
		"variants: [{name: small-8, quantize: {bits: 8}}, {name: small-old, target: {engine: \"3.5\"}}]")
	runs := w.must(t)
	if len(runs) != 3 {
		t.Fatalf("%d runs", len(runs))
	}
	for i, c := range []struct{ name, spec, engine string }{
		{"small", "w4-b32-asym", "3.6.0"}, {"small-8", "w8-b32-asym", "3.6.0"}, {"small-old", "w4-b32-asym", "3.5.0"},
	} {
		dir := filepath.Join(w.dir, "dist", c.name)
		listing(t, dir)
		m, err := manifest.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		spec := ""
		for _, x := range m.Tensors {
			if strings.HasSuffix(x.Op, "/gate_proj/Linear") {
				spec = x.Spec
			}
		}
		if m.Name != c.name || !strings.HasPrefix(spec, c.spec) || m.MinimumEngine != c.engine || m.Verified {
			t.Errorf("%d: %s, %s, engine %s, verified %v", i, m.Name, spec, m.MinimumEngine, m.Verified)
		}
	}
	// The checkpoint of all, the tokenizer of those for one engine.
	if a, b := runs[0], runs[1]; a.Checkpoint != b.Checkpoint || a.Inputs.Path != b.Inputs.Path || a.Weights.Path == b.Weights.Path {
		t.Errorf("artifacts %+v, %+v", a, b)
	}
}

// The last override that matches wins, and counts on whole names of the checkpoint.
func TestOverrides(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-untied", `quantize: {block: 32, overrides: [{match: mlp, bits: 8}, {match: "layers[.]1[.]mlp[.]up", bits: 16}, {match: "q_proj", symmetric: true, block: row}, {match: "^lm_head", bits: 5}]}`+"\nverify: {enabled: false}")
	w.must(t)
	m, err := manifest.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]string{}
	for _, x := range m.Tensors {
		specs[x.Name] = x.Spec
	}
	got := map[string]string{}
	want := map[string]string{
		"model.layers.0.mlp.up_proj.weight":      "w8-b32-asym",
		"model.layers.1.mlp.up_proj.weight":      "f16",
		"model.layers.1.mlp.gate_proj.weight":    "w8-b32-asym",
		"model.layers.1.self_attn.q_proj.weight": "w4-brow-sym",
		"model.layers.1.self_attn.k_proj.weight": "w4-b32-asym",
		"model.embed_tokens.weight":              "w8-b32-asym",
		"lm_head.weight":                         "w5-b32-asym",
	}
	for name := range want {
		got[name] = specs[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("specs (-want +got):\n%s", diff)
	}
}

// A package that fails its checks is kept for a look and not published; the error has the names and the reasons.
func TestFailedVerification(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\nverify: {kl: {max: 0}, perplexity: {window: 16, windows: 1, decode: 4}}")
	for range 2 { // the verdict is an artifact: a second run says the same
		_, err := w.run(t)
		var failed *stage.FailedError
		if !errors.As(err, &failed) {
			t.Fatalf("%v", err)
		}
		// Random weights do not model the text either.
		if diff := cmp.Diff([]string{"source", "kl", "decode"}, names(failed)); diff != "" {
			t.Errorf("failing (-want +got):\n%s", diff)
		}
		for _, c := range failed.Checks {
			if c.Detail == "" || !strings.Contains(err.Error(), "\n  "+c.Name+": "+c.Detail) {
				t.Errorf("detail %q of %q", c.Detail, err)
			}
		}
		if _, err := os.Stat(filepath.Dir(w.out())); !os.IsNotExist(err) {
			t.Errorf("something was published: %v", err)
		}
		// The commands that the error names have a package to work on, and nothing is repeated for them.
		if !strings.Contains(err.Error(), "llmexport verify "+failed.Dir+" --source "+failed.Source) ||
			!strings.Contains(err.Error(), "llmexport publish "+failed.Dir) {
			t.Errorf("the error names no way on: %v", err)
		}
		if _, err := place.OpenVerified(t.Context(), failed.Dir); err != nil {
			t.Errorf("publish: %v", err)
		}
		m, err := manifest.Open(failed.Dir)
		if err != nil {
			t.Fatal(err)
		}
		o, err := stage.OptionsOf(m, pipeline.Limits{Memory: 1 << 30, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		res, err := stage.VerifyPackage(t.Context(), failed.Dir, failed.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(names(failed), res.Failed()); diff != "" {
			t.Errorf("verify (-run +verify):\n%s", diff)
		}
	}
	// Larger limits are another recipe.
	if runs := w.must(t, "verify.kl.max=1", "verify.perplexity.max_source=10000"); len(runs) != 1 {
		t.Error("no run")
	}
	m, err := manifest.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	if !m.Verified || len(m.Checks) != len(verify.Names()) || len(m.Goldens) != 1 || len(m.Metrics) < 10 {
		t.Errorf("verified %v, %d checks, %d goldens, %d metrics", m.Verified, len(m.Checks), len(m.Goldens), len(m.Metrics))
	}
}

// Tokenizers are compared once for all variants and runs that package the same tokenizer, and again for another one.
func TestParityKept(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", "quantize: {block: 32}\n"+
		"verify: {perplexity: {window: 16, windows: 1, decode: 4, max_source: 10000}}\npublish: [{dir: a}]")
	kept := func() int {
		list, err := filepath.Glob(filepath.Join(w.cache(), "parity-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	w.must(t)
	w.must(t, "quantize.bits=8", "publish[0].dir=b")
	if n := kept(); n != 1 {
		t.Errorf("%d comparisons of one tokenizer", n)
	}
	w.must(t, "rewrite.template.text=hello", "publish[0].dir=c")
	if n := kept(); n != 2 {
		t.Errorf("%d comparisons of two tokenizers", n)
	}
}

// A model whose numbers halves cannot hold gets a package that asks for more precision, and that passes.
func TestLargeActivations(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	cp := checkpoint{t, t.TempDir()}
	if err := os.CopyFS(cp.dir, os.DirFS(tiny)); err != nil {
		t.Fatal(err)
	}
	// Exact in bfloat16, and the same function: what up_proj makes larger, down_proj makes smaller.
	cp.scale("model.layers.1.mlp.up_proj.weight", 17)
	cp.scale("model.layers.1.mlp.down_proj.weight", -17)
	for _, c := range []struct{ name, dir, precision string }{{"large", cp.dir, "normal"}, {"small", tiny, "low"}} {
		w := newWork(t, c.dir, "quantize: {scale: fp32}\nverify: {perplexity: {window: 16, windows: 2, decode: 4}}")
		w.must(t)
		p, err := runtime.Open(w.out())
		if err != nil {
			t.Fatal(err)
		}
		if p.Config.Precision != c.precision {
			t.Errorf("%s: precision %s, want %s", c.name, p.Config.Precision, c.precision)
		}
		p.Close()
		listing(t, w.out())
		m, err := manifest.Open(w.out())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(m.Checks, func(x manifest.Check) bool { return x.Name == "activations" })
		if !m.Verified || !m.Checks[i].Passed || !strings.Contains(m.Checks[i].Detail, "precision "+c.precision) {
			t.Errorf("%s: %+v", c.name, m.Checks[i])
		}
	}
}

// A Gemma whose residual stream leaves the range of halves gets configurations that stay finite: float on the CPU of a phone at normal, and
// high where a backend stores halves at normal, too.
func TestGemmaBeyondHalves(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	cp := checkpoint{t, t.TempDir()}
	if err := os.CopyFS(cp.dir, os.DirFS("../arch/testdata/gemma3_text")); err != nil {
		t.Fatal(err)
	}
	cp.scale("model.layers.0.post_feedforward_layernorm.weight", 20)
	const relaxed = "verify: {perplexity: {window: 32, windows: 1, decode: 4, max_source: 1e30, max_ratio: 2}, kl: {max: 1}}"
	for _, target := range []string{"", "target: {backends: [cpu, vulkan]}\n"} {
		w := newWork(t, cp.dir, target+"quantize: {bits: 16}\n"+relaxed)
		w.must(t)
		p, err := runtime.Open(w.out())
		if err != nil {
			t.Fatal(err)
		}
		if p.Config.Precision != "normal" {
			t.Errorf("%s: precision %s", target, p.Config.Precision)
		}
		if target != "" {
			b, err := os.ReadFile(filepath.Join(w.out(), "config.vulkan.json"))
			if err != nil || !strings.Contains(string(b), `"precision": "high"`) {
				t.Errorf("%v, %s", err, b)
			}
		}
		for _, half := range []bool{true, false} {
			s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Half: half})
			if err != nil {
				t.Fatal(err)
			}
			beyond := 0
			s.Peaks = func(_ *mnn.Op, peak float32) {
				if !(peak < 65504) {
					beyond++
				}
			}
			l, err := s.Forward(t.Context(), []int32{3, 4, 5, 6})
			if err != nil {
				t.Fatal(err)
			}
			if bad := slices.ContainsFunc(l, func(v float32) bool { return v-v != 0 }); beyond == 0 || bad {
				t.Errorf("half %v: %d ops beyond the range of halves, logits not finite: %v", half, beyond, bad)
			}
		}
		p.Close()
	}
}

// Every section has options whose schema and defaults can be printed, and no section is a stranger.
func TestTable(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"fetch", "rewrite", "calibrate", "quantize", "verify", "sign", "publish"}, stage.Sections()); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
	r, err := recipes.Load([]byte("version: 1\nname: a\nmodel: {path: x}\n"), "a.yaml", stage.Sections())
	if err != nil {
		t.Fatal(err)
	}
	run, err := stage.New(r, pipeline.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range run.Stages() {
		names = append(names, s.String())
	}
	if diff := cmp.Diff([]string{"fetch", "rewrite", "calibrate", "allocate", "quantize", "verify", "sign", "publish"}, names); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	text, err := recipes.EffectiveJSON(r, run.BySection())
	if err != nil {
		t.Fatal(err)
	}
	again, err := recipes.Load(text, "a.yaml", stage.Sections())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	run2, err := stage.New(again, pipeline.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	text2, err := recipes.EffectiveJSON(again, run2.BySection())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(text2)); diff != "" {
		t.Errorf("defaults (-first +again):\n%s", diff)
	}
}

// names lists the checks that failed.
func names(e *stage.FailedError) []string {
	var list []string
	for _, c := range e.Checks {
		list = append(list, c.Name)
	}
	return list
}
