package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Folding is the effect of one method at one site, for reports.
type Folding struct {
	Site   string `json:"site"`
	Method string `json:"method"`
	// Before and After are the losses without and with the scales, see [quant.Scaling].
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Least and Most are the smallest and the largest scale; both are 1 where the site was left alone.
	Least float32 `json:"least"`
	Most  float32 `json:"most"`
}

// Gain is the fraction of the loss that the folding removed, from 0 to 1.
func (f Folding) Gain() float64 {
	if f.Before == 0 {
		return 0
	}
	return 1 - f.After/f.Before
}

// Fold runs the folders of a chain over all sites of a model and returns the model with their scales. spec returns the form in
// which a tensor will be stored; sites without a consumer that has codes are skipped. stats returns the statistics of a tensor's
// input in the model from src; it is called once for each site, with one of its consumers. A chain with a rotation has no
// folders: use [Rotate].
func Fold(ctx context.Context, d *arch.Decoder, src tensor.Source, chain *quant.Chain, spec func(tensor string) quant.Spec,
	stats func(tensor string) (*quant.Stats, error), threads int) (*Overlay, []Folding, error) {
	o := NewOverlay(src)
	if chain.Rotator != nil {
		return nil, nil, fmt.Errorf("internal error: %s does not fold", chain.Rotator.Name())
	}
	if len(chain.Folders) == 0 {
		return o, nil, nil
	}
	var done []Folding
	for _, site := range Sites(d) {
		if !slices.ContainsFunc(site.Consumers, func(w arch.Weight) bool { return spec(w.Tensor).Bits != 16 }) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, context.Cause(ctx)
		}
		in, err := stats(site.Consumers[0].Tensor)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", site.Name, err)
		}
		q, err := site.Load(o, spec, in)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range chain.Folders {
			s, err := f.Fold(q, chain.Quantizer, threads)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", f.Name(), err)
			}
			for _, w := range site.Consumers {
				effort.TallyOf(ctx).AddWork(estimate.Fold(chain.Quantizer, w.Rows, w.Cols))
			}
			report := Folding{site.Name, f.Name(), s.Before, s.After, 1, 1}
			if s.Channels != nil {
				report.Least, report.Most = slices.Min(s.Channels), slices.Max(s.Channels)
				if err := site.Apply(o, s.Channels); err != nil {
					return nil, nil, err
				}
				q = q.Scaled(s.Channels, threads)
			}
			done = append(done, report)
		}
	}
	return o, done, nil
}
