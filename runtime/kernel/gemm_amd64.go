//go:build !purego

package kernel

// Each of these adds the products of k positions to the lane sums of a tile, as many rows of a as its name says times
// rows of b. acc is [rows][gemmColumns][gemmLanes]; lda and ldb are in elements.

//go:noescape
func gemm1x1AVX2(acc, a, b *float32, k, lda, ldb int)

//go:noescape
func gemm1x8AVX2(acc, a, b *float32, k, lda, ldb int)

//go:noescape
func gemm4x1AVX2(acc, a, b *float32, k, lda, ldb int)

//go:noescape
func gemm4x2AVX2(acc, a, b *float32, k, lda, ldb int)

// These take the rows of b from a gemmPacked; the second takes two of them.

//go:noescape
func gemm4x8PackedAVX512(acc, a, b *float32, k, lda int)

//go:noescape
func gemm4x2PackedAVX2(acc, a, b *float32, k, lda int)

// gemmPackAVX2 fills a gemmPacked.
//
//go:noescape
func gemmPackAVX2(dst, b *float32, k, ldb int)

// gemmReduceAVX2 adds up the lanes of gemmColumns sums.
//
//go:noescape
func gemmReduceAVX2(dst, acc *float32)

const (
	// gemmColumns is the number of rows of b, so of columns of dst, that are taken together.
	gemmColumns = 8
	// gemmRows is the number of rows of a that meet them before the next ones.
	gemmRows = 64
	// gemmDepth is how far one pass over k goes: the eight row pieces of b stay in the L1 cache. A multiple of
	// gemmLanes, so that a position keeps its lane.
	gemmDepth = 512
	// gemmPackRows is the number of rows of a from which packing b pays off.
	gemmPackRows = 8
)

func matMulT(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	if !use.avx2 || n == 0 || k == 0 {
		matMulTGeneric(dst, a, b, m, n, k, ldd, lda, ldb)
		return
	}
	if m < gemmPackRows {
		var sums [gemmPackRows - 1]gemmSums
		gemmPanels(sums[:m], nil, dst, a, b, n, k, ldd, lda, ldb)
		return
	}
	var sums [gemmRows]gemmSums
	var packed gemmPacked
	for i := 0; i < m; i += gemmRows {
		gemmPanels(sums[:min(gemmRows, m-i)], &packed, dst[i*ldd:], a[i*lda:], b, n, k, ldd, lda, ldb)
	}
}

// gemmSums are the lane sums of a row of a with gemmColumns rows of b.
type gemmSums [gemmColumns][gemmLanes]float32

// gemmPacked holds a piece of gemmColumns rows of b, gemmLanes positions of each row after the other. Rows of a large
// matrix are often a power of two apart, and so in the same few sets of the cache.
type gemmPacked [gemmDepth / gemmLanes][gemmColumns][gemmLanes]float32

// gemmPanels fills len(sums) rows of dst. A lane sum is never -0, so that a missing position may count as 0*0.
func gemmPanels(sums []gemmSums, packed *gemmPacked, dst, a, b []float32, n, k, ldd, lda, ldb int) {
	var out [gemmColumns]float32
	for j := 0; j < n; j += gemmColumns {
		columns := min(gemmColumns, n-j)
		clear(sums)
		for p := 0; p < k; p += gemmDepth {
			depth := min(gemmDepth, k-p)
			i := 0
			if packed != nil && columns == gemmColumns {
				gemmPackAVX2(&packed[0][0][0], &b[j*ldb+p], depth, ldb)
				i = gemmPassPacked(sums, a[p:], packed, depth, lda)
			}
			if i < len(sums) {
				gemmPass(sums[i:], a[i*lda+p:], b[j*ldb+p:], columns, depth, lda, ldb)
			}
		}
		for i := range sums {
			gemmReduceAVX2(&out[0], &sums[i][0][0])
			copy(dst[i*ldd+j:][:columns], out[:])
		}
	}
}

// gemmPassPacked adds the products of k positions for the rows that come in groups of four, and returns their number.
func gemmPassPacked(sums []gemmSums, a []float32, b *gemmPacked, k, lda int) int {
	i := 0
	for ; i+4 <= len(sums); i += 4 {
		s, x := &sums[i], &a[i*lda]
		if use.avx512 {
			gemm4x8PackedAVX512(&s[0][0], x, &b[0][0][0], k, lda)
			continue
		}
		for c := 0; c < gemmColumns; c += 2 {
			gemm4x2PackedAVX2(&s[c][0], x, &b[0][c][0], k, lda)
		}
	}
	return i
}

// gemmPass adds the products of k positions.
func gemmPass(sums []gemmSums, a, b []float32, columns, k, lda, ldb int) {
	i := 0
	for ; i+4 <= len(sums); i += 4 {
		s, x := &sums[i], &a[i*lda]
		c := 0
		for ; c+2 <= columns; c += 2 {
			gemm4x2AVX2(&s[c][0], x, &b[c*ldb], k, lda, ldb)
		}
		if c < columns {
			gemm4x1AVX2(&s[c][0], x, &b[c*ldb], k, lda, ldb)
		}
	}
	for ; i < len(sums); i++ {
		s, x := &sums[i], &a[i*lda]
		if columns == gemmColumns {
			gemm1x8AVX2(&s[0][0], x, &b[0], k, lda, ldb)
			continue
		}
		for c := range columns {
			gemm1x1AVX2(&s[c][0], x, &b[c*ldb], k, lda, ldb)
		}
	}
}
