//go:build !purego

package kernel

// tileLanes is how many rows tileRows takes at once, 0 for none.
func tileLanes() int {
	switch {
	case use.avx512:
		return maxLanes
	case use.avx2:
		return lanesFMA
	}
	return 0
}

// tileRows is tileSum, ascending, of tileLanes rows: dst is [16][lanes], x [n][lanes], tile [n][16].
func tileRows(dst, x, tile []float32, n int) {
	if n == 0 {
		clear(dst)
		return
	}
	lanes := tileLanes()
	_, _, _ = dst[tileColumns*lanes-1], x[n*lanes-1], tile[n*tileColumns-1]
	if lanes == maxLanes {
		laneProduct512(&dst[0], &x[0], &tile[0], n, tileColumns/8, 0, 1, nil)
	} else {
		laneProductFMA(&dst[0], &x[0], &tile[0], n, tileColumns/8, 0, 1, nil)
	}
}
