package quant

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// aimMost is how far Aim goes at most: the squared change of the outputs, as a share of the squared outputs, as if inputs were
// uncorrelated. Trained models stay below it down to 2 bits; where the states lack more than that, inputs predict little of it on other
// text, and the matrix would be another one.
const aimMost = 0.02

// Aimer is an [Encoder] that can let a matrix make up for what is wrong elsewhere.
type Aimer interface {
	Encoder
	// Aim returns what to encode instead of a matrix whose outputs are added to a vector r̂, where the float model has r, with
	// residue the mean over tokens of (r - r̂) x̂ᵀ [rows, cols]. threads bounds the parallelism, not the result.
	Aim(w Matrix, residue []float32, threads int) Matrix
}

// Aim implements [Aimer]: of all matrices, w + R (H + ridge·I)⁻¹ with the residue R makes the sum r̂ + ŵ x̂ come closest to r + w x̂. The
// target goes as far towards it as [GPTQ] says for a mismatch, and no farther than aimMost.
func (e *feedback) Aim(w Matrix, residue []float32, threads int) Matrix {
	n := e.cols
	to := Matrix{w.Rows, n, make([]float32, len(w.Data))}
	change, whole := make([]float64, w.Rows), make([]float64, w.Rows) // squares of the change and of the outputs
	size := kernel.Span(max(1, threads), w.Rows, factorStrip, factorLay)
	kernel.Parallel(threads, (w.Rows+size-1)/size, func(u, end int) {
		x, y := make([]float32, size*n), make([]float32, size*n)
		for lo := u * size; lo < min(w.Rows, end*size); lo += size {
			rows := min(size, w.Rows-lo)
			for i := range rows {
				for p, j := range e.order {
					x[i*n+p] = residue[(lo+i)*n+j]
				}
			}
			divide(x, y, e.factor, rows, n)
			for i := range rows {
				row, from, missing := to.Row(lo+i), w.Row(lo+i), residue[(lo+i)*n:]
				for p, j := range e.order {
					row[j] = float32(e.strength * x[i*n+p])
					change[lo+i] += float64(float64(e.strength) * float64(row[j]) * float64(missing[j]))
					whole[lo+i] += float64(float64(from[j]) * float64(from[j]) * float64(e.hessian[j*n+j]))
				}
			}
		}
	})
	var changed, all float64
	for i := range change {
		changed += change[i]
		all += whole[i]
	}
	shrink := float32(1)
	if !(changed <= aimMost*all) {
		shrink = float32(math.Sqrt(aimMost * all / changed))
	}
	kernel.Parallel(threads, w.Rows, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, from := to.Row(i), w.Row(i)
			for j := range row {
				row[j] = from[j] + float32(shrink*row[j])
			}
		}
	})
	return to
}

// divide replaces rows of x [rows, n] by their products with the inverse MᵀM of a matrix whose factor is M, see [invertFactor]. y is
// scratch of the same size.
func divide(x, y, factor []float32, rows, n int) {
	for p := 0; p < n; p += factorBlock {
		b := min(factorBlock, n-p)
		kernel.MatMulT(y[p:], x, factor[p*n:], rows, b, p+b, n, n, n)
	}
	for p := 0; p < n; p += factorBlock {
		b := min(factorBlock, n-p)
		kernel.MatMul(x[p:], y[p:], factor[p*n+p:], rows, b, n-p, n, n, n)
	}
}
