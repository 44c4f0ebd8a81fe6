package stage_test

import (
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestQuantized: a checkpoint of packed codes goes through all stages, and the package is verified against its own
// weights.
func TestQuantized(t *testing.T) {
	for _, o := range []packed.Options{
		{Format: packed.GPTQ, Bits: 4, Group: 128, Symmetric: true, Scale: tensor.F16},
		{Format: packed.AWQ, Bits: 4, Group: 64, Scale: tensor.F16},
		{Format: packed.Compressed, Bits: 8, Group: -1, Symmetric: true, Scale: tensor.BF16},
	} {
		t.Run(string(o.Format), func(t *testing.T) {
			dir := t.TempDir()
			if err := packed.Convert(dir, tiny, o); err != nil {
				t.Fatal(err)
			}
			src, err := stage.OpenSource(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if src.Quantized == nil || len(src.Quantized.Names()) != 7*len(src.Decoder.Layers) {
				t.Fatal("matrices are not packed")
			}
			w := newWork(t, dir, "quantize: {bits: 8}\nverify: {perplexity: {window: 128, windows: 4, decode: 4}}")
			w.must(t)
			listing(t, w.out())
		})
	}
}
