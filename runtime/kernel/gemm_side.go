package kernel

import "unsafe"

// gemmLayout is the layout of a factor of a product in memory.
type gemmLayout int

const (
	gemmByRow      gemmLayout = iota // f is [rows, k]
	gemmByPosition                   // f is [k, rows]
	gemmPacked                       // f is panels, see Packed
)

// gemmSide is a factor of a product: its rows become rows or columns of the result.
type gemmSide struct {
	layout gemmLayout
	f      []float32
	ld     int // stride of f; the positions of a panel
}

// fillAll lays out positions p to p+n-1 of rows from i on, size rows after the other: each [n][size], the last one [n][rest]
// unless it is a panel, which is filled up with zeros.
func (s *gemmSide) fillAll(dst []float32, i, rows, p, n, size int) {
	step := n
	if s.layout == gemmByPosition { // all rows of a few positions, which are contiguous
		step = 16
	}
	for q := 0; q < n; q += step {
		for r := 0; r < rows; r += size {
			count := min(size, rows-r)
			ld := count
			if size == PanelRows {
				ld = size
				if q == 0 && count < size {
					clear(dst[r*n:][:size*n])
				}
			}
			s.fill(dst[r*n+q*ld:], i+r, count, p+q, min(step, n-q), ld)
		}
	}
}

// fill lays out rows of the factor, from i on, at the positions p to p+n-1: row r at position q is at dst[(q-p)*ld+r-i].
func (s *gemmSide) fill(dst []float32, i, rows, p, n, ld int) {
	if s.layout == gemmByRow {
		transpose(dst, s.f[i*s.ld+p:], rows, n, ld, s.ld)
	} else {
		copyRows(dst, s.f[p*s.ld+i:], rows, n, ld, s.ld)
	}
}

// gemmPiece is a part of a factor as it lies in memory: rows of bytes, ld bytes apart.
type gemmPiece struct {
	at              unsafe.Pointer
	rows, bytes, ld int
}

// piece is the memory of n positions from p on of some rows, at most a panel.
func (s *gemmSide) piece(i, rows, p, n int) gemmPiece {
	switch s.layout {
	case gemmByRow:
		return gemmPiece{unsafe.Pointer(&s.f[i*s.ld+p]), rows, 4 * n, 4 * s.ld}
	case gemmByPosition:
		return gemmPiece{unsafe.Pointer(&s.f[p*s.ld+i]), n, 4 * rows, 4 * s.ld}
	}
	return gemmPiece{unsafe.Pointer(&s.f[i*s.ld+p*PanelRows]), PanelRows, 4 * n, 4 * n} // gemmPacked
}

// prefetch prefetches the first rows and drops them.
func (p *gemmPiece) prefetch(rows int) {
	rows = min(rows, p.rows)
	if rows == 0 {
		return
	}
	prefetchRows((*byte)(p.at), rows, p.bytes, p.ld)
	p.rows -= rows
	if p.rows > 0 {
		p.at = unsafe.Add(p.at, rows*p.ld)
	}
}

// transposeGeneric writes the rows of src, of n elements each, as columns of dst.
func transposeGeneric(dst, src []float32, rows, n, lddst, ldsrc int) {
	for r := range rows {
		for p, v := range src[r*ldsrc:][:n] {
			dst[p*lddst+r] = v
		}
	}
}

// copyRowsGeneric copies n rows of width elements.
func copyRowsGeneric(dst, src []float32, width, n, lddst, ldsrc int) {
	for p := range n {
		copy(dst[p*lddst:][:width], src[p*ldsrc:])
	}
}
