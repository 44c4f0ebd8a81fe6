package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate/internal/net"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// probe is some text on which the divergence of a changed model from the float model is measured. It follows a walk
// through the layers, so that a change in a layer costs only the layers from there on.
type probe struct {
	decoder *arch.Decoder
	model   *net.Model
	source  tensor.Source
	threads int
	windows [][]int32
	hidden  []float32  // states before the layer that the walk is in, [tokens, Hidden]
	final   []float32  // of the float model behind the final norm
	current *net.Layer // that the walk is in
	layers  []*net.Layer
	keep    bool // layers, once loaded
	head    *net.Head
	second  *net.Linear // or nil

	want, got []float32 // logits of some rows
}

// newProbe runs the float model. Layers are kept if they take no more than memory, in bytes.
func newProbe(ctx context.Context, o *Options, m *net.Model, windows [][]int32, memory int64) (*probe, error) {
	if len(windows) == 0 || len(windows[0]) == 0 {
		return nil, fmt.Errorf("no text to measure the divergence on")
	}
	d := o.Decoder
	p := &probe{decoder: d, model: m, source: o.Source, threads: o.Threads, windows: windows, layers: make([]*net.Layer, len(d.Layers))}
	var weights int64
	d.Linears(func(name string, l *arch.Linear) {
		if name != headInput {
			weights += int64(l.Weight.Rows) * int64(l.Weight.Cols)
		}
	})
	p.keep = 8*weights <= memory // floats, once plain and once packed
	var err error
	if p.head, err = m.Head(); err != nil {
		return nil, err
	}
	if p.hidden, err = m.Embed(windows, nil); err != nil {
		return nil, err
	}
	p.final, err = p.run(ctx, slices.Clone(p.hidden), 0, nil)
	return p, err
}

// load returns a layer of the float model.
func (p *probe) load(i int) (*net.Layer, error) {
	if p.layers[i] != nil {
		return p.layers[i], nil
	}
	l, err := p.model.Layer(i)
	if err == nil && p.keep {
		p.layers[i] = l
	}
	return l, err
}

// run takes states through the layers from i on, the first of which is first if that is not nil, and the final norm.
func (p *probe) run(ctx context.Context, h []float32, i int, first *net.Layer) ([]float32, error) {
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
		p.advance(h, l)
		first = nil
	}
	p.head.Input(h, h)
	return h, nil
}

// advance takes states over one layer.
func (p *probe) advance(h []float32, l *net.Layer) {
	l.Forward(h, len(p.windows[0]))
}

// enter follows the walk into a layer.
func (p *probe) enter(_ context.Context, l *net.Layer) error {
	if p.current != nil {
		p.advance(p.hidden, p.current)
	}
	p.current = l
	return nil
}

// from measures the divergence with the current layer, or the head, as they are now.
func (p *probe) from(ctx context.Context, layer int, l *net.Linear) (float64, error) {
	if layer == len(p.layers) {
		return p.divergence(ctx, p.final, l)
	}
	h, err := p.run(ctx, slices.Clone(p.hidden), layer, p.current)
	if err != nil {
		return 0, err
	}
	return p.divergence(ctx, h, p.head.Linear)
}

// table measures the divergence with other rows in the table of embeddings, and in the head if it is tied to them.
func (p *probe) table(ctx context.Context, rows []float32) (float64, error) {
	h, err := p.model.Embed(p.windows, rows)
	if err != nil {
		return 0, err
	}
	if h, err = p.run(ctx, h, 0, nil); err != nil {
		return 0, err
	}
	head := p.head.Linear
	if p.decoder.Tied {
		if head, err = p.secondHead(); err != nil {
			return 0, err
		}
		head.Set(rows)
	}
	return p.divergence(ctx, h, head)
}

// secondHead is a head to be changed, because the float model's own is needed beside it.
func (p *probe) secondHead() (*net.Linear, error) {
	if p.second == nil {
		m, err := net.New(p.decoder, p.source, p.threads)
		if err != nil {
			return nil, err
		}
		h, err := m.Head()
		if err != nil {
			return nil, err
		}
		p.second = h.Linear
	}
	return p.second, nil
}

// probeRows of logits are compared at a time.
const probeRows = 256

// divergence is the mean over all tokens of the divergence from the float model, for the final states h and a head.
func (p *probe) divergence(ctx context.Context, h []float32, head *net.Linear) (float64, error) {
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
		p.head.Logits(want[:k*vocab], p.final[row*width:(row+k)*width])
		changed.Logits(got[:k*vocab], h[row*width:(row+k)*width])
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
