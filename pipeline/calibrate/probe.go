package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// probe is a text on which the divergence of a changed model from the float model is measured. It follows a walk through the
// layers, so that a change in a layer costs only the layers from there on.
type probe struct {
	decoder *arch.Decoder
	model   *forward.Model
	threads int
	windows [][]int32
	hidden  []float32      // states before the current layer of the walk, [tokens, Hidden]
	final   []float32      // of the float model after the final norm
	current *forward.Layer // of the walk
	layers  []*forward.Layer
	keep    bool // layers, once loaded
	head    *forward.Head
	second  *forward.Linear // of the head, to be changed

	want, got []float32 // logits of some rows
}

// newProbe runs the float model. Layers are kept if they fit memory, in bytes.
func newProbe(ctx context.Context, o *Options, m *forward.Model, windows [][]int32, memory int64) (*probe, error) {
	if len(windows) == 0 || len(windows[0]) == 0 {
		return nil, fmt.Errorf("no text to measure the divergence on")
	}
	d := o.Decoder
	p := &probe{decoder: d, model: m, threads: o.Threads, windows: windows, layers: make([]*forward.Layer, len(d.Layers))}
	var weights int64
	d.Linears(func(name string, l *arch.Linear) {
		if name != headInput {
			weights += int64(l.Weight.Rows) * int64(l.Weight.Cols)
		}
	})
	p.keep = 8*weights <= memory // floats, once plain and once packed
	var err error
	if p.head, err = m.LoadHead(); err != nil {
		return nil, err
	}
	if p.hidden, err = p.embed(ctx, nil); err != nil {
		return nil, err
	}
	p.final, err = p.run(ctx, slices.Clone(p.hidden), 0, nil)
	return p, err
}

// embed returns the states of the text before the first layer, with other rows in the table if they are not nil.
func (p *probe) embed(ctx context.Context, rows []float32) ([]float32, error) {
	e, err := p.model.Embedding()
	if err != nil {
		return nil, err
	}
	e.Table = rows
	return e.States(ctx, p.windows)
}

// load returns a layer of the float model.
func (p *probe) load(i int) (*forward.Layer, error) {
	if p.layers[i] != nil {
		return p.layers[i], nil
	}
	if !p.keep {
		return p.model.OpenLayer(i)
	}
	var err error
	p.layers[i], err = p.model.LoadLayer(i)
	return p.layers[i], err
}

// run takes states through the layers from i on and the final norm; first, if not nil, replaces layer i.
func (p *probe) run(ctx context.Context, h []float32, i int, first *forward.Layer) ([]float32, error) {
	for ; i < len(p.layers); i++ {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		l := first
		if l == nil {
			var err error
			if l, err = p.load(i); err != nil {
				return nil, err
			}
		}
		if err := p.advance(ctx, h, l); err != nil {
			return nil, err
		}
		first = nil
	}
	p.head.Input(h, h)
	return h, nil
}

// advance takes states through one layer.
func (p *probe) advance(ctx context.Context, h []float32, l *forward.Layer) error {
	return l.Forward(ctx, h, forward.Equal(len(p.windows), len(p.windows[0])))
}

// enter moves to the layer that the walk enters.
func (p *probe) enter(ctx context.Context, l *forward.Layer) error {
	current := p.current
	p.current = l
	if current == nil {
		return nil
	}
	return p.advance(ctx, p.hidden, current)
}

// from measures the divergence with the current layer, or the head, in its present state.
func (p *probe) from(ctx context.Context, layer int, l *forward.Linear) (float64, error) {
	if layer == len(p.layers) {
		return p.divergence(ctx, p.final, l)
	}
	h, err := p.run(ctx, slices.Clone(p.hidden), layer, p.current)
	if err != nil {
		return 0, err
	}
	return p.divergence(ctx, h, p.head.Linear)
}

// table measures the divergence with other rows in the embedding table, and in the head if it is tied to the table.
func (p *probe) table(ctx context.Context, rows []float32) (float64, error) {
	h, err := p.embed(ctx, rows)
	if err != nil {
		return 0, err
	}
	if h, err = p.run(ctx, h, 0, nil); err != nil {
		return 0, err
	}
	head := p.head.Linear
	if p.decoder.Tied {
		if p.second == nil {
			h, err := p.model.LoadHead()
			if err != nil {
				return 0, err
			}
			p.second = h.Linear
		}
		head = p.second
		head.Set(rows)
	}
	return p.divergence(ctx, h, head)
}

// probeRows is how many rows of logits are compared at a time.
const probeRows = 256

// divergence is the mean divergence from the float model over all tokens, for the final states h and a head.
func (p *probe) divergence(ctx context.Context, h []float32, head *forward.Linear) (float64, error) {
	width, vocab := p.decoder.Hidden, head.Rows
	n := len(h) / width
	kl := make([]float64, n)
	changed := p.head.With(head)
	p.want, p.got = grow(p.want, min(n, probeRows)*vocab), grow(p.got, min(n, probeRows)*vocab)
	want, got := p.want, p.got
	for row := 0; row < n; row += probeRows {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		k := min(probeRows, n-row)
		if err := p.head.Logits(ctx, want[:k*vocab], p.final[row*width:(row+k)*width]); err != nil {
			return 0, err
		}
		if err := changed.Logits(ctx, got[:k*vocab], h[row*width:(row+k)*width]); err != nil {
			return 0, err
		}
		effort.TallyOf(ctx).Add(effort.Element, 2*estimate.LogitFunctions*k*vocab)
		kernel.Parallel(p.threads, k, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				a, b := want[i*vocab:(i+1)*vocab], got[i*vocab:(i+1)*vocab]
				kl[row+i] = kernel.KL(a, b, kernel.LogSumExp(a), kernel.LogSumExp(b))
			}
		})
	}
	var sum float64
	for _, v := range kl {
		sum += v
	}
	return sum / float64(n), nil
}
