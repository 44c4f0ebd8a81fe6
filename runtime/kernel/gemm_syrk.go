package kernel

import "fmt"

// SyrkRows adds rows lo to hi-1 of xᵀ · x to the lower triangle of h: x is [tokens, n] with row t at x[t*ldx], h is [n, n]
// with row i at h[i*ldh], and h[i,j] for j <= i grows by the sum over t of x[t,i]*x[t,j]. Elements above the diagonal are
// left alone. Workers may share the rows; row i costs as much as i products.
//
// The sum is that of [MatMulT] with the tokens as positions, except that every segment of 256 tokens, the first included,
// is added to h. So several calls give the bits of one when each but the last takes a multiple of 256 tokens.
//
// It panics when a slice is too short for its shape.
func SyrkRows(h, x []float32, tokens, n, lo, hi, ldh, ldx int) {
	checkMatrix("Syrk", "h", len(h), n, n, ldh)
	checkMatrix("Syrk", "x", len(x), tokens, n, ldx)
	if lo < 0 || hi < lo || hi > n {
		panic(fmt.Sprintf("internal error: kernel.Syrk: rows %d to %d of %d", lo, hi, n))
	}
	side := gemmSide{layout: gemmByPosition, f: x, ld: ldx}
	g := gemm{a: side, b: side, k: tokens, ldd: ldh, add: true, lower: true}
	g.run(h, lo, hi, 0, hi)
}
