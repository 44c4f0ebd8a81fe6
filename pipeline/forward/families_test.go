package forward

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Every family has a gradient at the embedding, which agrees with differences of the loss.
func TestFamilyGradients(t *testing.T) {
	families, err := filepath.Glob(filepath.Join(familiesDir, "*", "golden.safetensors"))
	if err != nil || len(families) < 50 {
		t.Fatalf("%d families: %v", len(families), err)
	}
	for i, file := range families {
		if testing.Short() && i%4 != 0 {
			continue
		}
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			d, src := openSource(t, dir)
			p := load(t, newModel(t, d, src, 2))
			windows := randomTokens(d.Vocab, 2, 9)
			if !testing.Short() {
				windows = stableTokens(t, p, 2, 9)
			}
			_, dh, _ := backward(t, p, windows)
			if kernel.NonFinite(dh) >= 0 || dotProduct(dh, dh) == 0 {
				t.Fatal("the gradient is 0 or not finite")
			}
			if testing.Short() {
				return
			}
			of, states := lengths(windows), &parameter{name: "states", x: p.embed(t, windows), changed: func() {}, gradient: doubles(dh)}
			choices := p.choices(t, slices.Clone(states.x), of)
			loss := func() float64 {
				h := slices.Clone(states.x)
				if !slices.Equal(p.choices(t, h, of), choices) {
					return math.NaN()
				}
				h = p.head.Input(h, h)
				logits := make([]float32, len(h)/d.Hidden*d.Vocab)
				check(t, p.head.Logits(t.Context(), logits, h))
				return p.CrossEntropyGradient(logits, given(slices.Concat(windows...)))
			}
			checkGradients(t, loss, []*parameter{states}, boundOf(d))
		})
	}
}
