package kernel

import (
	"math/rand/v2"
	"testing"
)

// TestQuadParity takes sums of every length and number of rows, with strides, extremes and subnormal sums.
func TestQuadParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(13, 14))
		for n := range 20 {
			for heads := 1; heads <= 8; heads++ {
				for count := 1; count <= 5; count++ {
					p := tileProduct{
						heads: heads, n: n, count: count,
						dstStride: count*tileColumns + r.IntN(3), xStride: n + r.IntN(3), tStride: n*tileColumns + r.IntN(3),
					}
					oneOf := []int{1 << 30, 40}[r.IntN(2)]
					x, tiles := spiced(r, heads*p.xStride, oneOf), spiced(r, count*p.tStride, oneOf)
					if r.IntN(4) == 0 {
						for i := range x {
							x[i] *= 0x1p-70
						}
						for i := range tiles {
							tiles[i] *= 0x1p-70
						}
					}
					var factors []float32
					if r.IntN(2) == 0 {
						factors = spiced(r, heads, oneOf)
					}
					want := append(random(r, heads*p.dstStride), canaries(9)...)
					got := append([]float32{}, want...)
					p.generic(want, x, tiles, 0.3, factors, true)
					p.quad(got, x, tiles, 0.3, factors, nil)
					if i := firstDifference(got, want); i >= 0 {
						t.Fatalf("%+v: element %d is %x, want %x", p, i, got[i], want[i])
					}
				}
			}
		}
	})
}
