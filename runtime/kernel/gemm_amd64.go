//go:build !purego

package kernel

import "unsafe"

// Each of these computes a segment of k positions of as many rows as its name says times PanelRows columns: c = a · b, or
// c += a · b. a is [k][rows], b [k][PanelRows]; ldc is in elements.

//go:noescape
func gemm1x32AVX2(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm2x32AVX2(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm3x32AVX2(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm4x32AVX2(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm5x32AVX2(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm6x32AVX2(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm1x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm2x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm3x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm4x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm5x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm6x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm7x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm8x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm9x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm10x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm11x32AVX512(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm12x32AVX512(c, a, b *float32, k, ldc int, add bool)

// These take one row and several panels, ldb elements apart.

//go:noescape
func gemm1x64AVX2(c, a, b *float32, k, ldb int, add bool)

//go:noescape
func gemm1x128AVX512(c, a, b *float32, k, ldb int, add bool)

// transpose8AVX2 writes eight words of eight rows of src, ldsrc bytes apart, as eight rows of dst, lddst words apart, then
// the next eight words of each, blocks times.
//
//go:noescape
func transpose8AVX2(dst *float32, src *byte, blocks, lddst, ldsrc int)

// transpose4AVX2 does so with four words of four rows.
//
//go:noescape
func transpose4AVX2(dst *float32, src *byte, blocks, lddst, ldsrc int)

// prefetchRowsAVX2 asks for bytes of each of n rows, ld bytes apart.
//
//go:noescape
func prefetchRowsAVX2(src *byte, n, bytes, ld int)

func prefetchRows(src *byte, n, bytes, ld int) {
	if use.avx2 {
		prefetchRowsAVX2(src, n, bytes, ld)
	}
}

// gemmTileRows is the number of rows of a whole tile.
func gemmTileRows() int {
	if use.avx2 && !use.avx512 {
		return 6
	}
	return gemmTileMax
}

// gemmRowColumns is the number of columns that gemmRow takes.
func gemmRowColumns() int {
	switch {
	case use.avx512:
		return 4 * PanelRows
	case use.avx2:
		return 2 * PanelRows
	}
	return PanelRows
}

// gemmRow is gemmSums for one row and gemmRowColumns columns, whose panels are ldb elements apart.
func gemmRow(t *gemmTile, ldb int) {
	if !use.avx2 {
		gemmSumsGeneric(t)
		return
	}
	cols := gemmRowColumns()
	_, _, _ = t.c[cols-1], t.a[t.k-1], t.b[(cols/PanelRows-1)*ldb+PanelRows*t.k-1]
	c, a, b := &t.c[0], &t.a[0], &t.b[0]
	switch {
	case t.pairs:
		gemm1x128BF16(c, a, b, t.k, ldb, t.add)
	case use.avx512:
		gemm1x128AVX512(c, a, b, t.k, ldb, t.add)
	default:
		gemm1x64AVX2(c, a, b, t.k, ldb, t.add)
	}
}

// gemmSums computes the tile; it may write all PanelRows columns.
func gemmSums(t *gemmTile) {
	if !use.avx2 {
		gemmSumsGeneric(t)
		return
	}
	_, _, _ = t.c[(t.rows-1)*t.ldc+PanelRows-1], t.a[t.rows*t.k-1], t.b[PanelRows*t.k-1]
	c, a, b := &t.c[0], &t.a[0], &t.b[0]
	switch {
	case t.pairs:
		gemmSumsBF16(c, a, b, t)
	case use.avx512:
		gemmSums512(c, a, b, t)
	default:
		gemmSums256(c, a, b, t)
	}
}

func gemmSums512(c, a, b *float32, t *gemmTile) {
	switch t.rows {
	case 12:
		gemm12x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 11:
		gemm11x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 10:
		gemm10x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 9:
		gemm9x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 8:
		gemm8x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 7:
		gemm7x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 6:
		gemm6x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 5:
		gemm5x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 4:
		gemm4x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 3:
		gemm3x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 2:
		gemm2x32AVX512(c, a, b, t.k, t.ldc, t.add)
	case 1:
		gemm1x32AVX512(c, a, b, t.k, t.ldc, t.add)
	}
}

func gemmSums256(c, a, b *float32, t *gemmTile) {
	switch t.rows {
	case 6:
		gemm6x32AVX2(c, a, b, t.k, t.ldc, t.add)
	case 5:
		gemm5x32AVX2(c, a, b, t.k, t.ldc, t.add)
	case 4:
		gemm4x32AVX2(c, a, b, t.k, t.ldc, t.add)
	case 3:
		gemm3x32AVX2(c, a, b, t.k, t.ldc, t.add)
	case 2:
		gemm2x32AVX2(c, a, b, t.k, t.ldc, t.add)
	case 1:
		gemm1x32AVX2(c, a, b, t.k, t.ldc, t.add)
	}
}

func transpose(dst, src []float32, rows, n, lddst, ldsrc int) {
	if !use.avx2 || rows < 4 || n < 4 {
		transposeGeneric(dst, src, rows, n, lddst, ldsrc)
		return
	}
	_, _ = dst[(n-1)*lddst+rows-1], src[(rows-1)*ldsrc+n-1]
	transposeWords(&dst[0], (*byte)(unsafe.Pointer(&src[0])), rows, n, lddst, 4*ldsrc)
}

// copyRows8AVX2 copies n rows of width >= 8 elements; lddst and ldsrc are in elements.
//
//go:noescape
func copyRows8AVX2(dst, src *float32, width, n, lddst, ldsrc int)

// copyRows4AVX2 does so for 4 <= width <= 8.
//
//go:noescape
func copyRows4AVX2(dst, src *float32, width, n, lddst, ldsrc int)

func copyRows(dst, src []float32, width, n, lddst, ldsrc int) {
	if !use.avx2 || width < 4 || n == 0 {
		copyRowsGeneric(dst, src, width, n, lddst, ldsrc)
		return
	}
	_, _ = dst[(n-1)*lddst+width-1], src[(n-1)*ldsrc+width-1]
	if width < 8 {
		copyRows4AVX2(&dst[0], &src[0], width, n, lddst, ldsrc)
		return
	}
	copyRows8AVX2(&dst[0], &src[0], width, n, lddst, ldsrc)
}

// transposeWords is transpose for at least four rows and words; ldsrc is in bytes. Where eight or four do not divide a
// length, the last block overlaps the one before.
func transposeWords(dst *float32, src *byte, rows, n, lddst, ldsrc int) {
	for r := 0; r < rows; {
		size := 8
		if n < 8 || rows < 8 || rows-r <= 4 {
			size = 4
		}
		r = min(r, rows-size)
		to, from := unsafe.Add(unsafe.Pointer(dst), 4*r), unsafe.Add(unsafe.Pointer(src), r*ldsrc)
		transposeBlocks(to, from, size, n/size, lddst, ldsrc)
		if n%size > 0 {
			p := n - size
			transposeBlocks(unsafe.Add(to, 4*p*lddst), unsafe.Add(from, 4*p), size, 1, lddst, ldsrc)
		}
		r += size
	}
}

func transposeBlocks(dst, src unsafe.Pointer, size, blocks, lddst, ldsrc int) {
	if size == 8 {
		transpose8AVX2((*float32)(dst), (*byte)(src), blocks, lddst, ldsrc)
		return
	}
	transpose4AVX2((*float32)(dst), (*byte)(src), blocks, lddst, ldsrc)
}
