package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestEngineMatMulTBias: sums of whole groups of 24 rows begin with the bias, that of the rows after them is added last.
func TestEngineMatMulTBias(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 24))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	for _, m := range []int{1, 5, 23, 24, 25, 48, 50} {
		for _, n := range []int{1, 4, 17, 40} {
			const k = 70
			a, b, bias := random(m*k), random(n*k), random(n)
			plain, got := make([]float32, m*n), make([]float32, m*n)
			EngineMatMulT(plain, a, b, nil, m, n, k, n)
			EngineMatMulT(got, a, b, bias, m, n, k, n)
			for i := range got {
				want := plain[i] + bias[i%n]
				if i/n < m/24*24 {
					sum := float64(bias[i%n])
					for j := range k {
						sum = fma32(float64(a[i/n*k+j]), float64(b[i%n*k+j]), sum)
					}
					want = float32(sum)
				}
				if math.Float32bits(got[i]) != math.Float32bits(want) {
					t.Fatalf("%d x %d: row %d, column %d is %v, want %v", m, n, i/n, i%n, got[i], want)
				}
			}
		}
	}
}
