package kernel

import "fmt"

// Syrk adds xᵀ · x to the lower triangle of h, where p is xᵀ, see [Packed.PackColumns]: rows from to to-1, of each the columns
// lo to hi-1 that are not above the diagonal. x is [tokens, n] with row t at x[t*ldx], h is [n, n] with row i at h[i*ldh], and
// h[i,j] for j <= i grows by the sum over t of x[t,i]*x[t,j]. lo is a multiple of PanelRows. Workers may share rows and columns.
//
// The sum is that of [MatMulT] with the tokens as positions, except that every segment of 256 tokens, the first included,
// is added to h. So several calls give the bits of one when each but the last takes a multiple of 256 tokens.
//
// It panics when a slice is too short for its shape.
func (p *Packed) Syrk(h, x []float32, from, to, lo, hi, ldh, ldx int) {
	checkColumns("Packed.Syrk", lo, hi, p.rows)
	checkMatrix("Packed.Syrk", "h", len(h), p.rows, p.rows, ldh)
	checkMatrix("Packed.Syrk", "x", len(x), p.cols, p.rows, ldx)
	if from < 0 || to < from || to > p.rows {
		panic(fmt.Sprintf("internal error: kernel.Packed.Syrk: rows %d to %d of %d", from, to, p.rows))
	}
	a := gemmSide{layout: gemmByPosition, f: x, ld: ldx}
	g := gemm{a: a, b: gemmSide{layout: gemmPacked, f: p.panels, ld: p.cols}, k: p.cols, ldd: ldh, add: true, lower: true}
	g.run(h, from, to, lo, min(hi, to))
}
