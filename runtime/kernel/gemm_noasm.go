//go:build (!amd64 && !arm64) || purego

package kernel

// gemmTileRows is the number of rows of a whole tile.
func gemmTileRows() int { return gemmTileMax }

// gemmRowColumns is the number of columns that gemmRow takes.
func gemmRowColumns() int { return PanelRows }

func gemmRow(t *gemmTile, _ int) { gemmSumsGeneric(t) }

func gemmSums(t *gemmTile) { gemmSumsGeneric(t) }

func transpose(dst, src []float32, rows, n, lddst, ldsrc int) {
	transposeGeneric(dst, src, rows, n, lddst, ldsrc)
}

func prefetchRows(*byte, int, int, int) {}

func copyRows(dst, src []float32, width, n, lddst, ldsrc int) {
	copyRowsGeneric(dst, src, width, n, lddst, ldsrc)
}
