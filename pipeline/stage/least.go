package stage

import (
	"math"
	"slices"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/plan"
)

// Allocated reports whether the cache has what was chosen for a budget, if first is what [Run.Missing] returns.
func Allocated(first string) bool {
	return first == "" || slices.Index(entries, first) > slices.Index(entries, "allocation")
}

// checkBudget rejects a budget that no choice of storage forms can meet, before anything is measured. base is the layout without a
// choice. Sizes leave out the tokenizer and the configuration, so budgets that are a little too small pass.
func (r *Run) checkBudget(base *assemble.Planned) error {
	sec, b := r.Recipe.Stages["quantize"], r.Quantize.Budget
	var weights, fixed, least, saved, savedRAM int64 // fixed and least are bytes of matrices
	for _, part := range base.Plan.Parts {
		for i := range part.Items {
			it := &part.Items[i]
			if !it.Matrix() {
				continue
			}
			weights += int64(it.Layout.Rows) * int64(it.Layout.Cols)
			if !Budgeted(base, part, it) {
				fixed += it.Size() - it.Bias
				continue
			}
			bytes, ram, err := r.smallest(it)
			if err != nil {
				return err
			}
			now, nowRAM, err := it.Cost(it.Choice.Spec)
			if err != nil {
				return err
			}
			least, saved, savedRAM = least+bytes, saved+now-bytes, savedRAM+nowRAM-ram
		}
	}
	const cannot = "cannot be met: the smallest possible is more than %s"
	switch size, ram := base.Plan.Bytes()+base.GraphBytes-saved, base.Memory().Total(assemble.DeviceContext)-savedRAM; {
	case b.Bytes != nil && int64(*b.Bytes) < size:
		return sec.Errorf("budget.bytes", cannot, sheet.Size(size))
	case b.DeviceRAM != nil && int64(*b.DeviceRAM) < ram:
		return sec.Errorf("budget.device_ram", cannot, sheet.Size(ram))
	case b.BPW > 0 && int64(b.BPW*float64(weights)/8) < fixed+least:
		return sec.Errorf("budget.bpw", "cannot be met: the smallest possible is %.3f", math.Ceil(8000*float64(fixed+least)/float64(weights))/1000)
	}
	return nil
}

// smallest returns the least bytes, in the file and on the device, of a matrix that a budget may store as it likes.
func (r *Run) smallest(it *plan.Item) (bytes, ram int64, err error) {
	scale, err := r.Quantize.scale(r)
	if err != nil {
		return 0, 0, err
	}
	bytes, ram = math.MaxInt64, math.MaxInt64
	for _, s := range storable(it.Layout.Rows, it.Layout.Cols, it.Slot.Lookup, scale, &r.devices) {
		b, m, err := it.Cost(s)
		if err != nil {
			return 0, 0, err
		}
		bytes, ram = min(bytes, b), min(ram, m)
	}
	if bytes == math.MaxInt64 { // nothing to choose
		return it.Cost(it.Choice.Spec)
	}
	return bytes, ram, nil
}
