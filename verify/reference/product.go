package reference

import "github.com/llmexport/llmexport/runtime/kernel"

// packed is rows of a matrix in the form in which they are multiplied. Stand-in: type packed = kernel.Packed
type packed struct {
	b []float32
	k int
}

// Pack takes b [n, k], whose rows are ldb apart. b may change afterwards.
func (p *packed) Pack(b []float32, n, k, ldb int) {
	p.k = k
	p.b = grow(&p.b, n*k)
	for i := range n {
		copy(p.b[i*k:(i+1)*k], b[i*ldb:])
	}
}

// MulT computes columns lo to hi of dst = a · bᵀ, for a [m, k] and dst [m, n]; element (i, j) is dst[i*ldd+j].
func (p *packed) MulT(dst, a []float32, m, ldd, lda, lo, hi int) {
	kernel.MatMulT(dst[lo:], a, p.b[lo*p.k:], m, hi-lo, p.k, ldd, lda, p.k)
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
