package lower

import (
	"math"
	"testing"
)

// The function that gelu spells out, step by step in float32, is the exact GELU.
func TestGELU(t *testing.T) {
	const bound = 1e-6 // two roundings of a result of 6
	for x := float32(-12); x <= 12; x += 1. / 512 {
		v := min(max(x, -geluReach), geluReach) * float32(1./geluReach)
		square, y := v*v, float32(0)
		for i := len(geluOdds) - 1; i >= 0; i-- {
			by := square
			if i == 0 {
				by = v
			}
			y = float32(y+float32(geluOdds[i])) * by
		}
		got := x * float32(1/(1+math.Exp(-float64(y))))
		want := float64(x) / 2 * math.Erfc(-float64(x)/math.Sqrt2)
		if off := math.Abs(float64(got) - want); !(off <= bound) {
			t.Fatalf("%g becomes %g, not %g: off by %.2g", x, got, want, off)
		}
	}
}
