package kernel

import "fmt"

// PanelRows is the number of rows of a panel of [Packed].
const PanelRows = 32

// Packed is a float32 matrix [rows, cols] laid out as the right-hand side of products: [panels][cols][PanelRows], the
// last panel filled up with zeros. Filled once it is safe for concurrent use.
type Packed struct {
	panels     []float32
	rows, cols int
	version    uint64 // see [Factor]
}

// Rows is the number of rows of the matrix, the columns of a product.
func (p *Packed) Rows() int { return p.rows }

// Cols is the number of columns of the matrix, the positions of a sum.
func (p *Packed) Cols() int { return p.cols }

// Bytes is the memory that p holds.
func (p *Packed) Bytes() int { return 4 * cap(p.panels) }

// Resize makes room for a matrix [n, k], reusing the present memory if it suffices. The content is undefined until every row
// has been packed.
func (p *Packed) Resize(n, k int) {
	p.panels = resizePanels(p.panels, n, k)
	p.rows, p.cols = n, k
}

// Pack makes p the matrix b [n, k], whose row j begins at b[j*ldb].
func (p *Packed) Pack(b []float32, n, k, ldb int) {
	checkMatrix("Packed.Pack", "b", len(b), n, k, ldb)
	p.Resize(n, k)
	p.PackRows(b, 0, n, ldb)
}

// PackRows fills rows lo to lo+rows-1 with those of b, of which the first begins at b[0], the next at b[ldb]. lo is a
// multiple of PanelRows, and so is rows unless they are the last ones. Goroutines may pack different rows.
func (p *Packed) PackRows(b []float32, lo, rows, ldb int) {
	checkMatrix("Packed.PackRows", "b", len(b), rows, p.cols, ldb)
	p.changed()
	side := gemmSide{layout: gemmByRow, f: b, ld: ldb}
	packPanels(p.panels, &side, lo, rows, p.rows, p.cols)
}

// PackColumns is PackRows for columns lo to lo+cols-1 of the matrix b [Cols, Rows], whose row t begins at b[t*ldb]: p is bᵀ.
func (p *Packed) PackColumns(b []float32, lo, cols, ldb int) {
	checkMatrix("Packed.PackColumns", "b", len(b), p.cols, lo+cols, ldb)
	p.changed()
	side := gemmSide{layout: gemmByPosition, f: b[min(lo, len(b)):], ld: ldb}
	packPanels(p.panels, &side, lo, cols, p.rows, p.cols)
}

// MulT computes columns lo to hi-1 of dst = a · pᵀ: a is [m, Cols], dst is [m, Rows], with row i of dst at dst[i*ldd],
// its column 0 first, and row i of a at a[i*lda]. lo is a multiple of PanelRows. The result has the bits of [MatMulT],
// whatever m, lo and hi are, so that workers may share a product by panels.
//
// It panics when a slice is too short for its shape.
func (p *Packed) MulT(dst, a []float32, m, ldd, lda, lo, hi int) {
	checkColumns("Packed.MulT", lo, hi, p.rows)
	p.multiply(dst, a, m, ldd, lda, lo, hi, 0, p.cols)
}

// TMulT computes columns lo to hi-1 of dst = aᵀ · pᵀ like [Packed.MulT], where a is [Cols, m] with row t at a[t*lda]. The result
// has the bits of [MatMulT] for aᵀ.
func (p *Packed) TMulT(dst, a []float32, m, ldd, lda, lo, hi int) {
	checkColumns("Packed.TMulT", lo, hi, p.rows)
	checkMatrix("Packed.TMulT", "dst", len(dst), m, hi, ldd)
	checkMatrix("Packed.TMulT", "a", len(a), p.cols, m, lda)
	b := gemmSide{layout: gemmPacked, f: p.panels, ld: p.cols}
	g := gemm{a: gemmSide{layout: gemmByPosition, f: a, ld: lda}, b: b, k: p.cols, ldd: ldd}
	g.run(dst, 0, m, lo, hi)
}

