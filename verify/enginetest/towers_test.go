//go:build engine

package enginetest

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// maxTowerShare bounds how much the divergence of an engine from transformers may differ from that of the float graph of the weights that the
// codes of a tower stand for, relative to it.
const maxTowerShare = 0.05

// TestQuantizedTowers: with a tower in 8 and in 4 bits, and the text model in 16, the engine is as far from transformers as the float graph of
// the dequantized weights, and with int8 activations it has the logits of our runtime.
func TestQuantizedTowers(t *testing.T) {
	t.Parallel()
	all := engines(t)
	for _, file := range pictureFiles(t) {
		dir := filepath.Dir(file)
		if strings.Contains(filepath.Base(dir), "-") {
			continue // a variant
		}
		golden, err := stagetest.ReadPictures(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, bits := range []int{8, 4} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(dir), bits), func(t *testing.T) {
				t.Parallel()
				block, more := "32", ""
				switch filepath.Base(dir) {
				case "minicpmv": // narrow states
					block = "row"
				case "llava_qwen2": // few channels, and an odd number of columns in the first convolution
					block, more = "row", ", {match: 'patch_embed.0', bits: 16}"
				}
				pkg, err := stagetest.Export(t.Context(), t.TempDir(), dir, fmt.Sprintf("verify: {enabled: false}\nquantize: {bits: 16, overrides: ["+
					"{match: 'visual|vision_|embed_vision|multi_modal|connector|mm_projector|^vpm|^resampler', bits: %d, block: %s}%s]}", bits, block, more))
				if err != nil {
					t.Fatal(err)
				}
				p, err := runtime.Open(pkg)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				vocab := len(golden.Logits) / len(golden.IDs)
				source := golden.Logits[:golden.Prompt*vocab]
				float, int8s := oursPictured(t, p, golden, backend.Float), oursPictured(t, p, golden, backend.Int8)
				want, _ := divergence(t, source, float, vocab)
				for _, e := range runs(all, form{engine: "3.6"}) {
					prepared(t, pkg, "high", "high")
					got, _ := e.conversation(t, pkg, map[string]any{"memory": "high"}, script(golden)[:1])
					kl, _ := divergence(t, source, got, vocab)
					prepared(t, pkg, "high", "low")
					got, _ = e.conversation(t, pkg, map[string]any{"memory": "low"}, script(golden)[:1])
					apart, _ := divergence(t, int8s, got, vocab)
					shipped, _ := divergence(t, source, got, vocab)
					t.Logf("engine %s: KL %.6g, of the float graph %.6g; int8 %.6g, apart from our runtime %.2g", e.version, kl, want, shipped, apart)
					if !(math.Abs(kl-want) <= maxTowerShare*want) || !(apart <= maxInt8) {
						t.Errorf("engine %s: KL %g, of the float graph %g; int8 apart from our runtime by %g", e.version, kl, want, apart)
					}
				}
			})
		}
	}
}
