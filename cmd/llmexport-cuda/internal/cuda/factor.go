package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// factorColumns is the number of columns that are factored together.
const factorColumns = kernel.ReachColumns

// factoring is the state of factor. The matrix and its factor L are in panels, the inverse M is in rows.
type factoring struct {
	*kernel.Factoring
	engine          *Engine
	stream          uintptr
	a, m            uint64
	tmp             uint64    // of a product
	inverse, minus  uint64    // of the last block of the diagonal, and the negative, in panels
	block, diagonal []float32 // of the diagonal, and its inverse
	panels          []float32 // a block as panels
}

// factor does the work of invertFactor of package quant, in its order: what is subtracted from a block of columns, the block of the
// diagonal, which this CPU inverts, the columns below, and the row of the inverse before the block. The row of the block before is
// computed meanwhile.
func (e *Engine) factor(w *kernel.Factoring) bool {
	n := w.N
	if n%4 != 0 { // rows of the inverse begin at multiples of 16 bytes
		return false
	}
	const square = factorColumns * factorColumns
	size := 4 * uint64(n) * uint64(n)
	sizes := map[*buffer]uint64{&e.a: panelBytes(n, n), &e.part: 4 * factorColumns * uint64(n), &e.b: 2 * 4 * square, &e.raw: 4 * uint64(e.rawRows(n)*n)}
	m, stays := e.stayFactor(w.Version, size, sizes)
	if !stays {
		sizes[&e.c] = size
	}
	if e.failed != nil || !stays && !e.room(sizes) {
		return false
	}
	if !stays {
		m = e.c
	}
	e.inA = 0
	f := &factoring{Factoring: w, engine: e, stream: e.streams[0], a: e.a.at, m: m.at, tmp: e.part.at, inverse: e.b.at, minus: e.b.at + 4*square,
		block: make([]float32, square), diagonal: make([]float32, square), panels: make([]float32, square)}
	done := e.bring(e.a.at, kernel.Factor{Data: w.A, Layout: kernel.ByRow, Stride: n}, n, n) && f.columns() && e.download(f.stream, values(w.A), f.m)
	done = e.do("cuEventRecord", e.driver.record(e.done, f.stream)) && done && e.finishAll()
	if stays && !done {
		e.forget(e.kept.of[w.Version])
	}
	return done
}

// stayFactor makes a buffer for a result that other work finds by its version, besides buffers of other sizes. It reports false if there is no
// memory for all.
func (e *Engine) stayFactor(version, size uint64, others map[*buffer]uint64) (buffer, bool) {
	if version == 0 {
		return buffer{}, false
	}
	b, ok := e.more(size)
	if !ok {
		return b, false
	}
	e.kept.add(version, b, size, e.spent.Products)
	if ok = e.room(others); !ok {
		e.forget(e.kept.of[version])
	}
	return b, ok
}

// forget gives up a factor.
func (e *Engine) forget(k *kept) {
	b := e.kept.remove(k)
	e.release(&b)
}

// columns computes L and M.
func (f *factoring) columns() bool {
	k := 0
	for ; k < f.N; k += factorColumns {
		if !f.column(k) {
			return false
		}
	}
	return f.row(k - factorColumns)
}

// rows is the matrix from a row and a position on.
func (f *factoring) rows(row, position int) factor {
	x := panels(f.a, f.N)
	x.at += 4 * uint64(row*f.N+position*kernel.PanelRows)
	return x
}

// column computes a block of columns of L, and the row of M before the block before.
func (f *factoring) column(k int) bool {
	e, n, b := f.engine, f.N, min(factorColumns, f.N-k)
	if !f.update(k, k, k+b) {
		return false
	}
	// Panels of the block lie apart.
	for i := 0; i < b; i += kernel.PanelRows {
		if !e.download(f.stream, values(f.panels[i*b:(i+kernel.PanelRows)*b]), f.rows(k+i, k).at) {
			return false
		}
	}
	if !f.update(k, k+b, n) || k > 0 && !f.row(k-factorColumns) || !e.finishAll() {
		return false
	}
	block, inverse := f.block[:b*b], f.diagonal[:b*b]
	for i := range b {
		for p := range b {
			block[i*b+p] = f.panels[panelAt(i, p, b)]
		}
	}
	if !f.Invert(inverse, block, b) {
		return false
	}
	if !e.upload(f.stream, f.tmp, values(inverse)) || !f.place(f.m+4*uint64(k*n+k), int64(n), 1, b, b, false) {
		return false
	}
	for _, x := range []struct {
		to   uint64
		sign float32
	}{{f.inverse, 1}, {f.minus, -1}} {
		clear(f.panels)
		for i := range b {
			for p := range b {
				f.panels[panelAt(i, p, b)] = x.sign * inverse[i*b+p]
			}
		}
		if !e.upload(f.stream, x.to, values(f.panels[:panelBytes(b, b)/4])) {
			return false
		}
	}
	below := n - k - b
	return below == 0 || e.multiply(f.stream, f.tmp, f.rows(k+b, k), panels(f.inverse, b), below, b, b, false, kernel.All) &&
		f.place(f.rows(k+b, k).at, 1, kernel.PanelRows, below, b, false)
}

// panelAt is where an element of rows in panels is.
func panelAt(row, position, k int) int {
	return row/kernel.PanelRows*kernel.PanelRows*k + position*kernel.PanelRows + row%kernel.PanelRows
}

// update subtracts from columns k of rows lo to hi-1 what the columns before them contribute.
func (f *factoring) update(k, lo, hi int) bool {
	b := min(factorColumns, f.N-k)
	return k == 0 || lo == hi || f.engine.multiply(f.stream, f.tmp, f.rows(lo, 0), f.rows(k, 0), hi-lo, b, k, false, kernel.All) &&
		f.place(f.rows(lo, k).at, 1, kernel.PanelRows, hi-lo, b, true)
}

// row computes the row of M before block k, whose inverse was the last one.
func (f *factoring) row(k int) bool {
	b := min(factorColumns, f.N-k)
	return k == 0 || f.engine.multiply(f.stream, f.tmp, f.rows(k, 0), factor{f.m, kernel.PanelRows, int64(f.N), 0}, b, k, k, false, kernel.From) &&
		f.engine.product(f.stream, f.m+4*uint64(k*f.N), panels(f.minus, b), factor{f.tmp, kernel.PanelRows, int64(k), 0}, b, k, b, f.N, false, kernel.All)
}

// place puts the product to columns of the matrix or, with lines of N, of M; or subtracts it.
func (f *factoring) place(to uint64, line, step int64, rows, cols int, subtract bool) bool {
	panel, m, n, less := int64(kernel.PanelRows*f.N), int32(rows), int32(cols), int32(0)
	if subtract {
		less = 1
	}
	return f.engine.launch(f.stream, place, (rows+kernel.PanelRows-1)/kernel.PanelRows, (cols+kernel.PanelRows-1)/kernel.PanelRows, unsafe.Pointer(&to),
		unsafe.Pointer(&panel), unsafe.Pointer(&line), unsafe.Pointer(&step), unsafe.Pointer(&f.tmp), unsafe.Pointer(&m), unsafe.Pointer(&n), unsafe.Pointer(&less))
}
