package stage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// newRun makes the run of a work's recipe, with a store of its own and a log.
func newRun(t *testing.T, w work, overrides ...string) (*stage.Run, *bytes.Buffer) {
	t.Helper()
	r, err := recipes.LoadFile(w.recipe(), stage.Sections(), overrides...)
	if err != nil {
		t.Fatal(err)
	}
	run, err := stage.New(r, pipeline.Limits{Memory: 1 << 30, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	store, err := pipeline.OpenStore(w.cache())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	run.Store = store
	return run, &bytes.Buffer{}
}

// execute runs the stages up to one, and logs to b.
func execute(t *testing.T, run *stage.Run, b *bytes.Buffer, until string) error {
	t.Helper()
	_, err := run.Execute(zerolog.New(zerolog.SyncWriter(b)).WithContext(t.Context()), until)
	return err
}

// Whatever a run does, it opens the checkpoint once, reads the tokenizer once, and decodes the recipe once, when it is made.
func TestOpenedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const (
		verified = "verify: {perplexity: {window: 16, windows: 1, decode: 4, max_source: 10000}, tokenizer: {strings: 30}}\n"
		watched  = "calibrate: {tokens: 512, window: 64, probe: 64}\nquantize: {method: [awq, gptq], block: 32, budget: {bpw: 5}}\n"
	)
	for _, c := range []struct {
		name     string
		sections string
		hub      bool
	}{
		{"directory", "quantize: {block: 32}\n" + verified, false},
		{"directory, calibrated for a budget", watched + verified, false},
		{"hub", "quantize: {block: 32}\n" + verified, true},
		{"hub, calibrated for a budget", watched + verified, true},
		{"hub, streamed", "fetch: {keep: false}\nquantize: {block: 32}\n" + verified, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w work
			if c.hub {
				w, _, _ = onHub(t, families+"llama", 2, c.sections)
			} else {
				w = newWork(t, families+"llama", c.sections)
			}
			run, log := newRun(t, w)
			// Decoding a section again would fail.
			text := "version: 1\nname: x\nmodel: {path: x}\npublish: [{x: 1}]\n"
			for _, s := range stage.Sections()[:5] {
				text += s + ": {x: 1}\n"
			}
			poison, err := recipes.Load([]byte(text), w.recipe(), stage.Sections())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stage.New(poison, pipeline.Limits{}); err == nil {
				t.Fatal("sections that decode")
			}
			run.Recipe.Stages = poison.Stages
			if err := execute(t, run, log, ""); err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"opening the checkpoint", "reading the tokenizer"} {
				if n := strings.Count(log.String(), `"message":"`+what+`"`); n != 1 {
					t.Errorf("%s: %d times", what, n)
				}
			}
			listing(t, w.out())
		})
	}
}

// A run up to a stage leaves its entries in the store, where another run finds them: it makes the later ones only.
func TestUntilStage(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"llama", "quantize: {block: 32}\n"+unverified)
	run, log := newRun(t, w)
	if err := execute(t, run, log, "quantize"); err != nil {
		t.Fatal(err)
	}
	if !run.Weights.Made() || run.Verdict.Made() || len(run.Published) > 0 {
		t.Errorf("made %+v", run.Made)
	}
	entries := func() map[string]int64 {
		m := tree(t, w.cache())
		for name := range m {
			if !strings.HasPrefix(name, "rewrite-") && !strings.HasPrefix(name, "weights-") || filepath.Base(name) == "done.json" {
				delete(m, name)
			}
		}
		return m
	}
	before, weights := entries(), run.Weights
	w.must(t)
	if diff := cmp.Diff(before, entries()); diff != "" {
		t.Errorf("entries (-quantize +publish):\n%s", diff)
	}
	again, log := newRun(t, w)
	err := execute(t, again, log, "quantize")
	if weights.From = pipeline.Cached; err != nil || again.Weights != weights {
		t.Errorf("%+v, then %+v: %v", weights, again.Weights, err)
	}
	if err := execute(t, again, log, "quantise"); err == nil || !strings.Contains(err.Error(), "fetch, rewrite, calibrate, allocate, quantize") {
		t.Error(err)
	}
}

// Options that a caller changes on a run are those that every stage works with.
func TestChangedOptions(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"llama", "quantize: {block: 32}\n")
	w.must(t, "verify.enabled=false")
	run, log := newRun(t, w)
	run.Verify.Enabled, run.Quantize.Bits = false, 8
	if err := execute(t, run, log, ""); err == nil || !strings.Contains(err.Error(), "contains another package") {
		t.Fatalf("another package is replaced: %v", err)
	}
	run.Publish = run.Publish.Targets(run)
	var err error
	if run.Publish[0], err = run.Publish[0].With("replace"); err != nil {
		t.Fatal(err)
	}
	if err := execute(t, run, log, ""); err != nil {
		t.Fatal(err)
	}
	if n := specsOf(t, w.out())["w8-b32-asym"]; n < 10 {
		t.Errorf("%d matrices of 8 bits", n)
	}
}

// A source that was opened is used again for the same checkpoint only.
func TestReopened(t *testing.T) {
	t.Parallel()
	cp := checkpoint{t, t.TempDir()}
	if err := os.CopyFS(cp.dir, os.DirFS(families+"qwen3-untied")); err != nil {
		t.Fatal(err)
	}
	w := newWork(t, cp.dir, "quantize: {block: 32}\n"+unverified)
	run, log := newRun(t, w)
	if err := execute(t, run, log, "rewrite"); err != nil {
		t.Fatal(err)
	}
	first, err := run.Source(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if same, err := run.Source(t.Context()); err != nil || same != first {
		t.Errorf("opened again: %v", err)
	}
	cp.element(up, 0x3f80)
	if err := execute(t, run, log, "rewrite"); err != nil {
		t.Fatal(err)
	}
	if other, err := run.Source(t.Context()); err != nil || other == first {
		t.Errorf("another checkpoint is not opened: %v", err)
	}
}
