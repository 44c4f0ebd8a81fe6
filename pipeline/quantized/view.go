package quantized

import (
	"fmt"
	"io"
	"math"
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
	tile []float32
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
		n += copyFloats(p[n:], tile, int(pos-4*int64(lo)*int64(l.cols)))
	}
	return n, nil
}

// rows returns rows lo to hi-1, computed or kept.
func (v *view) rows(lo, hi int) ([]float32, error) {
	v.mu.Lock()
	at, tile := v.at, v.tile
	v.mu.Unlock()
	if tile != nil && at == lo {
		return tile, nil
	}
	// Other readers go on meanwhile; a tile is never changed once it is kept.
	tile = make([]float32, (hi-lo)*v.linear.cols)
	if err := v.linear.floats(tile, lo, hi); err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.at, v.tile = lo, tile
	v.mu.Unlock()
	return tile, nil
}

// copyFloats copies the little-endian bytes of src from byte off on, and returns their number.
func copyFloats(dst []byte, src []float32, off int) int {
	n := 0
	for i := off / 4; i < len(src) && n < len(dst); i++ {
		bits := math.Float32bits(src[i])
		for k := (off + n) % 4; k < 4 && n < len(dst); k++ {
			dst[n] = byte(bits >> (8 * k))
			n++
		}
	}
	return n
}
