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

// view is the bytes of a matrix as F32. It keeps the rows that were read last, so that reading in small pieces does not repeat
// work.
type view struct {
	info       tensor.Info
	rows, cols int
	// floats writes rows lo to hi-1 as F32, little endian.
	floats func(dst []byte, lo, hi int) error
	// single is set if computing rows one by one is as fast as computing several together.
	single bool

	mu   sync.Mutex
	at   int // first row of tile
	tile []byte
}

// ReadAt implements io.ReaderAt.
func (v *view) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("internal error: offset %d", off)
	}
	step := max(1, tileElements/v.cols)
	n := 0
	for n < len(p) {
		pos := off + int64(n)
		if pos >= v.info.Size {
			return n, io.EOF
		}
		if width := 4 * int64(v.cols); v.single && pos%width == 0 {
			if whole := int(min(int64(len(p)-n), v.info.Size-pos) / width); whole > 0 {
				lo := int(pos / width)
				if err := v.floats(p[n:n+whole*int(width)], lo, lo+whole); err != nil {
					return n, fmt.Errorf("%s: %w", v.info.Name, err)
				}
				n += whole * int(width)
				continue
			}
		}
		lo := int(pos/4/int64(v.cols)) / step * step
		tile, err := v.tileAt(lo, min(lo+step, v.rows))
		if err != nil {
			return n, fmt.Errorf("%s: %w", v.info.Name, err)
		}
		n += copy(p[n:], tile[pos-4*int64(lo)*int64(v.cols):])
	}
	return n, nil
}

// tileAt returns rows lo to hi-1, computed or kept.
func (v *view) tileAt(lo, hi int) ([]byte, error) {
	v.mu.Lock()
	at, tile := v.at, v.tile
	v.mu.Unlock()
	if tile != nil && at == lo {
		return tile, nil
	}
	// Other readers continue meanwhile; a tile never changes once it is kept.
	tile = make([]byte, (hi-lo)*v.cols*4)
	if err := v.floats(tile, lo, hi); err != nil {
		return nil, err
	}
	v.mu.Lock()
	v.at, v.tile = lo, tile
	v.mu.Unlock()
	return tile, nil
}
