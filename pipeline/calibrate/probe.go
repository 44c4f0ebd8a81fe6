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

// probe is a text on which the divergence of a changed model from the float model is measured. It moves through the layers, so
// that a change from a layer on costs only the layers from there on.
type probe struct {
	decoder *arch.Decoder
	model   *forward.Model
	threads int
	windows [][]int32
	hidden  []float32 // states before layer at, [tokens, Hidden]
	at      int
	final   []float32 // of the float model after the final norm
	layers  []*forward.Layer
	keep    bool  // layers, once loaded
	memory  int64 // for the weights of a layer that is not kept
	head    *forward.Head

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
	p.memory = o.Memory / weightShare
	var err error
	if p.head, err = m.LoadHead(); err != nil {
		return nil, err
	}
	if p.hidden, err = p.embed(ctx, nil); err != nil {
		return nil, err
	}
	p.final, err = p.run(ctx, slices.Clone(p.hidden), 0, p.load)
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
		return p.model.LayerWithin(i, p.memory)
	}
	var err error
	p.layers[i], err = p.model.LoadLayer(i)
	return p.layers[i], err
}

// run takes states through the layers from i on, as load returns them, and the final norm.
func (p *probe) run(ctx context.Context, h []float32, i int, load func(i int) (*forward.Layer, error)) ([]float32, error) {
	for ; i < len(p.layers); i++ {
		if err := p.pass(ctx, h, i, load); err != nil {
			return nil, err
		}
	}
	p.head.Input(h, h)
	return h, nil
}

// pass takes states through layer i.
func (p *probe) pass(ctx context.Context, h []float32, i int, load func(i int) (*forward.Layer, error)) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	l, err := load(i)
	if err != nil {
		return err
	}
	return p.advance(ctx, h, l)
}

// advance takes states through one layer.
func (p *probe) advance(ctx context.Context, h []float32, l *forward.Layer) error {
	return l.Forward(ctx, h, forward.Equal(len(p.windows), len(p.windows[0])))
}

// seek moves forward to a layer.
func (p *probe) seek(ctx context.Context, layer int) error {
	for ; p.at < layer; p.at++ {
		if err := p.pass(ctx, p.hidden, p.at, p.load); err != nil {
			return err
		}
	}
	return nil
}

// changed measures the divergence of another model, which differs in some layers from the present one on; the number of layers
// stands for the head.
func (p *probe) changed(ctx context.Context, m *forward.Model, layers map[int]bool) (float64, error) {
	h, err := p.run(ctx, slices.Clone(p.hidden), p.at, func(i int) (*forward.Layer, error) {
		if layers[i] {
			return m.OpenLayer(i)
		}
		return p.load(i)
	})
	if err != nil {
		return 0, err
	}
	if !layers[len(p.layers)] {
		return p.divergence(ctx, h, p.head.Linear)
	}
	head, err := m.LoadHead()
	if err != nil {
		return 0, err
	}
	return p.divergence(ctx, h, head.Linear)
}

// table measures the divergence with other rows in the embedding table, and in the head if it is tied to the table.
func (p *probe) table(ctx context.Context, rows []float32) (float64, error) {
	h, err := p.embed(ctx, rows)
	if err != nil {
		return 0, err
	}
	if h, err = p.run(ctx, h, 0, p.load); err != nil {
		return 0, err
	}
	if !p.decoder.Tied {
		return p.divergence(ctx, h, p.head.Linear)
	}
	head, err := p.model.LoadHead()
	if err != nil {
		return 0, err
	}
	head.Linear.Set(rows)
	return p.divergence(ctx, h, head.Linear)
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
