package reference

import "github.com/llmexport/llmexport/runtime/kernel"

// panelRows is what the first of packed rows, or of columns of a product, is a multiple of. Stand-in:
// kernel.PanelRows
const panelRows = 32

// packed is a matrix [rows, cols] in the form in which it is multiplied. Stand-in: type packed = kernel.Packed
type packed struct {
	b          []float32
	rows, cols int
}

// Rows is the number of rows of the matrix, the columns of a product.
func (p *packed) Rows() int { return p.rows }

// Resize makes room for a matrix [n, k].
func (p *packed) Resize(n, k int) {
	p.rows, p.cols = n, k
	p.b = grow(&p.b, n*k)
}

// Pack makes p the matrix b [n, k], whose rows are ldb apart.
func (p *packed) Pack(b []float32, n, k, ldb int) {
	p.Resize(n, k)
	p.PackRows(b, 0, n, ldb)
}

// PackRows fills rows lo to lo+rows-1. Goroutines may pack different rows.
func (p *packed) PackRows(b []float32, lo, rows, ldb int) {
	for i := range rows {
		copy(p.b[(lo+i)*p.cols:][:p.cols], b[i*ldb:])
	}
}

// MulT computes columns lo to hi-1 of dst = a · pᵀ, for a [m, cols] and dst [m, rows].
func (p *packed) MulT(dst, a []float32, m, ldd, lda, lo, hi int) {
	kernel.MatMulT(dst[lo:], a, p.b[lo*p.cols:], m, hi-lo, p.cols, ldd, lda, p.cols)
}

// matMul computes dst = a · b for a [m, k], b [k, n] and dst [m, n]. Stand-in: kernel.MatMul(dst, a, b, m, n, k, ldd, lda, ldb)
func matMul(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	turned := make([]float32, n*k)
	for i := range k {
		for j, x := range b[i*ldb : i*ldb+n] {
			turned[j*k+i] = x
		}
	}
	kernel.MatMulT(dst, a, turned, m, n, k, ldd, lda, k)
}
