package stage_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// followed makes a run of the trained model with a calibrated method and a budget; the states of its progress are appended to
// states.
func followed(t *testing.T, dir string, states *[]pipeline.State, overrides ...string) *stage.Run {
	t.Helper()
	model, err := filepath.Abs("../../testdata/tiny-qwen3")
	if err != nil {
		t.Fatal(err)
	}
	text := "version: 1\nname: t\nmodel: {path: " + model + "}\nquantize: {method: gptq, budget: {bpw: 4}}\n" +
		"calibrate: {tokens: 640, window: 32, probe: 64}\nverify: {perplexity: {windows: 1, window: 64, decode: 4}, tokenizer: {strings: 200}}\n" +
		"publish: [{dir: " + filepath.Join(dir, "out") + "}]\n"
	file := filepath.Join(dir, "recipe.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := recipes.LoadFile(file, stage.Sections(), overrides...)
	if err != nil {
		t.Fatal(err)
	}
	l := pipeline.Limits{Memory: 1 << 30, Threads: 2, Progress: pipeline.NewProgress(func(s pipeline.State) { *states = append(*states, s) })}
	run, err := stage.New(r, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	store, err := pipeline.OpenStore(filepath.Join(dir, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	run.Store = store
	return run
}

// missing is the first entry that a run would make.
func missing(t *testing.T, run *stage.Run) string {
	t.Helper()
	s, err := run.Fetch.Resolve(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	name, err := run.Missing(t.Context(), &hub.Snapshot{Dir: s.Dir, Files: s.Files})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Every stage shows itself before it works, no fraction falls, long stages move between their reports, and what the store has is no
// part of the next estimate.
func TestFollowed(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	dir := t.TempDir()
	var states []pipeline.State
	run := followed(t, dir, &states)
	if got := missing(t, run); got != "rewrite" {
		t.Errorf("at first %q is missing", got)
	}
	if _, err := run.Execute(t.Context(), "allocate"); err != nil {
		t.Fatal(err)
	}
	if got := missing(t, run); got != "codes" {
		t.Errorf("after the allocation %q is missing", got)
	}
	if _, err := run.Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := missing(t, run); got != "" {
		t.Errorf("at the end %q is missing", got)
	}
	var begun []string
	at := map[string]pipeline.State{}
	for _, s := range states {
		last, ok := at[s.Stage]
		if !ok || s.Number < last.Number {
			begun = append(begun, s.Stage)
		}
		if ok && last.Fraction < 1 && s.Fraction < last.Fraction {
			t.Errorf("%s falls from %v to %v", s.Stage, last.Fraction, s.Fraction)
		}
		at[s.Stage] = s
	}
	if got := strings.Join(begun, " "); got != "fetch rewrite calibrate allocate quantize verify publish" {
		t.Errorf("stages began in the order %s", got)
	}
	first := slices.IndexFunc(states, func(s pipeline.State) bool { return s.Stage == "calibrate" && s.TotalLeft > 0 })
	if first < 0 || states[first].Fraction > .1 {
		t.Error("the time that is left is not known when the work begins")
	}
}

// A verification that is repeated with other options of the engine is not done after the first time: all but its tokenizers, most of the
// work for a small model, is compared once more.
func TestFollowedTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	var states []pipeline.State
	run := followed(t, t.TempDir(), &states, "quantize={method: rtn, bits: 8}")
	if _, err := run.Execute(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	again := slices.IndexFunc(states, func(s pipeline.State) bool { return s.What == "windows, once more" })
	if again < 1 || states[again-1].What != "windows" || states[again-1].Fraction > .9 {
		t.Errorf("the second verification begins at state %d, after %+v", again, states[max(again-1, 0)])
	}
}
