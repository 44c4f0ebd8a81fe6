package quant

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// factorBlock is the number of columns that are factored together: products of this depth run at the speed of the
	// matrix kernels, and what remains on the diagonal is cheap.
	factorBlock = 128
	// factorStrip is the number of rows or columns that a worker takes at a time.
	factorStrip = 128
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
// 2/3 n³ operations together, all but the diagonal as canonical products, so that the bits do not depend on threads.
func invertFactor(a []float32, n, threads int) bool {
	var (
		diagonal = make([]float64, 2*factorBlock*factorBlock)
		inverse  = make([]float32, factorBlock*factorBlock)
		row      = make([]float32, factorBlock*n)
	)
	for k := 0; k < n; k += factorBlock {
		b := min(factorBlock, n-k)
		end := k + b
		strips(threads, k, n, func(tmp []float32, lo, hi int) {
			tmp = tmp[:(hi-lo)*b]
			kernel.MatMulT(tmp, a[lo*n:], a[k*n:], hi-lo, b, k, b, n, n)
			for i := lo; i < hi; i++ {
				subtract(a[i*n+k:i*n+end], tmp[(i-lo)*b:])
			}
		})
		if !invertBlock(inverse, a[k*n+k:], diagonal, b, n) {
			return false
		}
		strips(threads, end, n, func(tmp []float32, lo, hi int) {
			for i := lo; i < hi; i++ {
				copy(tmp[(i-lo)*b:][:b], a[i*n+k:])
			}
			kernel.MatMulT(a[lo*n+k:], tmp, inverse, hi-lo, b, b, n, b, b)
		})
		for i := range b {
			copy(row[i*k:][:k], a[(k+i)*n:])
			copy(a[(k+i)*n+k:][:b], inverse[i*b:][:b])
		}
		strips(threads, 0, k, func(tmp []float32, lo, hi int) {
			w := hi - lo
			kernel.MatMul(tmp, row[lo:], a[lo*n+lo:], b, w, k-lo, w, k, n)
			for i := range tmp[:b*w] {
				tmp[i] = -tmp[i]
			}
			kernel.MatMul(a[k*n+lo:], inverse, tmp, b, w, b, n, b, w)
		})
	}
	return true
}

// strips calls f for strips of [lo, hi) that begin at multiples of factorStrip, with scratch for a strip of a block.
func strips(threads, lo, hi int, f func(tmp []float32, lo, hi int)) {
	first, last := lo/factorStrip, (hi+factorStrip-1)/factorStrip
	if lo >= hi {
		return
	}
	kernel.Parallel(threads, last-first, func(from, to int) {
		tmp := make([]float32, factorStrip*factorBlock)
		for s := first + from; s < first+to; s++ {
			f(tmp, max(lo, s*factorStrip), min(hi, (s+1)*factorStrip))
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
