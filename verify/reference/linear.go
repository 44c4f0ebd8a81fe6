package reference

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// pieceBytes is how much of a widened matrix a thread holds: it stays in the L2 cache while all tokens
// pass over it.
const pieceBytes = 1 << 20

// linear is dst = x · Wᵀ + b for n tokens: x [n, Cols], dst [n, Rows]. Each thread reads and widens a piece
// of rows of W and applies it to all tokens; a row is never divided, so pieces do not change the sums.
func (m *Model) linear(ctx context.Context, dst, x []float32, n int, l *arch.Linear) error {
	if n == 0 {
		return nil
	}
	w, err := m.open(l.Weight)
	if err != nil {
		return err
	}
	var bias []float32
	if l.Bias.Tensor != "" {
		if bias, err = m.vector(l.Bias); err != nil {
			return err
		}
	}
	rows, cols := l.Weight.Rows, l.Weight.Cols
	piece := max(1, min(pieceBytes/4/cols, (rows+m.threads-1)/m.threads))
	piece = (piece + 3) &^ 3 // whole tiles of the product
	g, stop := errgroup.WithContext(ctx)
	g.SetLimit(m.threads)
	for lo := 0; lo < rows && stop.Err() == nil; lo += piece {
		g.Go(func() error {
			b := m.buffers.Get().(*buffer)
			defer m.buffers.Put(b)
			count := min(piece, rows-lo)
			f := grow(&b.f32, count*cols)
			if err := w.rows(f, lo, b); err != nil {
				return err
			}
			kernel.MatMulT(dst[lo:], x, f, n, count, cols, rows, cols, cols)
			if bias != nil {
				for i := range n {
					add(dst[i*rows+lo:i*rows+lo+count], bias[lo:lo+count])
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// add is dst += x.
func add(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += v
	}
}
