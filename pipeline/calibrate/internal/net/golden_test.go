package net

import (
	"math"
	"path/filepath"
	"testing"
)

// logitBound is what transformers and this package may differ by: both compute in float32, sum in different orders, and
// round rotary angles differently. Observed is a tenth of it.
const logitBound = 1e-4

// Goldens are logits of transformers from the same weights, for every family.
func TestGoldens(t *testing.T) {
	families, err := filepath.Glob(filepath.Join(familiesDir, "*", "golden.safetensors"))
	if err != nil || len(families) < 8 {
		t.Fatalf("%d families: %v", len(families), err)
	}
	for _, file := range families {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			golden := readFile(t, file)
			p := load(t, openModel(t, dir, 2))
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
			if worst > logitBound {
				t.Errorf("largest error of a logit: %.2g", worst)
			}
			t.Logf("largest error of a logit: %.2g", worst)
		})
	}
}
