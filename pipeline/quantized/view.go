package quantized

import (
	"fmt"
	"io"
	"sync"
)

// tileElements is the number of weights that are computed at a time; rows of a transposed matrix are cheap only in
// company.
const tileElements = 1 << 18

// view is the bytes of a packed matrix as F32. It keeps the rows that were read last, so that reading in small pieces
// computes nothing twice.
type view struct {
	linear *linear

	mu   sync.Mutex
	at   int // first row of tile
	tile []byte
}

// ReadAt implements io.ReaderAt.
func (v *view) ReadAt(p []byte, off int64) (int, error) {
	l := v.linear
	if off < 0 {
		return 0, fmt.Errorf("internal error: offset %d", off)
	}
	step := max(1, tileElements/l.cols)
	n := 0
	for n < len(p) {
		pos := off + int64(n)
		if pos >= l.info.Size {
			return n, io.EOF
		}
		lo := int(pos/4/int64(l.cols)) / step * step
		tile, err := v.rows(lo, min(lo+step, l.rows))
		if err != nil {
			return n, fmt.Errorf("%s: %w", l.info.Name, err)
		}
		n += copy(p[n:], tile[pos-4*int64(lo)*int64(l.cols):])
	}
	return n, nil
}

// rows returns rows lo to hi-1, computed or kept.
func (v *view) rows(lo, hi int) ([]byte, error) {
	v.mu.Lock()
	at, tile := v.at, v.tile
	v.mu.Unlock()
	if tile != nil && at == lo {
		return tile, nil
	}
	// Other readers go on meanwhile; a tile is never changed once it is kept.
	tile = make([]byte, (hi-lo)*v.linear.cols*4)
	if err := v.linear.floats(tile, lo, hi); err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.at, v.tile = lo, tile
	v.mu.Unlock()
	return tile, nil
}
