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
	to := Matrix{w.Rows, n, kernel.Scratch(len(w.Data))}
	change, whole := make([]float64, w.Rows), make([]float64, w.Rows) // squares of the change and of the outputs
	diagonal := make([]float64, n)
	for j := range diagonal {
		diagonal[j] = float64(e.hessian[j*n+j])
	}
	e.divide(w.Rows, threads, func(x []float32, r int) {
		for p, j := range e.order {
			x[p] = residue[r*n+j]
		}
	}, func(x []float32, r int) {
		row, from, missing := to.Row(r), w.Row(r), residue[r*n:]
		for p, j := range e.order {
			row[j] = float32(e.strength * x[p])
			change[r] += float64(float64(e.strength) * float64(row[j]) * float64(missing[j]))
			whole[r] += float64(float64(from[j]) * float64(from[j]) * diagonal[j])
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
