package kernel

import (
	"math/rand/v2"
	"testing"
)

// TestElementwiseBounds ends every slice where memory ends.
func TestElementwiseBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(81, 82))
		float := func(n int) []float32 { return guarded(t, random(r, n)) }
		for _, n := range []int{1, 7, 8, 9, 15, 16, 17, 24, 31, 47, 48, 63, 64, 65, 72, 127, 129} {
			x, y, dst := float(n), float(n), float(n)
			Add(dst, x, y)
			Mul(dst, x, y)
			Scale(dst, x, 2)
			AddScaled(dst, x, 2)
			AddScaledRows(dst, float(3*n), float(3))
			Beyond(x, y, 1e9)
			CodeSums(x[:min(n, codeSumsMost)], y[:min(n, codeSumsMost)])
			CodeSums(x[n-min(n, codeSumsMost):], y[n-min(n, codeSumsMost):])
			CodeErrors(dst, guarded(t, make([]float64, n)), x, y, y, y, 2, 4)
			AddShifted(dst, x, 2, 3)
			AbsMax(x)
			NonFinite(x)
			ArgMax(x)
			atLeast(x, 1e9)
			TopK(guarded(t, make([]int32, n)), x, n)
			EngineSiLU(dst, x)
			EngineGELU(dst, x)
			shift(dst, x, 2)
			EngineSiLUMul(dst, x, y)
			SiLU(dst, x)
			KL(x, y, LogSumExp(x), LogSumExp(y))
			Softmax(x)
			for _, rows := range []int{1, 2, 9, 17} {
				x, dst, gamma := float(rows*n), float(rows*n), float(n)
				for _, k := range normKinds {
					k.rows(dst, x, gamma, rows, 1e-6)
				}
				for _, cut := range []int{n &^ 1, n / 2 &^ 1, 16} {
					if cut <= n {
						RotateHeads(dst, x, float(cut + 1)[1:], float(cut + 1)[1:], rows, n)
					}
				}
			}
		}
	})
}
