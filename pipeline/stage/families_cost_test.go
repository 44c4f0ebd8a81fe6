package stage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/bench"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// What a graph tells of the memory of keys, values and states is what lowering said of it, in every family.
func TestCostsOfFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const root = "../arch/testdata"
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		dir := filepath.Join(root, d.Name())
		if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
			continue
		}
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			r, err := recipes.Load([]byte("version: 1\nname: x\nmodel: {path: x}\nquantize: {bits: 16}\n"), "x.yaml", Sections())
			if err != nil {
				t.Fatal(err)
			}
			run, err := New(r, pipeline.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			pl, err := run.Plan(src, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := pl.Plan.Parts[0].Graph().Marshal()
			if err != nil {
				t.Fatal(err)
			}
			g, err := mnn.Open(b)
			if err != nil {
				t.Fatal(err)
			}
			var state int64
			names := map[string]bool{}
			for _, op := range g.AllOps() {
				if names[op.Name] {
					t.Errorf("two ops are called %q", op.Name)
				}
				names[op.Name] = true
				if p, ok := op.Param.(*mnn.LinearAttention); ok {
					state += stateBytes(g, op, p)
				}
			}
			m := pl.Memory()
			if got := 4 * bench.CostOf(g).CacheWidth; got != m.PerToken || state != m.State {
				t.Errorf("%d bytes of a token and %d of states, planned were %d and %d", got, state, m.PerToken, m.State)
			}
		})
	}
}
