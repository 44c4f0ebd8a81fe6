package quantized

import (
	"fmt"
	"io"
	"sync"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// tileElements is the number of weights that are computed at a time; rows of a transposed matrix are cheap only
// together.
const tileElements = 1 << 18

// floatMatrix is a matrix whose rows can be computed as F32.
type floatMatrix interface {
	// shape gives the facts of the float view, and its rows and columns.
	shape() (info tensor.Info, rows, cols int)
	// floats writes rows lo to hi-1 as F32, little endian.
	floats(dst []byte, lo, hi int) error
	// single reports whether one row takes as long by itself as together with others.
	single() bool
}

func (l *linear) single() bool { return false }

func (m *narrow) single() bool { return true }

func (l *linear) shape() (tensor.Info, int, int) { return l.info, l.rows, l.cols }

func (m *narrow) shape() (tensor.Info, int, int) { return m.info, m.rows, m.cols }

// view is the bytes of a matrix as F32. It keeps the rows that were read last, so that reading in small pieces
// computes nothing twice.
type view struct {
	matrix floatMatrix

	mu   sync.Mutex
	at   int // first row of tile
	tile []byte
}

// ReadAt implements io.ReaderAt.
func (v *view) ReadAt(p []byte, off int64) (int, error) {
	info, rows, cols := v.matrix.shape()
	if off < 0 {
		return 0, fmt.Errorf("internal error: offset %d", off)
	}
	step := max(1, tileElements/cols)
	n := 0
	for n < len(p) {
		pos := off + int64(n)
		if pos >= info.Size {
			return n, io.EOF
		}
		if width := 4 * int64(cols); v.matrix.single() && pos%width == 0 {
			if whole := int(min(int64(len(p)-n), info.Size-pos) / width); whole > 0 {
				lo := int(pos / width)
				if err := v.matrix.floats(p[n:n+whole*int(width)], lo, lo+whole); err != nil {
					return n, fmt.Errorf("%s: %w", info.Name, err)
				}
				n += whole * int(width)
				continue
			}
		}
		lo := int(pos/4/int64(cols)) / step * step
		tile, err := v.rows(lo, min(lo+step, rows), cols)
		if err != nil {
			return n, fmt.Errorf("%s: %w", info.Name, err)
		}
		n += copy(p[n:], tile[pos-4*int64(lo)*int64(cols):])
	}
	return n, nil
}

// rows returns rows lo to hi-1, computed or kept.
func (v *view) rows(lo, hi, cols int) ([]byte, error) {
	v.mu.Lock()
	at, tile := v.at, v.tile
	v.mu.Unlock()
	if tile != nil && at == lo {
		return tile, nil
	}
	// Other readers go on meanwhile; a tile is never changed once it is kept.
	tile = make([]byte, (hi-lo)*cols*4)
	if err := v.matrix.floats(tile, lo, hi); err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.at, v.tile = lo, tile
	v.mu.Unlock()
	return tile, nil
}
