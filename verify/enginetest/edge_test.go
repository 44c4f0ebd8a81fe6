//go:build engine

package enginetest

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/verify"
)

// maxActivationCost bounds what int8 activations may add to the engine's perplexity. A channel that is 30 times as large
// coarsens its own block: blocks of 32 cost 0.02 to 0.25 % here, blocks of 64, of which three in four have such a channel,
// cost 0.3 to 0.5 %. Without outliers it is less than 0.1 %.
const maxActivationCost = 1.003

// TestOutliers: a model with outlying channels is shipped with activations quantized in blocks, because that was
// measured to be better, and on the engine these cost next to nothing. The model without them keeps one scale a token.
func TestOutliers(t *testing.T) {
	t.Parallel()
	checkpoint, cache := outlying(t), t.TempDir()
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		p, err := runtime.Open(exportAs(t, cache, checkpoints(t, false)[0], "quantize: {bits: 4, block: 32}"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if p.Config.DynamicOption != 0 {
			t.Errorf("dynamic_option is %d without outliers", p.Config.DynamicOption)
		}
	})
	for _, c := range []struct{ name, quantize string }{
		{"rtn-w8", "bits: 8, block: 32"},
		{"gptq-w4", "method: gptq, bits: 4, block: 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := exportAs(t, cache, checkpoint, quick+"quantize: {"+c.quantize+"}")
			p, err := runtime.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			m, err := manifest.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if p.Config.DynamicOption != 2 || !slices.ContainsFunc(m.Conditions, func(s string) bool { return strings.Contains(s, "measured") }) {
				t.Errorf("dynamic_option is %d, conditions are %q", p.Config.DynamicOption, m.Conditions)
			}
			w := windows(t, p, 4, 512)
			for _, e := range newest(t) {
				perplexityOf := func(config map[string]any) float64 {
					return perplexity(e.logits(t, dir, config, w, 0), w, p.Vocabulary())
				}
				float := perplexityOf(map[string]any{"memory": "high"})
				asShipped := perplexityOf(map[string]any{"memory": "low"})
				wholeRows := perplexityOf(map[string]any{"memory": "low", "dynamic_option": 0})
				t.Logf("engine %s: perplexity %.4f in float, %.4f (%+.3f %%) as shipped, %.4f (%+.3f %%) with dynamic_option 0",
					e.version, float, asShipped, 100*(asShipped/float-1), wholeRows, 100*(wholeRows/float-1))
				if !(asShipped <= maxActivationCost*float) {
					t.Errorf("engine %s: perplexity %.4f as shipped, %.4f in float", e.version, asShipped, float)
				}
				if !(wholeRows > maxActivationCost*float) {
					t.Errorf("engine %s: the model has no outliers that matter", e.version)
				}
			}
			agree(t, newest(t), dir)
		})
	}
}

// TestEdges: columns that no block divides, and weights that are constant, zero or never used, go through all stages
// and are on the engine what they are in our runtime.
func TestEdges(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	for _, c := range []struct {
		name         string
		intermediate int
		quantize     string
		down         string // spec of down_proj
	}{
		{"rtn-736", 736, "bits: 4, block: auto", "w4-b32-asym"},
		{"gptq-736", 736, "method: gptq, bits: 3, block: auto, symmetric: true", "w3-b32-sym"},
		{"gptq-712", 712, "method: gptq, bits: 4, block: auto", "w4-brow-asym"},
		{"awq-search-712", 712, "method: [awq, search], bits: 5, block: auto", "w5-brow-asym"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := exportAs(t, cache, edged(t, c.intermediate), quick+"quantize: {"+c.quantize+"}\nverify: {perplexity: {windows: 2, window: 128, decode: 8}}")
			m, err := manifest.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range m.Tensors {
				if x.Name == "model.layers.0.mlp.down_proj.weight" && x.Spec != c.down {
					t.Errorf("%s is stored as %s", x.Name, x.Spec)
				}
			}
			agree(t, newest(t), dir)
		})
	}
}

// newest is the last engine of the list.
func newest(t *testing.T) []*engine {
	t.Helper()
	all := engines(t)
	return all[len(all)-1:]
}

// windows are spread evenly over the built-in text, as those of verification.
func windows(t *testing.T, p *runtime.Package, n, tokens int) [][]int32 {
	t.Helper()
	ids := p.Tokenizer.Encode(verify.BuiltIn)
	if len(ids) < n*tokens {
		t.Fatalf("%d tokens", len(ids))
	}
	var list [][]int32
	for i := range n {
		at := i * (len(ids) / n)
		list = append(list, ids[at:at+tokens])
	}
	return list
}

// perplexity of logits of all windows; the last position of a window has no target.
func perplexity(logits []float32, windows [][]int32, vocab int) float64 {
	sum, count := 0.0, 0
	for _, w := range windows {
		for i := range w {
			row := logits[:vocab]
			if logits = logits[vocab:]; i+1 < len(w) {
				sum, count = sum+logSumExp(row)-float64(row[w[i+1]]), count+1
			}
		}
	}
	return math.Exp(sum / float64(count))
}
