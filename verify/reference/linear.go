package reference

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/pipeline/arch"
)

const (
	// pieceBytes is how much of a widened matrix a thread holds, unless a few rows are more: it stays in the L2 cache
	// while all tokens pass over it.
	pieceBytes = 1 << 20
	// pieceRows is what the rows of a piece are a multiple of: whole tiles of the product.
	pieceRows = 32
	// spanTokens is how many tokens at least pass over a piece at a time.
	spanTokens = 64
	// unitsPerThread lets a thread that was held up hand its share to the others.
	unitsPerThread = 4
)

// matrix is the weight of a linear layer, in pieces of some rows.
type matrix struct {
	weight arch.Weight
	piece  int // rows of all pieces but the last
	pieces int
	// kept gives all pieces, widened once; it is called only if the model keeps its weights.
	kept func() ([]packed, error)
}

func (m *Model) newMatrix(w arch.Weight) *matrix {
	piece := max(1, min(pieceBytes/4/w.Cols, w.Rows/(unitsPerThread*m.threads)))
	piece = (piece + pieceRows - 1) / pieceRows * pieceRows
	x := &matrix{weight: w, piece: piece, pieces: (w.Rows + piece - 1) / piece}
	x.kept = sync.OnceValues(func() ([]packed, error) {
		all := make([]packed, x.pieces)
		t, err := m.open(w)
		if err != nil {
			return nil, err
		}
		return all, m.each(context.Background(), x.pieces, func(i int, b *buffer) error { return x.read(&all[i], t, i, b) })
	})
	return x
}

// rows of piece i are lo to hi.
func (x *matrix) rows(i int) (lo, hi int) { return i * x.piece, min((i+1)*x.piece, x.weight.Rows) }

// read widens and packs a piece.
func (x *matrix) read(dst *packed, t *weight, i int, b *buffer) error {
	lo, hi := x.rows(i)
	f := grow(&b.f32, (hi-lo)*x.weight.Cols)
	if err := t.rows(f, lo, b); err != nil {
		return err
	}
	dst.Pack(f, hi-lo, x.weight.Cols, x.weight.Cols)
	return nil
}

// linear is dst = x · Wᵀ + b for n tokens: x [n, Cols], dst [n, Rows]. A unit of work is a piece of W and a span of
// tokens; a row is never divided, so the division does not change the sums.
func (m *Model) linear(ctx context.Context, dst, x []float32, n int, l *arch.Linear) error {
	if n == 0 {
		return nil
	}
	var bias []float32
	var err error
	if l.Bias.Tensor != "" {
		if bias, err = m.vector(l.Bias); err != nil {
			return err
		}
	}
	w := m.matrices[l.Weight]
	var kept []packed
	var t *weight
	if m.keeps() {
		kept, err = w.kept()
	} else {
		t, err = m.open(l.Weight)
	}
	if err != nil {
		return err
	}
	rows, cols := l.Weight.Rows, l.Weight.Cols
	spans := max(1, min(unitsPerThread*m.threads/w.pieces, n/spanTokens))
	return m.each(ctx, w.pieces*spans, func(u int, b *buffer) error {
		i, s := u/spans, u%spans
		p := &b.piece
		if t == nil {
			p = &kept[i]
		} else if err := w.read(p, t, i, b); err != nil {
			return err
		}
		lo, hi := w.rows(i)
		from, to := n*s/spans, n*(s+1)/spans
		p.MulT(dst[from*rows+lo:], x[from*cols:], to-from, rows, cols, 0, hi-lo)
		if bias != nil {
			for j := from; j < to; j++ {
				add(dst[j*rows+lo:j*rows+hi], bias[lo:hi])
			}
		}
		return nil
	})
}

// each calls f for every unit below n, on all threads, until one fails or ctx ends. f may use the buffer until it
// returns.
func (m *Model) each(ctx context.Context, n int, f func(unit int, b *buffer) error) error {
	g, stop := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(m.threads, n) {
		g.Go(func() error {
			b := m.buffers.Get().(*buffer)
			defer m.buffers.Put(b)
			for stop.Err() == nil {
				u := int(next.Add(1)) - 1
				if u >= n {
					break
				}
				if err := f(u, b); err != nil {
					return err
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
