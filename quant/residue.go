package quant

import "github.com/llmexport/llmexport/runtime/kernel"

// Aimer is an [Encoder] that can let a matrix make up for what is wrong elsewhere.
type Aimer interface {
	Encoder
	// Aim returns what to encode instead of a matrix whose outputs are added to a vector r̂, where the float model has r, with
	// residue the mean over tokens of (r - r̂) x̂ᵀ [rows, cols]. threads bounds the parallelism, not the result.
	Aim(w Matrix, residue []float32, threads int) Matrix
}

// Aim implements [Aimer]: of all matrices, w + R (H + ridge·I)⁻¹ with the residue R makes the sum r̂ + ŵ x̂ come closest to r + w x̂. The
// target goes as far towards it as [GPTQ] says for a mismatch.
func (e *feedback) Aim(w Matrix, residue []float32, threads int) Matrix {
	n := e.cols
	to := Matrix{w.Rows, n, make([]float32, len(w.Data))}
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
				row, from := to.Row(lo+i), w.Row(lo+i)
				for p, j := range e.order {
					row[j] = from[j] + float32(e.strength*x[i*n+p])
				}
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
