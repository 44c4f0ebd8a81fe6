package reference

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// slabBytes is how much of a matrix is widened before all tokens pass over it, unless a panel of rows is more.
	slabBytes = 16 << 20
	// readBytes is how much of a matrix a thread widens at a time, unless a panel of rows is more: it stays in the L2
	// cache until it is packed.
	readBytes = 256 << 10
	// spanTokens and leastColumns are how much of a product a thread does at a time: enough to lay tokens out once for
	// many rows of the matrix, and rows once for many tokens.
	spanTokens, leastColumns = 256, 256
	// unitsPerThread lets a thread that was held up hand its share to the others.
	unitsPerThread = 4
)

// rowsIn is how many rows of cols floats, in whole panels, are as many bytes.
func rowsIn(bytes, cols int) int { return max(1, bytes/4/cols/kernel.PanelRows) * kernel.PanelRows }

// matrix is the weight of a linear layer.
type matrix struct {
	arch.Weight
	mu sync.Mutex
	// whole is the whole matrix, widened once, if it is kept.
	whole *kernel.Packed
}

// kept returns the whole matrix and widens it the first time. A call that is cancelled leaves that to the next one.
func (m *Model) kept(ctx context.Context, w *matrix) (*kernel.Packed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.whole != nil {
		return w.whole, nil
	}
	t, err := m.open(w.Weight)
	if err != nil {
		return nil, err
	}
	p := new(kernel.Packed)
	if err := m.widen(ctx, p, t, 0, w.Rows); err != nil {
		return nil, err
	}
	w.whole = p
	return p, nil
}

// widen makes p rows lo to lo+n-1 of a tensor.
func (m *Model) widen(ctx context.Context, p *kernel.Packed, t *weight, lo, n int) error {
	p.Resize(n, t.cols)
	step := rowsIn(readBytes, t.cols)
	return m.each(ctx, (n+step-1)/step, func(u int, b *buffer) error {
		at := u * step
		count := min(step, n-at)
		f := grow(&b.f32, count*t.cols)
		if err := t.rows(f, lo+at, b); err != nil {
			return err
		}
		p.PackRows(f, at, count, t.cols)
		return nil
	})
}

// linear is dst = x · Wᵀ + b for n tokens: x [n, Cols], dst [n, Rows].
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
	if m.keeps() {
		p, err := m.kept(ctx, w)
		if err != nil {
			return err
		}
		return m.multiply(ctx, dst, x, n, p, bias, 0, w.Rows)
	}
	t, err := m.open(l.Weight)
	if err != nil {
		return err
	}
	p := m.slabs.Get().(*kernel.Packed)
	defer m.slabs.Put(p)
	step := rowsIn(slabBytes, w.Cols)
	for lo := 0; lo < w.Rows; lo += step {
		if err := m.widen(ctx, p, t, lo, min(step, w.Rows-lo)); err != nil {
			return err
		}
		if err := m.multiply(ctx, dst, x, n, p, bias, lo, w.Rows); err != nil {
			return err
		}
	}
	return nil
}

// multiply computes the columns of dst [n, width], from column at on, that belong to the rows of p. A sum is never
// divided, so the division into units of work does not change it.
func (m *Model) multiply(ctx context.Context, dst, x []float32, n int, p *kernel.Packed, bias []float32, at, width int) error {
	rows, cols := p.Rows(), len(x)/n
	spans := (n + spanTokens - 1) / spanTokens
	parts := max(1, min(unitsPerThread*m.threads/spans, rows/leastColumns))
	part := ((rows+parts-1)/parts + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows
	parts = (rows + part - 1) / part
	return m.each(ctx, spans*parts, func(u int, _ *buffer) error {
		from, to := n*(u/parts)/spans, n*(u/parts+1)/spans
		lo := u % parts * part
		hi := min(lo+part, rows)
		p.MulT(dst[from*width+at:], x[from*cols:], to-from, width, cols, lo, hi)
		for j := from; j < to && bias != nil; j++ {
			y := dst[j*width+at+lo : j*width+at+hi]
			kernel.Add(y, y, bias[at+lo:at+hi])
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