// MulTSpan computes dst = a · qᵀ for the columns from to to-1 of p, the matrix q: a is [m, to-from], dst is [m, Rows], with row
// i of dst at dst[i*ldd] and row i of a at a[i*lda]. The result has the bits of [MatMulT] for q. It panics when a slice is too
// short for its shape.
func (p *Packed) MulTSpan(dst, a []float32, m, ldd, lda, from, to int) {
	if from < 0 || to < from || to > p.cols {
		panic(fmt.Sprintf("internal error: kernel.Packed.MulTSpan: positions %d to %d of %d", from, to, p.cols))
	}
	p.multiply(dst, a, m, ldd, lda, 0, p.rows, from, to)
}

// multiply computes columns lo to hi-1 of the product over the positions from to to-1.
func (p *Packed) multiply(dst, a []float32, m, ldd, lda, lo, hi, from, to int) {
	checkMatrix("Packed.MulT", "dst", len(dst), m, hi, ldd)
	checkMatrix("Packed.MulT", "a", len(a), m, to-from, lda)
	if m == 1 {
		p.row(dst, a[:to-from], lo, hi, from)
		return
	}
	b := gemmSide{layout: gemmPacked, f: p.panels[min(from*PanelRows, len(p.panels)):], ld: p.cols}
	g := gemm{a: gemmSide{layout: gemmByRow, f: a, ld: lda}, b: b, k: to - from, ldd: ldd}
	g.run(dst, 0, m, lo, hi)
}

// row is multiply for one row, for which nothing has to be laid out, over len(a) positions.
func (p *Packed) row(dst, a []float32, lo, hi, from int) {
	if len(a) == 0 {
		clear(dst[lo:hi])
	}
	for j := lo; j < hi; {
		cols := min(gemmRowColumns(hi-j), hi-j)
		for q := 0; q < len(a); q += gemmSegment {
			n := min(gemmSegment, len(a)-q)
			b := p.panels[j*p.cols+(from+q)*PanelRows:]
			if cols > PanelRows {
				gemmRow(dst[j:j+cols], a[q:q+n], b, PanelRows*p.cols, q > 0)
				continue
			}
			t := gemmTile{c: dst[j:], a: a[q : q+n], b: b[:PanelRows*n], rows: 1, cols: cols, k: n, add: q > 0}
			t.limit(cols)
		}
		j += cols
	}
}

// SetRow replaces row j by row, which has Cols elements.
func (p *Packed) SetRow(j int, row []float32) {
	p.changed()
	panel := p.panels[j/PanelRows*PanelRows*p.cols:][:PanelRows*p.cols]
	for i, v := range row[:p.cols] {
		panel[i*PanelRows+j%PanelRows] = v
	}
}

// SetColumn replaces column i by column, which has Rows elements.
func (p *Packed) SetColumn(i int, column []float32) {
	p.changed()
	for j := 0; j < p.rows; j += PanelRows {
		copy(p.panels[j*p.cols+i*PanelRows:][:PanelRows], column[j:p.rows])
	}
}

// checkColumns demands a range of n columns that begins with a panel.
func checkColumns(function string, lo, hi, n int) {
	if lo < 0 || lo%PanelRows != 0 || hi < lo || hi > n {
		panic(fmt.Sprintf("internal error: kernel.%s: columns %d to %d of %d", function, lo, hi, n))
	}
}

// resizePanels returns panels of n rows of k positions.
func resizePanels(panels []float32, n, k int) []float32 {
	if n < 0 || k < 0 {
		panic(fmt.Sprintf("internal error: kernel: panels of %d x %d", n, k))
	}
	size := (n + PanelRows - 1) / PanelRows * PanelRows * k
	if cap(panels) < size {
		return hugeFloats(size)
	}
	return panels[:size]
}

// packPanels fills the panels of rows lo to lo+rows-1 of a matrix of n rows of k positions.
func packPanels(panels []float32, side *gemmSide, lo, rows, n, k int) {
	if lo < 0 || lo%PanelRows != 0 || rows < 0 || rows > n-lo || rows%PanelRows != 0 && lo+rows != n {
		panic(fmt.Sprintf("internal error: kernel: packing %d of %d rows from row %d", rows, n, lo))
	}
	if rows == 0 || k == 0 {
		return
	}
	for j := 0; j < rows; j += PanelRows {
		panel, count := panels[(lo+j)*k:][:PanelRows*k], min(PanelRows, rows-j)
		if count < PanelRows {
			clear(panel)
		}
		for p := 0; p < k; p += gemmSegment {
			side.fill(panel[p*PanelRows:], j, count, p, min(gemmSegment, k-p), PanelRows)
		}
	}
}
