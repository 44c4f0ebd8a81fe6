package calibrate

import (
	"cmp"
	"context"
	"math/rand/v2"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// tableWindows is how many windows provide the statistics of the embedding table.
const tableWindows = 32

// table encodes the lookup table for tokens, the first op of the model. A tied table is also the head.
func (q *quantization) table(ctx context.Context) (err error) {
	e := q.model.Table()
	if q.couples() {
		if q.outputs, err = newOutputMoments(ctx, &q.Options, q.open); err != nil {
			return err
		}
	}
	var st *quant.Stats
	lowest := q.outputs.lowest(q.Decoder)
	if q.Chain.Quantizer.Needs() != quant.Nothing && q.open(e.Weight.Tensor) {
		lowest = lookupLevel
	}
	if lowest < len(q.Decoder.Layers) {
		if st, err = q.tableStats(ctx, q.model, q.outputs, lowest); err != nil {
			return err
		}
	}
	defer q.coder.release()
	return q.whole(ctx, e, st)
}

// lookup returns a model with the rows that the finished table has.
func (q *quantization) lookup() (*forward.Model, error) {
	e := q.Decoder.Embedding
	if q.Floats[e.Tensor] {
		return q.model, nil
	}
	src, err := q.finished.replace(q.Source, q.Specs, e)
	if err != nil {
		return nil, err
	}
	return forward.New(q.Decoder, src, q.Threads)
}

// tableStats gathers the moments that the embedding table is encoded with.
//
// To second order, an error dE of a looked-up row costs half of (g dE)^2, where g is the gradient of the log-likelihood of
// labels drawn from the model itself (their second moment is its Fisher information). An error of the same row in the head costs
// half of (1 - sum p^2) (h dE)^2, where h is the input of the head. Both are weighted by the frequency of the token: one factor
// for a row, which cancels. So a tied table is encoded as a matrix whose inputs have the moments E[g gT] + (1 - E sum p^2) E[h
// hT], and a table used only for lookup with the first of them. If logits are scaled or bounded, 1 - sum p^2 becomes the sum of
// p (1-p) d^2, where d is the derivative of a logit by the output of the table.
//
// The same pass gathers the moments of outputs, if not nil. It ends at a layer, see gradient; if that is not the lookup, there are no
// moments of the table.
func (o *Options) tableStats(ctx context.Context, m *forward.Model, outputs *outputMoments, lowest int) (*quant.Stats, error) {
	var failed error
	visitor := outputs.visitor(&failed)
	moments := newTableMoments(o.Decoder)
	windows := o.Windows[:min(cmp.Or(o.GradientWindows, tableWindows), len(o.Windows))]
	step := o.gradientWindows()
	top, err := m.HeadWithin(o.Memory / weightShare)
	if err != nil {
		return nil, err
	}
	for at := 0; at < len(windows); at += step {
		part := windows[at:min(at+step, len(windows))]
		g, err := o.gradient(ctx, m, top, part, at, lowest, visitor, func(int) { failed = cmp.Or(failed, outputs.settle()) })
		if err = cmp.Or(err, failed); err != nil {
			return nil, err
		}
		if lowest == lookupLevel {
			moments.add(o, g)
		}
	}
	if lowest != lookupLevel {
		return nil, nil
	}
	return moments.stats(o.Decoder.Tied, o.Threads)
}

// tableMoments gathers what the embedding table is encoded with.
type tableMoments struct {
	head, lookup *moments
	rest         float64 // sum of the spreads
}

func newTableMoments(d *arch.Decoder) *tableMoments {
	return &tableMoments{head: newMoments(d.Hidden, false), lookup: newMoments(d.Hidden, false)}
}

// add takes the gradients of some windows.
func (m *tableMoments) add(o *Options, g *gradients) {
	length := len(o.Windows[0])
	m.head.add(g.final, nil, length, o.Skip, o.Threads)
	m.lookup.add(g.embedding, nil, length, o.Skip, o.Threads)
	for spread := g.spread; len(spread) > 0; spread = spread[length:] {
		for _, v := range spread[o.Skip:length] {
			m.rest += v
		}
	}
}

// stats returns the moments of a table that is only looked up, or also the head. They cannot be used afterwards.
func (m *tableMoments) stats(tied bool, threads int) (*quant.Stats, error) {
	l, err := m.lookup.stats(threads)
	if err != nil || !tied {
		return l, err
	}
	h, err := m.head.stats(threads)
	if err != nil {
		return nil, err
	}
	kernel.Scale(h.Hessian, h.Hessian, float32(m.rest/float64(h.Tokens)))
	kernel.Add(l.Hessian, l.Hessian, h.Hessian)
	l.Version = kernel.NewVersion()
	return l, nil
}

// deviceTokens is how many tokens go forth and back together if a device computes most of that: reading a layer takes longer than it takes for
// chunkTokens. Without one so many are a step of the journal that takes too long.
const deviceTokens = 1 << 14

// gradientWindows is for how many windows the backward pass reads a layer once: the states before all of its layers are kept.
func (o *Options) gradientWindows() int {
	length, tokens := len(o.Windows[0]), chunkTokens
	if kernel.HasDevice() {
		tokens = deviceTokens
	}
	window := 4 * int64(length) * int64(o.Decoder.Width()) * int64(len(o.Decoder.Layers)+4)
	return int(max(1, min(int64(tokens/length), o.Memory/memoryShare/window)))
}

// lookupLevel stands for the lookup of tokens, below layer 0.
const lookupLevel = -1

// gradients holds the results for some windows.
type gradients struct {
	// final is the input of the head, embedding the gradient of the log-likelihood at the output of the lookup, both [tokens,
	// Hidden]. embedding is nil if the way back ends at a layer.
	final, embedding []float32
	// spread is 1 - sum p^2 for every token, or its equivalent for scaled or bounded logits.
	spread []float64
}

// gradient runs the float model forward and backward over windows, with labels drawn from the model. Gradients at the first
// o.Skip tokens of windows, which statistics leave out, are 0; those of later tokens do not depend on them, but a token that the
// model has hardly seen in training, such as that before every text, can have gradients a thousand times those of others. first is
// the index of the first window, which seeds the random numbers. lowest is the layer at which the way back ends, or lookupLevel. v
// receives the gradients of the log-likelihoods; step is called after every layer with the number of passes through it: 1 on the way
// forward, 2 on the way back.
func (o *Options) gradient(
	ctx context.Context, m *forward.Model, head *forward.Head, windows [][]int32, first, lowest int, v forward.Visitor, step func(passes int),
) (*gradients, error) {
	length := len(windows[0])
	embedding, err := m.Embedding()
	if err != nil {
		return nil, err
	}
	h, err := embedding.States(ctx, windows)
	if err != nil {
		return nil, err
	}
	// each calls f for the states of a few windows at a time.
	each := func(f func(lo, hi int, of forward.Windows) error) error {
		few := windowsOf(chunkTokens, length)
		for at := 0; at < len(windows); at += few {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(few, len(windows)-at)
			lo := at * length * o.Decoder.Width()
			if err := f(lo, lo+n*length*o.Decoder.Width(), forward.Equal(n, length)); err != nil {
				return err
			}
		}
		return nil
	}
	inputs := make([][]float32, len(o.Decoder.Layers))
	var order []int // of the layers, forth and back
	for i := range inputs {
		order = append(order, i)
	}
	for i := len(inputs) - 1; i >= max(lowest, 0); i-- {
		order = append(order, i)
	}
	layers := o.layersAhead(m, order)
	defer layers.wait()
	for i := range o.Decoder.Layers {
		l, err := layers.next()
		if err != nil {
			return nil, err
		}
		if i >= lowest {
			inputs[i] = make([]float32, len(h))
			kernel.Copy(o.Threads, inputs[i], h)
		}
		if err := each(func(lo, hi int, of forward.Windows) error { return l.Forward(ctx, h[lo:hi], of) }); err != nil {
			return nil, err
		}
		l.Release()
		step(1)
	}
	h = m.Stream(h)
	g := &gradients{final: make([]float32, len(h)), spread: make([]float64, len(windows)*length)}
	head.Input(g.final, h)
	dh, at := make([]float32, len(h)), make([]float64, len(windows)*length)
	for row := range at {
		at[row] = rand.New(rand.NewPCG(uint64(first+row/length), uint64(row%length))).Float64()
	}
	if head.BackwardDrawn(ctx, dh, h, at, g.spread, v) {
		for i, squares := range g.spread {
			g.spread[i] = 1 - squares
		}
	} else if err = head.Backward(ctx, dh, h, func(token int, logits []float32) error {
		tile := labels{head, at[token:], g.spread[token:]}
		m.CrossEntropyGradient(logits, tile.choose)
		return nil
	}, v); err != nil {
		return nil, err
	}
	dh = m.WithSide(dh)
	ignore := func() {
		for lo := 0; lo < len(dh); lo += length * o.Decoder.Width() {
			clear(dh[lo : lo+o.Skip*o.Decoder.Width()])
		}
	}
	ignore()
	for i := len(inputs) - 1; i >= max(lowest, 0); i-- {
		l, err := layers.next()
		if err == nil {
			err = l.LoadCommon()
		}
		if err != nil {
			return nil, err
		}
		if err := each(func(lo, hi int, of forward.Windows) error { return l.Backward(ctx, dh[lo:hi], inputs[i][lo:hi], of, v) }); err != nil {
			return nil, err
		}
		l.Release()
		ignore()
		step(2)
	}
	if lowest != lookupLevel {
		return g, nil
	}
	g.embedding, err = embedding.Backward(ctx, dh, windows, forward.Visitor{})
	return g, err
}
