package calibrate

import (
	"context"
	"fmt"
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
	tally   *effort.Tally    // or nil
	buffer  []float32        // gradients of a run of rows
	sum     []float32        // moments that are in a file
	scratch map[int]*moments // by the number of rows of a run
	staying []kernel.Moment  // on a device
}

// newOutputMoments makes room for the moments of the wanted linear layers of a decoder. Experts have none: few tokens reach them.
func newOutputMoments(ctx context.Context, o *Options, wanted func(tensor string) bool) (*outputMoments, error) {
	x := &outputMoments{
		room: &room{left: o.Memory / outputShare}, offsets: map[string]int{}, tokens: map[string]int64{},
		window: len(o.Windows[0]), skip: o.Skip, threads: o.Threads, tally: effort.TallyOf(ctx), scratch: map[int]*moments{},
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

// lowest is the first layer of a decoder with moments of its outputs, or the number of layers if there is none.
func (x *outputMoments) lowest(d *arch.Decoder) int {
	for i := range d.Layers {
		found := false
		d.LayerLinears(i, func(_ string, l *arch.Linear) {
			if x != nil {
				_, ok := x.offsets[l.Weight.Tensor]
				found = found || ok
			}
		})
		if found {
			return i
		}
	}
	return len(d.Layers)
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
	wants := func(l *forward.Linear) (_, dy bool) {
		_, dy = x.offsets[l.Weight.Tensor]
		return false, dy
	}
	return forward.Visitor{Wants: wants, Moments: x.sums, Linear: func(l *forward.Linear, _, dy []float32) {
		if err := x.add(l, dy); err != nil && *failed == nil {
			*failed = err
		}
	}}
}

// sums lists the moments of a layer for a device that has its gradients for so many tokens, or none if it cannot add to them. They stay there
// until settle.
func (x *outputMoments) sums(l *forward.Linear, tokens int) (list []kernel.Moment, added func()) {
	at, ok := x.offsets[l.Weight.Tensor]
	if !ok || x.store.mem == nil || l.Rows%4 != 0 {
		return nil, nil
	}
	lo := 0
	for _, n := range runs(l.Rows) {
		if lo%4 != 0 {
			return nil, nil
		}
		sum := x.store.mem[at : at+n*n]
		if x.tokens[l.Weight.Tensor] == 0 {
			clear(sum)
		}
		list = append(list, kernel.Moment{Dst: sum, From: lo, N: n, Skip: x.skip})
		lo, at = lo+n, at+n*n
	}
	return list, func() {
		x.count(l, tokens)
		x.staying = append(x.staying, list...)
	}
}

// count counts tokens, in whole windows.
func (x *outputMoments) count(l *forward.Linear, tokens int) {
	x.tokens[l.Weight.Tensor] += int64(tokens / x.window * (x.window - x.skip))
	for _, n := range runs(l.Rows) {
		x.tally.AddWork(estimate.Moments(tokens, n, false))
	}
}

// settle brings the moments that a device has.
func (x *outputMoments) settle() error {
	if x == nil {
		return nil
	}
	for _, m := range x.staying {
		if err := kernel.Settle(m.Dst); err != nil {
			return err
		}
	}
	x.staying = x.staying[:0]
	return nil
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
	x.count(l, tokens)
	lo := 0
	for _, n := range runs(l.Rows) {
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
		if err := x.addRun(part[:tokens*n], n, at, first); err != nil {
			return err
		}
		lo, at = lo+n, at+n*n
	}
	return nil
}

// addRun adds gradients of a run of n rows, [tokens, n], to the moments that begin at a place of the store, or if they are the
// first begins with them.
func (x *outputMoments) addRun(dy []float32, n, at int, first bool) error {
	m := x.scratch[n]
	if m == nil {
		m = &moments{cols: n}
		x.scratch[n] = m
	}
	if x.store.mem == nil {
		x.sum = grow(x.sum, n*n)
	}
	var err error
	if first {
		m.hessian = x.store.place(x.sum, at, n*n)
		clear(m.hessian)
	} else if m.hessian, err = x.store.get(x.sum, at, n*n); err != nil {
		return err
	}
	m.add(dy, nil, x.window, x.skip, x.threads)
	if err := kernel.Settle(m.hessian); err != nil { // a device may have begun to keep it, see sums
		return err
	}
	return x.store.put(m.hessian, at)
}

// has reports whether there are moments of a tensor.
func (x *outputMoments) has(tensor string) bool { return x != nil && x.tokens[tensor] > 0 }

// of returns the moments of the run of rows that begins with row lo, of a tensor with so many.
func (x *outputMoments) of(tensor string, rows, lo int) (*quant.Stats, error) {
	at, n, first := x.offsets[tensor], 0, 0
	for _, n = range runs(rows) {
		if first == lo {
			break
		}
		at, first = at+n*n, first+n
	}
	m := &moments{cols: n, hessian: make([]float32, n*n), tokens: x.tokens[tensor]}
	sum, err := x.store.get(m.hessian, at, n*n)
	if err != nil {
		return nil, err
	}
	kernel.Copy(x.threads, m.hessian, sum)
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

// coupled is a run of rows of a matrix, which make up for each other's errors.
type coupled struct {
	*encoding
	refiner quant.Refiner
	lo, n   int // the first row, and how many
}

// refine encodes runs of rows that make up for each other's errors, of the matrices that are coupled. Runs do not depend on each other:
// as many as have room in memory are encoded at the same time. crossed is whether there are moments between two streams.
func (q *quantization) refine(ctx context.Context, all []*encoding, crossed bool) error {
	var list []*coupled
	for _, w := range all {
		r, ok := w.encoder.(quant.Refiner)
		if !ok || !w.coupled {
			continue
		}
		lo := 0
		for _, n := range runs(w.Rows) {
			list = append(list, &coupled{encoding: w, refiner: r, lo: lo, n: n})
			lo += n
		}
	}
	for len(list) > 0 {
		n := q.together(list)
		if err := q.refineRuns(ctx, list[:n]); err != nil {
			return err
		}
		for _, c := range list[:n] {
			if c.lo+c.n == c.Rows { // the last of its matrix
				c.pack(q.Threads)
				effort.TallyOf(ctx).AddWork(estimate.Refine(q.Chain.Quantizer, c.Rows, c.Cols, crossed))
			}
		}
		list = list[n:]
	}
	return nil
}

// together is how many of the first runs are encoded at the same time.
func (q *quantization) together(list []*coupled) int {
	left := room{left: q.Memory / outputShare}
	for i, c := range list {
		need := int64(c.n) * int64(12*c.n+13*c.Cols) // moments as they are, damped and factored; targets, errors, what rows miss, and sums for the next columns
		if c.lo == 0 {
			need += int64(c.Rows) * int64(c.Cols) // codes
		}
		if !left.take(need) || i == max(1, q.Threads) && !kernel.HasDevice() { // a device takes all at once
			return max(i, 1)
		}
	}
	return len(list)
}

// refineRuns encodes runs at the same time, which share the threads.
func (q *quantization) refineRuns(ctx context.Context, list []*coupled) error {
	runs := make([]quant.Coupled, len(list))
	for i, c := range list {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c.lo == 0 {
			c.blocks = quant.NewBlocks(c.layout, c.spec)
		}
		moments, err := q.outputs.of(c.name, c.Rows, c.lo)
		if err != nil {
			return c.named(err)
		}
		runs[i] = quant.Coupled{Refiner: c.refiner, Dst: c.blocks.Slice(c.lo, c.lo+c.n, c.Rows), W: c.aim.Slice(c.lo, c.lo+c.n), Outputs: moments}
	}
	for i, err := range quant.RefineTogether(runs, q.Threads) {
		if err != nil {
			return list[i].ofRows(list[i].lo, list[i].lo+list[i].n, err)
		}
	}
	return nil
}

// toExpert reports whether a linear layer, by the name of [arch.Decoder.Linears], reads only the tokens that a router sends to it.
func toExpert(name string) bool {
	_, rest, ok := strings.Cut(name, ".experts.")
	return ok && rest[0] >= '0' && rest[0] <= '9'
}
