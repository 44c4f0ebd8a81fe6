//go:build !purego

package kernel

import "unsafe"

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

// gemmRowColumns is the number of columns that gemmRow takes of n.
func gemmRowColumns(n int) int {
	switch {
	case use.avx512 && n >= 4*PanelRows:
		return 4 * PanelRows
	case use.avx2 && n >= 2*PanelRows:
		return 2 * PanelRows
	}
	return PanelRows
}

// gemmRow computes a segment of one row for as many columns as gemmRowColumns returns, more than a panel: c = a · b, or c += a · b. Panels
// of b are ldb elements apart.
func gemmRow(c, a, b []float32, ldb int, add bool) {
	_ = b[(len(c)/PanelRows-1)*ldb+PanelRows*len(a)-1]
	switch {
	case len(c) == 4*PanelRows:
		gemm1x128AVX512(&c[0], &a[0], &b[0], len(a), ldb, add)
	case use.avx512:
		gemm1x64AVX512(&c[0], &a[0], &b[0], len(a), ldb, add)
	default:
		gemm1x64AVX2(&c[0], &a[0], &b[0], len(a), ldb, add)
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
	if use.avx512 {
		gemmx32AVX512(t.rows, c, a, b, t.k, t.ldc, t.add)
	} else {
		gemmx32AVX2(t.rows, c, a, b, t.k, t.ldc, t.add)
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

func copyRows(dst, src []float32, width, n, lddst, ldsrc int) {
	if !use.avx2 || width < 4 || n == 0 {
		copyRowsGeneric(dst, src, width, n, lddst, ldsrc)
		return
	}
	_, _ = dst[(n-1)*lddst+width-1], src[(n-1)*ldsrc+width-1]
	group := 8
	if width < group {
		group = 4
	}
	copyRowsAVX2(group, &dst[0], &src[0], width, n, lddst, ldsrc)
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
		transposeAVX2(size, (*float32)(to), (*byte)(from), n/size, lddst, ldsrc)
		if n%size > 0 {
			p := n - size
			transposeAVX2(size, (*float32)(unsafe.Add(to, 4*p*lddst)), (*byte)(unsafe.Add(from, 4*p)), 1, lddst, ldsrc)
		}
		r += size
	}
}
