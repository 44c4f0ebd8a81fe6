package stage

import (
	"errors"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/quant"
)

// trialBits is the mean width of a weight, scales counted, at which a whole model is measured. Most budgets are near it.
const trialBits = 3.5

// trial allocates trialBits, or the least bits that are possible.
func trial(base *assemble.Planned, list []calibrate.Sensitivity) (map[string]quant.Spec, error) {
	items, err := priced(base, list)
	if err != nil {
		return nil, err
	}
	items = shared(base, items)
	weights := 0.0
	for _, s := range list {
		weights += float64(s.Rows) * float64(s.Cols)
	}
	chosen, err := quant.Allocate(items, quant.Budget{Bytes: max(1, int64(trialBits*weights/8))})
	if small := (*quant.BudgetError)(nil); errors.As(err, &small) {
		chosen, err = quant.Allocate(items, small.Smallest)
	}
	if err != nil {
		return nil, err
	}
	specs := map[string]quant.Spec{}
	for i, o := range chosen.Options {
		for _, name := range items[i].Members {
			specs[name] = o.Spec
		}
	}
	return specs, nil
}

// shared combines matrices that are stored alike into items.
func shared(base *assemble.Planned, items []quant.Item) []quant.Item {
	if slices.ContainsFunc(base.Profiles, func(p *backends.Profile) bool { return p.Fuses }) {
		items = fused(base.Source.Decoder, items)
	}
	return classes(base.Source.Decoder, items)
}
