package kernel

import (
	"math/rand/v2"
	"testing"
)

func TestGridSearchBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(55, 56))
		for _, n := range []int{1, 3, 32, 64, 129} {
			for _, grids := range []int{1, 15, 16, 17, 31, 32, 33, 72} {
				c := newGridCase(r, n, grids)
				x, importance := guarded(t, c.x), guarded(t, c.importance)
				zero, scale, inverse := guarded(t, c.zero), guarded(t, c.scale), guarded(t, c.inverse)
				GridSums(guarded(t, make([]float64, 3*grids)), x, importance, zero, inverse, 4)
				GridErrors(guarded(t, make([]float64, grids)), x, importance, zero, scale, inverse, 4)
			}
		}
	})
}
