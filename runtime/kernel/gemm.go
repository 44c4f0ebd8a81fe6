// Package kernel computes on plain slices: matrix products, conversion between element types,
// normalisation, softmax. Callers give whole rows and split the work with [Parallel]; a function that
// may be called so gives the same bits for every split.
//
// Files ending in _generic.go are the definition: they fix rounding and the order of sums, in portable
// Go that no compiler fuses, so that results agree between machines. Lengths are checked once in the
// exported function; a wrong one is a broken invariant of the caller and panics.
//
// On amd64 the CPU's instructions decide once, at start, which code computes: see [Tier]. Every tier has the bits of the
// definition, but for the payload of a NaN. The build tag purego leaves the assembly out.
package kernel

import "fmt"

// MatMulT computes dst = a · bᵀ for row-major float32 matrices: a is [m, k], b is [n, k] (the rows of a
// weight matrix), dst is [m, n]. Row i of dst begins at dst[i*ldd], of a at a[i*lda], of b at b[i*ldb];
// ldd >= n, lda >= k, ldb >= k. Elements of dst outside the m x n window are left alone. dst may not
// overlap a or b.
//
// Every element is summed in one canonical order, whatever m, n and the strides are: lane l of eight adds
// the products of positions l, l+8, l+16, ... in ascending order, starting from +0 and rounding every
// product and every sum to float32; a missing position at the end counts as zero; the lanes are then
// added as ((0+4)+(2+6)) + ((1+5)+(3+7)). So callers may split m and n among workers as they like.
//
// It panics when a slice is too short for its shape.
func MatMulT(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	checkMatrix("dst", len(dst), m, n, ldd)
	checkMatrix("a", len(a), m, k, lda)
	checkMatrix("b", len(b), n, k, ldb)
	matMulT(dst, a, b, m, n, k, ldd, lda, ldb)
}

// checkMatrix demands that rows x cols with the stride ld fit in length elements. Division instead of
// multiplication keeps absurd shapes from overflowing.
func checkMatrix(name string, length, rows, cols, ld int) {
	switch {
	case rows < 0 || cols < 0 || ld < cols:
	case rows == 0 || cols == 0:
		return
	case length >= cols && (rows == 1 || (length-cols)/(rows-1) >= ld):
		return
	}
	panic(fmt.Sprintf("internal error: kernel.MatMulT: %s has %d elements for %d x %d with stride %d", name, length, rows, cols, ld))
}
