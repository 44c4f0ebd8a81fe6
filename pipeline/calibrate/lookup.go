package calibrate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/quant"
)

// lookupSample is how many tokens of the text, evenly spaced, provide the rows on which options of the embedding table are
// compared: each row as often as its token comes.
const lookupSample = 256

// table estimates the divergences of the options of the embedding table: an error dE of rows costs half of dE H dEᵀ in the mean
// over tokens, with the moments H that the table is encoded with. The first option is measured, and gives the factor for all.
func (x *measurement) table(ctx context.Context) error {
	var err error
	e := x.model.Table()
	if x.stats, err = x.fisher.table.stats(x.Decoder.Tied, x.Threads); err != nil {
		return err
	}
	x.lookup = Sensitivity{Tensor: e.Weight.Tensor, Rows: e.Rows, Cols: e.Cols, Lookup: true}
	specs := x.Measuring.Options(e.Weight, true)
	if len(specs) == 0 {
		return nil
	}
	values, err := x.steps.do("table", func() ([]float64, error) {
		code := &encoders{quantizer: x.quick, threads: x.Threads, tally: effort.TallyOf(ctx), stats: x.stats, of: map[quant.Spec]quant.Encoder{}}
		counts := x.frequent()
		rows := slices.Sorted(maps.Keys(counts))
		sample, err := rowsOf(e, rows)
		if err != nil {
			return nil, err
		}
		values, err := code.errors(sample, specs, func(errors []float64) (sum float64) {
			for i, v := range errors {
				sum += float64(counts[rows[i]] * v)
			}
			return sum / 2
		})
		if err != nil {
			return nil, err
		}
		c, err := code.coder(specs[0], e.Cols)
		if err != nil {
			return nil, err
		}
		c.threads = x.Threads
		if _, err := x.anchored(ctx, e, specs[0], c, x.stats, func(int, quant.Matrix, []float32) error { return nil }); err != nil {
			return nil, err
		}
		m, err := x.anchorsOf(map[string]quant.Spec{e.Weight.Tensor: specs[0]}, e.Weight)
		if err != nil {
			return nil, err
		}
		p, err := x.measured(ctx)
		if err != nil {
			return nil, err
		}
		kl, err := p.table(ctx, m)
		return append(values, kl), err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", x.lookup.Tensor, err)
	}
	kl, ratio := values[len(specs)], 1.0
	if values[0] > 0 {
		ratio = kl / values[0]
	}
	zerolog.Ctx(ctx).Debug().Str("tensor", x.lookup.Tensor).Float64("estimate", values[0]).Float64("kl", kl).Msg("measured")
	for i, spec := range specs {
		x.lookup.Options = append(x.lookup.Options, Option{Spec: spec, KL: values[i] * ratio})
	}
	x.advance(x.work.Table)
	return nil
}

// frequent returns the share of some tokens of the text.
func (x *measurement) frequent() map[int]float64 {
	length := len(x.Windows[0])
	total := len(x.Windows) * length
	n := min(total, lookupSample)
	counts := map[int]float64{}
	for i := range n {
		at := (2*i + 1) * total / (2 * n)
		counts[int(x.Windows[at/length][at%length])] += 1 / float64(n)
	}
	return counts
}
