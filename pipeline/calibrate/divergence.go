package calibrate

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/forward"
)

// Divergence is the mean divergence in nats of the encoded model from the float model over the tokens of some text.
func Divergence(ctx context.Context, o Options, s Scheme, f *Finished, text [][]int32) (float64, error) {
	float, err := forward.New(o.Decoder, o.Source, o.Threads)
	if err != nil {
		return 0, err
	}
	p, err := newProbe(ctx, &o, float, text, 0)
	if err != nil {
		return 0, err
	}
	src, err := f.restore(o.Decoder, o.Source, &s)
	if err != nil {
		return 0, err
	}
	m, err := forward.New(o.Decoder, src, o.Threads)
	if err != nil {
		return 0, err
	}
	e, err := m.Embedding()
	if err != nil {
		return 0, err
	}
	h, err := e.States(ctx, text)
	if err != nil {
		return 0, err
	}
	for i := range o.Decoder.Layers {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		l, err := m.LayerWithin(i, o.Memory/weightShare)
		if err != nil {
			return 0, err
		}
		if err := p.advance(ctx, h, l); err != nil {
			return 0, err
		}
	}
	head, err := m.HeadWithin(p.memory)
	if err != nil {
		return 0, err
	}
	h = head.Input(h, h)
	return p.divergence(ctx, h, head)
}
