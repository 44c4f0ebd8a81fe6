package stage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// What is read off a package is what was planned.
func TestCost(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct{ name, checkpoint, sections string }{
		{"tied", tiny, "quantize: {bits: 4}"},
		{"row blocks", tiny, "quantize: {bits: 3, block: row, symmetric: true}"},
		{"halves", families + "qwen3-tied", "quantize: {bits: 16}"},
		{"table of its own, with biases", families + "qwen2-untied", "quantize: {bits: 5, block: 32}"},
		{"fp32 scales", families + "llama", "quantize: {block: 32}\ntarget: {engine: \"3.5\"}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, c.checkpoint, c.sections+"\nverify: {enabled: false}")
			runs, err := stagetest.Run(t.Context(), filepath.Join(w.dir, "recipe.yaml"), filepath.Join(w.dir, "cache"), 1)
			if err != nil {
				t.Fatal(err)
			}
			src, err := source.Open(t.Context(), source.Origin{Dir: c.checkpoint}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			pl, err := runs[0].Plan(src, nil)
			if err != nil {
				t.Fatal(err)
			}
			var weights, bytes int64
			for it := range pl.Plan.Items() {
				if it.Layout.Rows > 0 {
					weights += int64(it.Layout.Rows) * int64(it.Layout.Cols)
					bytes += it.Size() - it.Bias
				}
			}
			dir := filepath.Join(w.dir, "dist", "small")
			p, err := runtime.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			got, err := stage.CostOf(p)
			if err != nil {
				t.Fatal(err)
			}
			if got.Weights != weights || got.MatrixBytes != bytes || got.BitsPerWeight() != 8*float64(bytes)/float64(weights) {
				t.Errorf("%d weights in %d bytes, planned were %d in %d", got.Weights, got.MatrixBytes, weights, bytes)
			}
			if got.Memory != pl.Memory() {
				t.Errorf("memory %+v, planned was %+v", got.Memory, pl.Memory())
			}
			var files int64
			for _, f := range []string{assemble.ConfigFile, assemble.LLMConfigFile, mnn.GraphFile(""), mnn.WeightFile(""), "tokenizer.mtok"} {
				st, err := os.Stat(filepath.Join(dir, f))
				if err != nil {
					t.Fatal(err)
				}
				files += st.Size()
			}
			if got.Bytes != files {
				t.Errorf("%d bytes, the files have %d", got.Bytes, files)
			}
		})
	}
}
