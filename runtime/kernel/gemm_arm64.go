//go:build !purego

package kernel

// gemmTileRows is the number of rows of a whole tile.
func gemmTileRows() int { return gemmTileMax }

// gemmRowColumns is the number of columns that gemmRow takes of n.
func gemmRowColumns(n int) int {
	if use.neon && n >= 2*PanelRows {
		return 2 * PanelRows
	}
	return PanelRows
}

// gemmRow computes a segment of one row for as many columns as gemmRowColumns returns, more than a panel: c = a · b, or c += a · b. Panels
// of b are ldb elements apart.
func gemmRow(c, a, b []float32, ldb int, add bool) {
	_, _ = c[2*PanelRows-1], b[ldb+PanelRows*len(a)-1]
	gemm1x64NEON(&c[0], &a[0], &b[0], len(a), ldb, add)
}

// gemmSums computes the tile; it may write all PanelRows columns.
func gemmSums(t *gemmTile) {
	if !use.neon {
		gemmSumsGeneric(t)
		return
	}
	_, _, _ = t.c[(t.rows-1)*t.ldc+PanelRows-1], t.a[t.rows*t.k-1], t.b[PanelRows*t.k-1]
	gemmx32NEON(t.rows, &t.c[0], &t.a[0], &t.b[0], t.k, t.ldc, t.add)
}

func transpose(dst, src []float32, rows, n, lddst, ldsrc int) {
	if !use.neon || rows < 4 || n < 4 {
		transposeGeneric(dst, src, rows, n, lddst, ldsrc)
		return
	}
	_, _ = dst[(n-1)*lddst+rows-1], src[(rows-1)*ldsrc+n-1]
	// Where four does not divide a length, the last block overlaps the one before.
	for r := 0; r < rows; r += 4 {
		r := min(r, rows-4)
		transpose4NEON(&dst[r], &src[r*ldsrc], n/4, lddst, ldsrc)
		if n%4 > 0 {
			p := n - 4
			transpose4NEON(&dst[p*lddst+r], &src[r*ldsrc+p], 1, lddst, ldsrc)
		}
	}
}

// prefetchRows would help memory that the CPU does not prefetch on its own; that is unmeasured here.
func prefetchRows(*byte, int, int, int) {}

// copyRows copies n rows of width elements. The widths of whole panels and tiles need no call.
func copyRows(dst, src []float32, width, n, lddst, ldsrc int) {
	switch width {
	case PanelRows:
		for p := range n {
			*(*[PanelRows]float32)(dst[p*lddst:]) = *(*[PanelRows]float32)(src[p*ldsrc:])
		}
	case gemmTileMax:
		for p := range n {
			*(*[gemmTileMax]float32)(dst[p*lddst:]) = *(*[gemmTileMax]float32)(src[p*ldsrc:])
		}
	default:
		copyRowsGeneric(dst, src, width, n, lddst, ldsrc)
	}
}
