package calibrate

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Seen are the errors of an encoded model on prompts with pictures or clips.
type Seen struct {
	// KL is the mean divergence in nats from the float model over Tokens tokens, those after the pictures and clips.
	KL     float64
	Tokens int
	// Rows is the relative squared error of the rows of towers and ears.
	Rows float64
}

// See measures an encoded model, of which towers and ears are a part, on prompts with what is shown to these.
func See(ctx context.Context, o Options, s Scheme, f *Finished, shown []*Showing, prompts []Prompt) (Seen, error) {
	o.Shown, o.Prompts = shown, prompts
	if err := o.checkShown(); err != nil {
		return Seen{}, err
	}
	want, err := o.look(ctx, o.Source)
	if err != nil {
		return Seen{}, err
	}
	src, err := f.restore(o.Decoder, o.Source, &s, shown...)
	if err != nil {
		return Seen{}, err
	}
	got, err := o.look(ctx, src)
	if err != nil {
		return Seen{}, err
	}
	return o.compare(ctx, want, got)
}

// looked are the results of a model for prompts.
type looked struct {
	head  *forward.Head
	final [][]float32 // inputs of the head for the tokens after the pictures of each prompt
	rows  [][]float32 // of the pictures of each prompt
}

// look computes prompts with the tensors of a source.
func (o *Options) look(ctx context.Context, src tensor.Source) (*looked, error) {
	m, err := forward.New(o.Decoder, src, o.Threads)
	if err != nil {
		return nil, err
	}
	of, err := o.floatRows(ctx, src)
	defer func() { closeShown(of) }()
	if err != nil {
		return nil, err
	}
	x := &looked{}
	for _, p := range o.Prompts {
		var rows []float32
		for _, i := range p.Items {
			r, err := of[p.Showing].item(0, i)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r...)
		}
		x.rows = append(x.rows, rows)
	}
	w := o.walk(m)
	w.windows = nil
	w.prompted(o.Prompts, 0, of)
	w.wanted = func(*input) bool { return false }
	w.visit = func(context.Context, *input, *quant.Stats) error { return nil }
	w.end = func(context.Context) error {
		if x.head, err = m.HeadWithin(o.Memory / weightShare); err != nil {
			return err
		}
		row := 0
		for _, p := range o.Prompts {
			h, err := w.streams[0].read(row, len(p.Window))
			if err != nil {
				return err
			}
			from := p.after()
			final := make([]float32, (len(p.Window)-from)*o.Decoder.Hidden)
			x.head.Input(final, h[from*o.Decoder.Width():])
			x.final = append(x.final, final)
			row += len(p.Window)
		}
		return nil
	}
	return x, w.run(ctx)
}

// after is the number of tokens up to the last one that rows take the place of.
func (p *Prompt) after() int {
	n := len(p.Window)
	for n > 0 && p.Window[n-1] != p.Pad {
		n--
	}
	return n
}

// compare returns the errors of the second of two models.
func (o *Options) compare(ctx context.Context, want, got *looked) (x Seen, err error) {
	var wrong, all float64
	for i, rows := range want.rows {
		wrong += distance(rows, got.rows[i], o.Threads)
		all += distance(rows, nil, o.Threads)
	}
	if all > 0 {
		x.Rows = wrong / all
	}
	var sum float64
	var logits compared
	for i, final := range want.final {
		kl, err := logits.divergences(ctx, want.head, got.head, final, got.final[i], o.Threads)
		if err != nil {
			return x, err
		}
		sum = plus(sum, kl)
		x.Tokens += len(kl)
	}
	x.KL = sum / float64(max(x.Tokens, 1))
	return x, nil
}
