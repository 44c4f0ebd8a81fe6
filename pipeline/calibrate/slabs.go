package calibrate

import (
	"context"
	"os"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
)

// A slab is a run of rows of a table or a head, which can be larger than all else in a layer: no more of it is in memory at a time.
// slabShare is the divisor of the memory limit that bounds the floats of a slab, and slabBytes bounds them if the limit does not.
const (
	slabShare = 32
	slabBytes = 64 << 20
)

// slabRows is how many rows of cols weights a slab of so many bytes has: whole spans of sums of squares, and whole units of encoding, so
// that results do not depend on it.
func slabRows(bytes int64, cols int) int {
	unit := encodeRows
	for unit*cols%distanceSpan != 0 {
		unit *= 2
	}
	return max(1, int(min(bytes, slabBytes))/4/cols/unit) * unit
}

// slabs calls f with the weights of a linear layer, slab by slab, or at once if they are in memory. first is the first row.
func (o *Options) slabs(ctx context.Context, l *forward.Linear, f func(first int, w quant.Matrix) error) error {
	if l.W != nil {
		return f(0, matrixOf(l))
	}
	step := slabRows(o.Memory/slabShare, l.Cols)
	data := make([]float32, min(step, l.Rows)*l.Cols)
	for first := 0; first < l.Rows; first += step {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w := quant.Matrix{Rows: min(step, l.Rows-first), Cols: l.Cols}
		w.Data = data[:w.Rows*w.Cols]
		if err := l.ReadRows(w.Data, first); err != nil {
			return err
		}
		if err := f(first, w); err != nil {
			return err
		}
	}
	return nil
}

// encodeSlabs encodes a linear layer slab by slab and writes codes and scales to a file, as coder.encode returns them for the whole.
// each is called with every slab and the weights that its codes stand for.
func (o *Options) encodeSlabs(ctx context.Context, c *coder, to *os.File, l *forward.Linear, s quant.Spec, st *quant.Stats,
	each func(first int, w quant.Matrix, hat []float32) error) error {
	whole, err := s.Layout(l.Rows, l.Cols)
	if err != nil {
		return err
	}
	codes, alpha := whole.Codes/int64(l.Rows), whole.Alpha/int64(l.Rows) // of a row
	return o.slabs(ctx, l, func(first int, w quant.Matrix) error {
		e := &encoding{Matrix: w, name: l.Weight.Tensor, first: first, spec: s}
		if err := c.encodeAll([]*encoding{e}, st); err != nil {
			return err
		}
		at := int64(first)
		if _, err := to.WriteAt(e.file[:e.layout.Codes], at*codes); err != nil {
			return err
		}
		if _, err := to.WriteAt(e.file[e.layout.Codes:], whole.Codes+at*alpha); err != nil {
			return err
		}
		return each(first, w, e.hat)
	})
}
