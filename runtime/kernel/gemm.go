// Package kernel computes on plain slices: matrix products, conversion between element types, normalization, softmax.
// Callers pass whole rows and split the work with [Parallel]; a function that allows this gives the same bits for every split.
//
// Files ending in _generic.go are the definition: they fix rounding and the order of sums, in portable
// Go that no compiler fuses, so that results agree between machines. Lengths are checked once in the
// exported function; a wrong one is a broken invariant of the caller and panics.
//
// On amd64 the CPU's instructions decide once, at start, which code computes: see [Tier]. Every tier has the bits of the
// definition, except for the payload of a NaN. The build tag purego leaves the assembly out.
package kernel

import "fmt"

// gemmSegment is the number of positions whose products are summed before the sum is added to the result.
const gemmSegment = 256

// Segment is how many positions a piece of a product has, or a multiple of it, see [MatMulAdd].
const Segment = gemmSegment

// Segments is the number of segments of a sum over n positions.
func Segments(n int) int { return (n + Segment - 1) / Segment }

// MatMulT computes dst = a · bᵀ for row-major float32 matrices: a is [m, k], b is [n, k] (the rows of a
// weight matrix), dst is [m, n]. Row i of dst begins at dst[i*ldd], of a at a[i*lda], of b at b[i*ldb];
// ldd >= n, lda >= k, ldb >= k. Elements of dst outside the m x n window are left alone. dst may not
// overlap a or b. To multiply many a by the same b, see [Packed].
//
// Every element is summed in one canonical order, whatever m, n and the strides are. The k positions are cut in
// segments of 256, the last of which may be shorter. The sum of a segment starts from +0 and takes its positions p in
// ascending order: s = a[i,p]*b[j,p] + s, fused, which is rounded to float32 once. The element is the sum of the first
// segment, to which those of the further segments are added in ascending order, each sum rounded to float32; it is +0
// for k == 0. So callers may split m and n among workers as they like. All float32 products of this package follow that
// order.
//
// It panics when a slice is too short for its shape.
func MatMulT(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	checkMatrix("MatMulT", "dst", len(dst), m, n, ldd)
	checkMatrix("MatMulT", "a", len(a), m, k, lda)
	checkMatrix("MatMulT", "b", len(b), n, k, ldb)
	g := gemm{a: gemmSide{layout: gemmByRow, f: a, ld: lda}, b: gemmSide{layout: gemmByRow, f: b, ld: ldb}, k: k, ldd: ldd}
	g.run(dst, 0, m, 0, n)
}

// MatMul computes dst = a · b for row-major float32 matrices: a is [m, k], b is [k, n], dst is [m, n]. Strides, order of
// summation and panics are those of [MatMulT].
func MatMul(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	checkMatrix("MatMul", "dst", len(dst), m, n, ldd)
	checkMatrix("MatMul", "a", len(a), m, k, lda)
	checkMatrix("MatMul", "b", len(b), k, n, ldb)
	g := gemm{a: gemmSide{layout: gemmByRow, f: a, ld: lda}, b: gemmSide{layout: gemmByPosition, f: b, ld: ldb}, k: k, ldd: ldd}
	g.run(dst, 0, m, 0, n)
}

// MatMulAdd is [MatMul] with every segment added to dst, the first included. So the first positions of a product by MatMul and the
// others by MatMulAdd, in their order, give the bits of one call for all when each but the last takes a multiple of
// [Segment] positions.
func MatMulAdd(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	checkMatrix("MatMulAdd", "dst", len(dst), m, n, ldd)
	checkMatrix("MatMulAdd", "a", len(a), m, k, lda)
	checkMatrix("MatMulAdd", "b", len(b), k, n, ldb)
	g := gemm{a: gemmSide{layout: gemmByRow, f: a, ld: lda}, b: gemmSide{layout: gemmByPosition, f: b, ld: ldb}, k: k, ldd: ldd, add: true}
	g.run(dst, 0, m, 0, n)
}

// MatMulAddSpans is [MatMulAdd] for segments of span positions, 1 to [Segment]: the sum of every span is added to dst.
func MatMulAddSpans(dst, a, b []float32, m, n, k, ldd, lda, ldb, span int) {
	checkMatrix("MatMulAddSpans", "dst", len(dst), m, n, ldd)
	checkMatrix("MatMulAddSpans", "a", len(a), m, k, lda)
	checkMatrix("MatMulAddSpans", "b", len(b), k, n, ldb)
	if span < 1 || span > gemmSegment {
		panic(fmt.Sprintf("internal error: kernel.MatMulAddSpans: spans of %d positions", span))
	}
	g := gemm{a: gemmSide{layout: gemmByRow, f: a, ld: lda}, b: gemmSide{layout: gemmByPosition, f: b, ld: ldb}, k: k, span: span, ldd: ldd, add: true}
	g.run(dst, 0, m, 0, n)
}

// checkMatrix demands that rows x cols with the stride ld fit in length elements. Division instead of
// multiplication keeps absurd shapes from overflowing.
func checkMatrix(function, name string, length, rows, cols, ld int) {
	switch {
	case rows < 0 || cols < 0 || ld < cols:
	case rows == 0 || cols == 0:
		return
	case length >= cols && (rows == 1 || (length-cols)/(rows-1) >= ld):
		return
	}
	panic(fmt.Sprintf("internal error: kernel.%s: %s has %d elements for %d x %d with stride %d", function, name, length, rows, cols, ld))
}
