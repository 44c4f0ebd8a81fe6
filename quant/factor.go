package quant

import (
	"math"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// factorBlock is the number of columns that are factored together: products of this depth run at the speed of the
	// matrix kernels, and what remains on the diagonal is cheap.
	factorBlock = kernel.ReachColumns
	// factorStrip is the most rows or columns that a worker takes at a time, factorLay the cost of laying out the other factor
	// of their product, in rows.
	factorStrip, factorLay = 128, 16
)

// invertFactor replaces the lower triangle of the symmetric positive definite matrix a [n, n] by the inverse M of its
// Cholesky factor, so that the inverse of a is MᵀM, and clears the upper triangle inside blocks of the diagonal, the only
// part of it that products with M read. It returns false, with a destroyed, if a is not positive definite in float32.
//
// One loop does both: once block row k of the factor L has updated the columns after it, nothing reads it again, and
// block row k of M = L⁻¹ takes its place,
//
//	A[i,k] -= L[i,:k] L[k,:k]ᵀ          i >= k
//	L[i,k]  = A[i,k] L[k,k]⁻ᵀ           i > k
//	M[k,:k] = -L[k,k]⁻¹ L[k,:k] M[:k,:k], M[k,k] = L[k,k]⁻¹
//
// 2/3 n³ operations together, all but the diagonal as canonical products, so that the bits do not depend on threads. The third
// line is computed together with the first one of the next block, and the diagonal, which one thread inverts, meanwhile.
func invertFactor(a []float32, n, threads int) bool {
	f := &factoring{
		a: a, n: n, threads: threads, row: make([]float32, factorBlock*n), diagonal: make([]float64, 2*factorBlock*factorBlock),
		scratch: sync.Pool{New: func() any { return new([factorStrip * factorBlock]float32) }},
	}
	for i := range f.inverses {
		f.inverses[i] = make([]float32, factorBlock*factorBlock)
	}
	for k := 0; k < n; k += factorBlock {
		if !f.column(k) {
			return false
		}
		f.below(k)
	}
	return f.column((n + factorBlock - 1) / factorBlock * factorBlock)
}

// NewFactoring is the work of invertFactor for a device.
func NewFactoring(a []float32, n int) *kernel.Factoring {
	scratch := make([]float64, 2*factorBlock*factorBlock)
	return &kernel.Factoring{A: a, N: n, Invert: func(inverse, block []float32, n int) bool { return invertBlock(inverse, block, scratch, n, n) }}
}

// Factor does on this CPU what a device does for a [kernel.Factoring], and reports whether the matrix is positive definite.
func Factor(f *kernel.Factoring, threads int) bool { return invertFactor(f.A, f.N, threads) }

// factoring is the state of invertFactor.
type factoring struct {
	a          []float32
	n, threads int
	row        []float32    // a block row of L, [block, columns before it]
	inverses   [2][]float32 // M of diagonal blocks, the last two
	diagonal   []float64    // scratch of invertBlock
	scratch    sync.Pool    // of strips
}

// inverse is M of the diagonal block that begins at column k.
func (f *factoring) inverse(k int) []float32 { return f.inverses[k/factorBlock%2] }

// column computes the columns of A from k on and the inverse of their diagonal block, if there are any, and the block row of M
// before them.
func (f *factoring) column(k int) bool {
	last, end := max(k-factorBlock, 0), min(k+factorBlock, f.n)
	size := kernel.Span(f.threads, f.n-end+last, factorStrip, factorLay)
	rows, parts := (f.n-end+size-1)/size, (factorBlock+size-1)/size // a strip of columns belongs to one block
	good := true
	kernel.Parallel(f.threads, 1+rows+last/factorBlock*parts, func(u, to int) {
		tmp := f.scratch.Get().(*[factorStrip * factorBlock]float32)
		defer f.scratch.Put(tmp)
		for ; u < to; u++ {
			switch i := u - 1; {
			case i < 0 && k < f.n:
				f.update(tmp[:], k, k, end)
				good = invertBlock(f.inverse(k), f.a[k*f.n+k:], f.diagonal, end-k, f.n)
			case i >= rows:
				i -= rows
				f.invert(tmp[:], last, min(k, f.n), i*factorBlock/parts, (i+1)*factorBlock/parts)
			case i >= 0:
				f.update(tmp[:], k, end+i*size, min(end+(i+1)*size, f.n))
			}
		}
	})
	return good
}

