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
	src, err := f.Source(o.Source)
	if err != nil {
		return 0, err
	}
	m, err := forward.New(o.Decoder, src, o.Threads)
	if err != nil {
		return 0, err
	}
	set := func(linears ...*forward.Linear) error {
		for _, l := range linears {
			hat, err := f.weights(l, s.Specs)
			if err != nil {
				return err
			}
			l.Set(hat)
		}
		return nil
	}
	table, err := m.LoadTable()
	if err != nil {
		return 0, err
	}
	rows, err := f.weights(table, s.Specs)
	if err != nil {
		return 0, err
	}
	e, err := m.Embedding()
	if err != nil {
		return 0, err
	}
	e.Table = rows
	h, err := e.States(ctx, text)
	if err != nil {
		return 0, err
	}
	for i := range o.Decoder.Layers {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		l, err := m.LoadLayer(i)
		if err != nil {
			return 0, err
		}
		if err := set(l.Linears()...); err != nil {
			return 0, err
		}
		if err := p.advance(ctx, h, l); err != nil {
			return 0, err
		}
	}
	head, err := m.LoadHead()
	if err != nil {
		return 0, err
	}
	if err := set(head.Linear); err != nil {
		return 0, err
	}
	head.Input(h, h)
	return p.divergence(ctx, h, head.Linear)
}
