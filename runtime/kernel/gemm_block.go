package kernel

import "sync"

const (
	// gemmBlockRows and gemmBlock bound the rows and the elements of a that are laid out at once: 768 KiB, which fit many
	// L2 caches while the panels of b are read. The former is a multiple of every tile's rows. With two segments
	// instead of one dst is read and written half as often.
	gemmBlockRows = 384
	gemmBlock     = gemmBlockRows * 2 * gemmSegment
	// gemmStrip is the number of columns that are taken together where the positions of b are its rows in memory, which
	// then are read in longer runs.
	gemmStrip = 4 * PanelRows
	// gemmPrefetchTiles is the number of tiles that hide the reading of the next panel.
	gemmPrefetchTiles = 4
	// gemmTileMax is the number of rows of the largest tile of any tier.
	gemmTileMax = 12
)

// gemm is a product of two matrices that are laid out in tiles of a and panels of b piece by piece: a segment of a tile
// is [positions][rows], of a panel [positions][PanelRows], so that a kernel walks one stream of each.
type gemm struct {
	a, b  gemmSide
	k     int  // positions
	span  int  // of them that are summed before the sum is added, gemmSegment if 0
	ldd   int  // stride of dst
	add   bool // to dst, instead of replacing it
	lower bool // only columns j <= i
}

// gemmScratch is the working memory of a product.
type gemmScratch struct {
	a [gemmBlock]float32
	b [gemmStrip * gemmSegment]float32
}

var gemmScratches = sync.Pool{New: func() any { return new(gemmScratch) }}

// run computes rows i0 to i1-1 and columns j0 to j1-1. j0 is a multiple of PanelRows where b is packed.
func (g *gemm) run(dst []float32, i0, i1, j0, j1 int) {
	if i0 >= i1 || j0 >= j1 {
		return
	}
	if g.span == 0 {
		g.span = gemmSegment
	}
	if g.k == 0 {
		for i := i0; i < i1 && !g.add; i++ {
			clear(dst[i*g.ldd+j0 : i*g.ldd+j1])
		}
		return
	}
	s := gemmScratches.Get().(*gemmScratch)
	defer gemmScratches.Put(s)
	blocks := (i1 - i0 + gemmBlockRows - 1) / gemmBlockRows
	step := ((i1-i0+blocks-1)/blocks + gemmTileMax - 1) / gemmTileMax * gemmTileMax
	for i := i0; i < i1; i += step {
		rows := min(step, i1-i)
		// Few rows take many segments at once, so that panels are read from end to end.
		reach := gemmBlock / rows / g.span * g.span
		for p := 0; p < g.k; p += reach {
			g.block(s, dst, i, rows, j0, j1, p, min(reach, g.k-p))
		}
	}
}

// block takes n positions from p on, as many as fit the scratch, for some rows and all columns.
func (g *gemm) block(s *gemmScratch, dst []float32, i, rows, j0, j1, p, n int) {
	direct := rows == 1 && g.a.layout == gemmByRow // one row is already a tile
	for q := 0; q < n && !direct; q += g.span {
		g.a.fillAll(s.a[rows*q:], i, rows, p+q, min(g.span, n-q), gemmTileRows())
	}
	if g.lower {
		j1 = min(j1, i+rows)
	}
	width := PanelRows
	if g.b.layout == gemmByPosition {
		width = gemmStrip
	}
	for j := j0; j < j1; j += width {
		cols := min(width, j1-j)
		for q := 0; q < n; q += g.span {
			depth := min(g.span, n-q)
			t := gemmTile{rows: rows, k: depth, ldc: g.ldd, add: g.add || p+q > 0}
			if direct {
				t.a = g.a.f[i*g.a.ld+p+q:][:depth]
			} else {
				t.a = s.a[rows*q:][:rows*depth]
			}
			next := gemmPiece{}
			switch {
			case q+depth < n:
				next = g.b.piece(j, cols, p+q+depth, min(g.span, n-q-depth))
			case j+width < j1:
				next = g.b.piece(j+width, min(width, j1-j-width), p, min(g.span, n))
			}
			g.strip(s, t, dst[i*g.ldd+j:], i, j, cols, p+q, next)
		}
	}
}

// strip computes a segment of a few panels of columns. Meanwhile the next piece of b comes to the cache: rows of few lines
// each are too short for the CPU to foresee.
func (g *gemm) strip(s *gemmScratch, t gemmTile, c []float32, i, j, cols, p int, next gemmPiece) {
	var panels []float32
	if g.b.layout == gemmPacked {
		panels = g.b.f[j*g.b.ld+p*PanelRows:]
	} else {
		panels = s.b[:]
		g.b.fillAll(panels, j, cols, p, t.k, PanelRows)
	}
	tile := gemmTileRows()
	tiles := (t.rows + tile - 1) / tile * ((cols + PanelRows - 1) / PanelRows)
	share := 0
	if tiles >= gemmPrefetchTiles {
		share = (next.rows + tiles - 1) / tiles
	}
	for jj := 0; jj < cols; jj += PanelRows {
		t.cols = min(PanelRows, cols-jj)
		if g.b.layout == gemmPacked {
			t.b = panels[jj*g.b.ld:][:PanelRows*t.k]
		} else {
			t.b = panels[jj*t.k:][:PanelRows*t.k]
		}
		for ii := 0; ii < t.rows; ii += tile {
			next.prefetch(share)
			first := t.cols
			if g.lower { // row i has i+1 columns
				first = min(first, i+ii-j-jj+1)
			}
			one := t
			one.rows = min(tile, t.rows-ii)
			one.a = t.a[ii*t.k:][:one.rows*t.k]
			one.c = c[ii*t.ldc+jj:]
			one.limit(first)
		}
	}
}

// gemmTile is a segment of the sums of a tile: c = a · b, or c += a · b. a is [k][rows], b [k][PanelRows], c [rows, cols].
type gemmTile struct {
	c, a, b            []float32
	rows, cols, k, ldc int
	add                bool
}

// limit computes the first columns of row 0, one more of row 1 and so on, up to cols of each.
func (t *gemmTile) limit(first int) {
	if first == PanelRows {
		gemmSums(t)
		return
	}
	if first+t.rows <= 1 {
		return
	}
	var sums [gemmTileMax * PanelRows]float32
	whole := *t
	whole.c, whole.ldc, whole.add = sums[:], PanelRows, false
	gemmSums(&whole)
	for i := range t.rows {
		cols := min(max(first+i, 0), t.cols)
		if cols == 0 {
			continue
		}
		c, s := t.c[i*t.ldc:][:cols], sums[i*PanelRows:][:cols]
		if !t.add {
			copy(c, s)
			continue
		}
		for j, v := range s {
			c[j] += v
		}
	}
}
