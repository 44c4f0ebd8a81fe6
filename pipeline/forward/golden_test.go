package forward

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// logitBound is what transformers and this package may differ by: both compute in float32, sum in different orders, and
// round rotary angles differently. Observed is a tenth of it.
const logitBound = 1e-4

// deltaBound is logitBound for the gated delta rule, whose states amplify roundings. Observed is a third of it; the tests of
// pipeline/reference compare with transformers in float64.
const deltaBound = 4e-4

// Goldens are logits of transformers from the same weights, for every family.
func TestGoldens(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	families, err := filepath.Glob(filepath.Join(familiesDir, "*", "golden.safetensors"))
	if err != nil || len(families) < 50 {
		t.Fatalf("%d families: %v", len(families), err)
	}
	for _, file := range families {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			golden := readFile(t, file)
			d, src := openSource(t, dir)
			p := load(t, newModel(t, d, src, 2))
			var worst float64
			for _, i := range []string{"0", "1"} {
				got := p.logits(t, [][]int32{golden.tokens(t, "ids_"+i)})
				want := golden.floats("logits_" + i)
				if len(got) != len(want) {
					t.Fatalf("%d logits, want %d", len(got), len(want))
				}
				for j := range want {
					worst = max(worst, math.Abs(float64(got[j])-float64(want[j])))
					if math.IsNaN(float64(got[j])) {
						t.Fatalf("logit %d is NaN", j)
					}
				}
			}
			bound := logitBound
			for _, l := range d.Layers {
				if _, ok := l[0].Block.(*arch.DeltaNet); ok {
					bound = deltaBound
				}
			}
			if worst > bound {
				t.Errorf("largest error of a logit: %.2g", worst)
			}
			t.Logf("largest error of a logit: %.2g", worst)
		})
	}
}
