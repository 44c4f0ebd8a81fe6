package kernel

import (
	"math/rand/v2"
	"testing"
)

// TestMatMulBounds runs the products on slices that end where the memory ends.
func TestMatMulBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(23, 24))
		float := func(n int) []float32 { return guarded(t, random(r, n)) }
		shapes := [][3]int{{1, 1, 1}, {1, 8, 7}, {3, 9, 9}, {4, 2, 5}, {8, 8, 1}, {9, 8, 15}, {12, 32, 8}, {12, 11, 513}, {13, 33, 257}, {1, 128, 256},
			{1, 200, 9}, {1, 64, 5}, {1, 192, 3}}
		for m := 1; m <= 14; m++ {
			shapes = append(shapes, [3]int{m, 32, 6}, [3]int{m, 37, 13})
		}
		for _, s := range shapes {
			m, n, k := s[0], s[1], s[2]
			MatMulT(float(m*n), float(m*k), float(n*k), m, n, k, n, k, k)
			MatMul(float(m*n), float(m*k), float(k*n), m, n, k, n, k, n)
			x := float(m * n)
			columns := packColumns(x, m, n, n)
			columns.panels = guarded(t, columns.panels)
			columns.Syrk(float(n*n), x, 0, n, 0, n, n, n)
			columns.TMulT(float(k*n), float(m*k), k, n, k, 0, n)
			var p Packed
			p.Pack(float(n*k), n, k, k)
			p.panels = guarded(t, p.panels)
			p.MulT(float(m*n), float(m*k), m, n, k, 0, n)
		}
	})
}
