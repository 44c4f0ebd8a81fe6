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

	logits compared
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
	if p.head, err = m.HeadWithin(p.memory); err != nil {
		return nil, err
	}
	if p.hidden, err = p.embed(ctx, m); err != nil {
		return nil, err
	}
	p.final, err = p.run(ctx, slices.Clone(p.hidden), 0, p.load)
	return p, err
}

// embed returns the states of the text before the first layer of a model.
func (p *probe) embed(ctx context.Context, m *forward.Model) ([]float32, error) {
	e, err := m.Embedding()
	if err != nil {
		return nil, err
	}
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
	h = p.head.Input(h, h)
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

// variant is a model that differs from the float model in some matrices.
type variant struct {
	model   *forward.Model
	tensors map[string]bool
	layers  map[int]bool // of these matrices; the number of layers stands for the head
}

// changed measures the divergences of changed models, which are alike before the present layer. A layer is loaded once for all of them.
func (p *probe) changed(ctx context.Context, list []variant) ([]float64, error) {
	states := make([][]float32, len(list))
	for j := range list {
		states[j] = slices.Clone(p.hidden)
	}
	for i := p.at; i < len(p.layers); i++ {
		l, err := p.load(i)
		if err != nil {
			return nil, err
		}
		for j, c := range list {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			l := l
			if c.layers[i] {
				if l, err = l.Changed(c.model, func(name string) bool { return c.tensors[name] }); err != nil {
					return nil, err
				}
			}
			if err := p.advance(ctx, states[j], l); err != nil {
				return nil, err
			}
		}
	}
	values := make([]float64, len(list))
	for j, c := range list {
		h, err := p.head.Input(states[j], states[j]), error(nil)
		if c.layers[len(p.layers)] {
			values[j], err = p.divergenceOf(ctx, h, c.model)
		} else {
			values[j], err = p.divergence(ctx, h, p.head)
		}
		if err != nil {
			return nil, err
		}
	}
	return values, nil
}

// table measures the divergence of a model that differs in the embedding table, and in the head if it is tied to the table.
func (p *probe) table(ctx context.Context, m *forward.Model) (float64, error) {
	h, err := p.embed(ctx, m)
	if err != nil {
		return 0, err
	}
	if h, err = p.run(ctx, h, 0, p.load); err != nil {
		return 0, err
	}
	if !p.decoder.Tied {
		return p.divergence(ctx, h, p.head)
	}
	return p.divergenceOf(ctx, h, m)
}

// divergenceOf is divergence for the head of a model.
func (p *probe) divergenceOf(ctx context.Context, h []float32, m *forward.Model) (float64, error) {
	head, err := m.HeadWithin(p.memory)
	if err != nil {
		return 0, err
	}
	return p.divergence(ctx, h, head)
}

// divergence is the mean divergence from the float model over all tokens, for the inputs h of a head.
func (p *probe) divergence(ctx context.Context, h []float32, head *forward.Head) (float64, error) {
	n := len(h) / p.decoder.Hidden
	kl, err := p.logits.divergences(ctx, p.head, head, p.final, h, p.threads)
	return plus(0, kl) / float64(n), err
}

// compared are the logits of some rows, of two models.
type compared struct {
	want, got []float32
	version   uint64 // names the logits that are wanted, if they are always the same; or 0
}

// probeRows is how many rows of logits are compared at a time, unless they take more than forward.LogitBytes.
const probeRows = 256

// divergences are those of the logits of two heads, for every row of the inputs x and y of each.
func (l *compared) divergences(ctx context.Context, want, got *forward.Head, x, y []float32, threads int) ([]float64, error) {
	vocab, width := want.Linear.Rows, want.Linear.Cols
	n := len(x) / width
	kl := make([]float64, n)
	if l.offload(ctx, want, got, x, y, kl) {
		return kl, nil
	}
	most := min(n, max(1, min(probeRows, forward.LogitBytes/4/vocab)))
	l.want, l.got = grow(l.want, most*vocab), grow(l.got, most*vocab)
	for row := 0; row < n; row += most {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		k := min(most, n-row)
		if err := want.Logits(ctx, l.want[:k*vocab], x[row*width:(row+k)*width]); err != nil {
			return nil, err
		}
		if err := got.Logits(ctx, l.got[:k*vocab], y[row*width:(row+k)*width]); err != nil {
			return nil, err
		}
		effort.TallyOf(ctx).Add(effort.Element, 2*estimate.LogitFunctions*k*vocab)
		kernel.Parallel(threads, k, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				a, b := l.want[i*vocab:(i+1)*vocab], l.got[i*vocab:(i+1)*vocab]
				kl[row+i] = kernel.KL(a, b, kernel.LogSumExp(a), kernel.LogSumExp(b))
			}
		})
	}
	return kl, nil
}

// offload lets a device compute the divergences kl. It reports false if there is none that does.
func (l *compared) offload(ctx context.Context, want, got *forward.Head, x, y []float32, kl []float64) bool {
	p, ok := want.Offered(ctx, x)
	if !ok {
		return false
	}
	p.Version = l.version
	q, ok := got.Offered(ctx, y)
	if !ok || !kernel.Offload(&kernel.Divergences{Want: p, Got: q, KL: kl}) {
		return false
	}
	tally := effort.TallyOf(ctx)
	tally.Linear(2*p.Rows, p.Vocab, p.Width)
	tally.Add(effort.Element, 2*estimate.LogitFunctions*p.Rows*p.Vocab)
	return true
}
