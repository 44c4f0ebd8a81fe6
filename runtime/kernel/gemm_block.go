package kernel

import "sync"

const (
	// gemmBlockRows and gemmBlock bound the rows and the elements of a that are laid out at once: 384 KiB, which the
	// L2 cache keeps while the panels of b pass by. The former is a multiple of every tile's rows.
	gemmBlockRows = 384
	gemmBlock     = gemmBlockRows * gemmSegment
	// gemmTileMax is the number of rows of the largest tile of any tier.
	gemmTileMax = 12
)

// gemm is a product of two matrices that are laid out in tiles of a and panels of b piece by piece: a segment of a tile
// is [positions][rows], of a panel [positions][PanelRows], so that a kernel walks one stream of each.
type gemm struct {
	a, b  gemmSide
	k     int  // words
	ldd   int  // stride of dst
	add   bool // to what dst holds, instead of replacing it
	lower bool // only columns j <= i
	pairs bool // the words are pairs of bf16
}

// gemmScratch is what a product needs besides its operands.
type gemmScratch struct {
	a    [gemmBlock]float32
	b    [PanelRows * gemmSegment]float32
	wide [PanelRows * gemmSegment]float32 // bf16 as float32
}

var gemmScratches = sync.Pool{New: func() any { return new(gemmScratch) }}

// run computes rows i0 to i1-1 and columns j0 to j1-1. j0 is a multiple of PanelRows where b is packed.
func (g *gemm) run(dst []float32, i0, i1, j0, j1 int) {
	if i0 >= i1 || j0 >= j1 {
		return
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
		reach := gemmBlock / rows / gemmSegment * gemmSegment
		for p := 0; p < g.k; p += reach {
			g.block(s, dst, i, rows, j0, j1, p, min(reach, g.k-p))
		}
	}
}

// block takes n positions from p on, as many as fit the scratch, for some rows and all columns.
func (g *gemm) block(s *gemmScratch, dst []float32, i, rows, j0, j1, p, n int) {
	direct := rows == 1 && g.a.layout == gemmByRow // one row is a tile as it is
	tile := gemmTileRows()
	for q := 0; q < n && !direct; q += gemmSegment {
		depth := min(gemmSegment, n-q)
		for t := 0; t < rows; t += tile {
			r := min(tile, rows-t)
			g.a.fill(s, s.a[rows*q+t*depth:][:r*depth], i+t, r, p+q, depth, r)
		}
	}
	if g.lower {
		j1 = min(j1, i+rows)
	}
	for j := j0; j < j1; {
		cols := min(PanelRows, j1-j)
		wide := rows == 1 && g.b.layout == gemmPacked && gemmRowColumns() <= j1-j
		if wide {
			cols = gemmRowColumns()
		}
		for q := 0; q < n; q += gemmSegment {
			depth := min(gemmSegment, n-q)
			t := gemmTile{c: dst[i*g.ldd+j:], rows: rows, cols: cols, k: depth, ldc: g.ldd, add: g.add || p+q > 0, pairs: g.pairs}
			if direct {
				t.a = g.a.f[i*g.a.ld+p+q:][:depth]
			} else {
				t.a = s.a[rows*q:][:rows*depth]
			}
			switch {
			case wide:
				t.b = g.b.f[j*g.k+(p+q)*PanelRows:]
				gemmRow(&t, PanelRows*g.k)
				continue
			case g.b.layout == gemmPacked:
				t.b = g.b.f[j*g.k+(p+q)*PanelRows:][:PanelRows*depth]
			default:
				t.b = s.b[:PanelRows*depth]
				if cols < PanelRows {
					clear(t.b)
				}
				g.b.fill(s, t.b, j, cols, p+q, depth, PanelRows)
			}
			var next gemmPiece
			switch {
			case q+gemmSegment < n:
				next = g.piece(j, cols, p+q+gemmSegment)
			case j+cols < j1:
				next = g.piece(j+cols, min(PanelRows, j1-j-cols), p)
			}
			g.panel(t, i-j, tile, next)
		}
		j += cols
	}
}

// piece is where a segment of a panel comes from.
func (g *gemm) piece(j, cols, p int) gemmPiece {
	return g.b.piece(j, cols, p, min(gemmSegment, g.k-p), g.k)
}

// panel computes the tiles of one panel; below is by how much the row of the first element exceeds its column. Meanwhile
// the next piece of b comes to the cache: rows of few lines each are too short for the CPU to foresee.
func (g *gemm) panel(all gemmTile, below, tile int, next gemmPiece) {
	tiles := (all.rows + tile - 1) / tile
	share := (next.rows + tiles - 1) / tiles
	for i := 0; i < all.rows; i += tile {
		next.prefetch(share)
		t := all
		t.rows = min(tile, all.rows-i)
		t.a = all.a[i*all.k:][:t.rows*all.k]
		t.c = all.c[i*all.ldc:]
		switch {
		case !g.lower || below+i+1 >= t.cols:
			t.limit(t.cols)
		case below+i+t.rows > 0:
			t.limit(below + i + 1)
		}
	}
}

// gemmTile is a segment of the sums of a tile: c = a · b, or c += a · b. a is [k][rows], b [k][PanelRows], c [rows, cols].
type gemmTile struct {
	c, a, b            []float32
	rows, cols, k, ldc int
	add, pairs         bool
}

// limit computes the first columns of row 0, one more of row 1 and so on, up to cols of each.
func (t *gemmTile) limit(first int) {
	if first == PanelRows {
		gemmSums(t)
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
