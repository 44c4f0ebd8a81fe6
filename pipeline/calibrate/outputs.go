package calibrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// outputShare is the divisor of the memory limit that bounds these moments; what is more lies in a file.
const outputShare = 8

// outputMoments holds, for runs of rows of linear layers, the second moments of the gradients of the log-likelihood at their outputs, of
// labels drawn from the float model: its Fisher information.
type outputMoments struct {
	store   *rows          // single values
	room    *room          // of the store
	offsets map[string]int // of the moments of a tensor in the store
	tokens  map[string]int64
	window  int // tokens
	skip    int
	threads int
	tally   *effort.Tally // or nil
	buffer  []float32
}

// newOutputMoments makes room for the moments of the wanted linear layers of a decoder. Experts have none: few tokens reach them.
func newOutputMoments(ctx context.Context, o *Options, wanted func(tensor string) bool) (*outputMoments, error) {
	x := &outputMoments{
		room: &room{o.Memory / outputShare}, offsets: map[string]int{}, tokens: map[string]int64{},
		window: len(o.Windows[0]), skip: o.Skip, threads: o.Threads, tally: effort.TallyOf(ctx),
	}
	size := 0
	o.Decoder.Linears(func(name string, l *arch.Linear) {
		tensor := l.Weight.Tensor
		if _, ok := x.offsets[tensor]; ok || name == headInput || toExpert(name) || !wanted(tensor) {
			return
		}
		x.offsets[tensor] = size
		for _, n := range runs(l.Weight.Rows) {
			size += n * n
		}
	})
	var err error
	x.store, err = newRows(x.room, o.Dir, size, 1)
	return x, err
}

// runs divides the rows of a matrix into the fewest runs of at most quant.CoupledRows, and returns their lengths.
func runs(rows int) (lengths []int) {
	n := (rows + quant.CoupledRows - 1) / quant.CoupledRows
	for i := range n {
		lengths = append(lengths, rows*(i+1)/n-rows*i/n)
	}
	return lengths
}

// visitor adds the gradients of a pass over so many tokens, in whole windows. An error is set in failed.
func (x *outputMoments) visitor(failed *error) forward.Visitor {
	if x == nil {
		return forward.Visitor{}
	}
	return forward.Visitor{Linear: func(l *forward.Linear, _, dy []float32) {
		if err := x.add(l, dy); err != nil && *failed == nil {
			*failed = err
		}
	}}
}

// add takes the gradients at the outputs of a layer, [tokens, Rows].
func (x *outputMoments) add(l *forward.Linear, dy []float32) error {
	at, ok := x.offsets[l.Weight.Tensor]
	if !ok {
		return nil
	}
	tokens := len(dy) / l.Rows
	if tokens%x.window != 0 {
		return fmt.Errorf("internal error: %d gradients of %s in windows of %d", tokens, l.Weight.Tensor, x.window)
	}
	first := x.tokens[l.Weight.Tensor] == 0
	x.tokens[l.Weight.Tensor] += int64(tokens / x.window * (x.window - x.skip))
	lo := 0
	for _, n := range runs(l.Rows) {
		x.tally.AddWork(estimate.Moments(tokens, n, false))
		part := dy
		if n < l.Rows {
			x.buffer = grow(x.buffer, tokens*n)
			part = x.buffer
			kernel.Parallel(x.threads, tokens, func(from, to int) {
				for t := from; t < to; t++ {
					copy(part[t*n:(t+1)*n], dy[t*l.Rows+lo:])
				}
			})
		}
		m := newMoments(n, false)
		if !first {
			sum, err := x.store.get(m.hessian, at, n*n)
			if err != nil {
				return err
			}
			m.hessian = sum
		}
		m.add(part[:tokens*n], nil, x.window, x.skip, x.threads)
		if err := x.store.put(m.hessian, at); err != nil {
			return err
		}
		lo, at = lo+n, at+n*n
	}
	return nil
}

// has reports whether there are moments of a tensor.
func (x *outputMoments) has(tensor string) bool { return x != nil && x.tokens[tensor] > 0 }

// of returns the moments of a run of rows of a tensor with so many.
func (x *outputMoments) of(tensor string, rows, run int) (*quant.Stats, error) {
	at, lengths := x.offsets[tensor], runs(rows)
	for _, n := range lengths[:run] {
		at += n * n
	}
	n := lengths[run]
	m := newMoments(n, false)
	sum, err := x.store.get(m.hessian, at, n*n)
	if err != nil {
		return nil, err
	}
	m.hessian, m.tokens = slices.Clone(sum), x.tokens[tensor]
	s, err := m.stats(x.threads)
	if err != nil {
		return nil, fmt.Errorf("gradients at the outputs: %w", err)
	}
	return s, nil
}

// close returns the memory or removes the file.
func (x *outputMoments) close() {
	if x != nil {
		x.store.close(x.room)
	}
}

// couples reports whether the method lets rows make up for each other's errors.
func (q *quantization) couples() bool {
	return estimate.Couples(q.Chain.Quantizer) && q.watching()
}

// refine lets runs of rows of an encoded matrix make up for each other's errors.
func (q *quantization) refine(ctx context.Context, w *encoding) error {
	r, ok := w.encoder.(quant.Refiner)
	if !ok || !q.outputs.has(w.name) {
		return nil
	}
	l, s := w.layout, w.spec
	b := quant.Unpacked(w.file[:l.Codes], w.file[l.Codes:], l, s)
	lo := 0
	for i, n := range runs(w.Rows) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		moments, err := q.outputs.of(w.name, w.Rows, i)
		if err != nil {
			return err
		}
		if err := r.Refine(b.Slice(lo, lo+n, w.Rows), w.Matrix.Slice(lo, lo+n), moments, q.Threads); err != nil {
			return err
		}
		lo += n
	}
	effort.TallyOf(ctx).AddWork(estimate.Refine(q.Chain.Quantizer, w.Rows, w.Cols))
	quant.Pack(w.file[:l.Codes], b.Codes, s.Bits)
	quant.PackAlpha(w.file[l.Codes:], b, s)
	b.Dequantize(w.hat, s)
	return nil
}

// toExpert reports whether a linear layer, by the name of [arch.Decoder.Linears], reads only the tokens that a router sends to it.
func toExpert(name string) bool {
	_, rest, ok := strings.Cut(name, ".experts.")
	return ok && rest[0] >= '0' && rest[0] <= '9'
}