// update subtracts from columns k of rows lo to hi-1 of A what the columns before them contribute.
func (f *factoring) update(tmp []float32, k, lo, hi int) {
	n, b := f.n, min(factorBlock, f.n-k)
	kernel.MatMulT(tmp, f.a[lo*n:], f.a[k*n:], hi-lo, b, k, b, n, n)
	for i := lo; i < hi; i++ {
		subtract(f.a[i*n+k:i*n+k+b], tmp[(i-lo)*b:])
	}
}

// invert computes columns lo to hi-1 of block row k of M, which ends before row end. They belong to one block.
func (f *factoring) invert(tmp []float32, k, end, lo, hi int) {
	n, b, w := f.n, end-k, hi-lo
	from := lo / factorBlock * factorBlock // sums begin there, whatever the strips
	kernel.MatMul(tmp, f.row[from:], f.a[from*n+lo:], b, w, k-from, w, k, n)
	for i := range tmp[:b*w] {
		tmp[i] = -tmp[i]
	}
	kernel.MatMul(f.a[k*n+lo:], f.inverse(k), tmp, b, w, b, n, b, w)
}

// below computes columns k of L below the diagonal block, keeps its block row, and stores M of the diagonal block.
func (f *factoring) below(k int) {
	n, end := f.n, min(k+factorBlock, f.n)
	b := end - k
	for i := range b {
		copy(f.row[i*k:][:k], f.a[(k+i)*n:])
		copy(f.a[(k+i)*n+k:][:b], f.inverse(k)[i*b:][:b])
	}
	size := kernel.Span(f.threads, n-end, factorStrip, factorLay)
	kernel.Parallel(f.threads, (n-end+size-1)/size, func(u, to int) {
		tmp := f.scratch.Get().(*[factorStrip * factorBlock]float32)
		defer f.scratch.Put(tmp)
		for ; u < to; u++ {
			lo, hi := end+u*size, min(end+(u+1)*size, n)
			for i := lo; i < hi; i++ {
				copy(tmp[(i-lo)*b:][:b], f.a[i*n+k:])
			}
			kernel.MatMulT(f.a[lo*n+k:], tmp[:], f.inverse(k), hi-lo, b, b, n, b, b)
		}
	})
}

func subtract(dst, x []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] -= v
	}
}

// invertBlock stores the inverse of the Cholesky factor of the block a [n, n], whose rows are lda apart, in inverse
// [n, n], with zeros above the diagonal. It computes in float64, in the scratch f of 2*n*n values. It returns false if
// the block is not positive definite.
func invertBlock(inverse, a []float32, f []float64, n, lda int) bool {
	l, m := f[:n*n], f[n*n:2*n*n]
	for i := range n {
		for j := 0; j <= i; j++ {
			s := float64(a[i*lda+j]) - dot64(l[i*n:i*n+j], l[j*n:])
			if j < i {
				l[i*n+j] = s / l[j*n+j]
				continue
			}
			// The rest of a positive diagonal must exceed the rounding errors of its sums.
			if !(s > 0 && s > 0x1p-22*float64(a[i*lda+i])) || math.IsInf(s, 1) {
				return false
			}
			l[i*n+i] = math.Sqrt(s)
		}
	}
	// Column j of the inverse is kept as row j of m, so that both factors of a sum are read in order.
	for j := range n {
		for i := range j {
			m[j*n+i] = 0
			inverse[i*n+j] = 0
		}
		m[j*n+j] = 1 / l[j*n+j]
		for i := j + 1; i < n; i++ {
			m[j*n+i] = -dot64(l[i*n+j:i*n+i], m[j*n+j:]) / l[i*n+i]
		}
		for i := j; i < n; i++ {
			v := float32(m[j*n+i])
			if !isFinite(v) {
				return false
			}
			inverse[i*n+j] = v
		}
	}
	return true
}

// dot64 sums in four lanes.
func dot64(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += float64(x[i] * y[i])
		s1 += float64(x[i+1] * y[i+1])
		s2 += float64(x[i+2] * y[i+2])
		s3 += float64(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s0 += float64(x[i] * y[i])
	}
	return s0 + s1 + (s2 + s3)
}
