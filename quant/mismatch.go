package quant

import "github.com/llmexport/llmexport/runtime/kernel"

// mismatch returns strength · (C - H) (H + ridge·I)⁻¹ [n, n], which multiplied by weights is the change of their target:
// w* - w = w (C + ridge·I) (H + ridge·I)⁻¹ - w. factor is M of [invertFactor] for H + ridge·I in the order of positions,
// so that the inverse is MᵀM.
func mismatch(in *Stats, order []int, factor []float32, strength float32, threads int) []float32 {
	n := in.Cols
	d := make([]float32, n*n)
	size := kernel.Span(threads, n, factorStrip, factorLay)
	kernel.Parallel(threads, (n+size-1)/size, func(from, to int) {
		x, y := make([]float32, size*n), make([]float32, size*n)
		for lo := from * size; lo < min(n, to*size); lo += size {
			rows := min(size, n-lo)
			for i := range rows {
				c, h := in.Cross[(lo+i)*n:][:n], in.Hessian[(lo+i)*n:][:n]
				for p, j := range order {
					x[i*n+p] = c[j] - h[j]
				}
			}
			for p := 0; p < n; p += factorBlock {
				b := min(factorBlock, n-p)
				kernel.MatMulT(y[p:], x, factor[p*n:], rows, b, p+b, n, n, n)
			}
			for p := 0; p < n; p += factorBlock {
				b := min(factorBlock, n-p)
				kernel.MatMul(x[p:], y[p:], factor[p*n+p:], rows, b, n-p, n, n, n)
			}
			for i := range rows {
				to := d[(lo+i)*n:][:n]
				for p, j := range order {
					to[j] = strength * x[i*n+p]
				}
			}
		}
	})
	return d
}
