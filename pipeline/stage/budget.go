package stage

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
)

// Budget is the largest cost of a package; one of its fields is set.
type Budget struct {
	Bytes     *recipes.Size `json:"bytes,omitempty" jsonschema_description:"All files that the engine opens, such as 400MB."`
	BPW       float64       `json:"bpw,omitempty" jsonschema_description:"Mean bits of a weight, including scales."`
	DeviceRAM *recipes.Size `json:"device_ram,omitempty" jsonschema_description:"Memory on the device with a context of 2048."`
	KL        float64       `json:"kl,omitempty" jsonschema_description:"Predicted divergence from the source in nats; the result is the smallest package below it."`
}

// validate rejects a budget without a value, with several, or with a value out of range.
func (b *Budget) validate(sec recipes.Section) error {
	if b == nil {
		return nil
	}
	set := 0
	for _, is := range []bool{b.Bytes != nil, b.BPW != 0, b.DeviceRAM != nil, b.KL != 0} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return sec.Errorf("budget", "must name one of bytes, bpw, device_ram and kl")
	case b.Bytes != nil && *b.Bytes < leastBudget:
		return tooFew(sec, "budget.bytes", *b.Bytes)
	case b.DeviceRAM != nil && *b.DeviceRAM < leastBudget:
		return tooFew(sec, "budget.device_ram", *b.DeviceRAM)
	case b.BPW != 0 && !(b.BPW > 0 && b.BPW <= 16):
		return sec.Errorf("budget.bpw", "must be from 0 to 16, not %g", b.BPW)
	case b.KL != 0 && !(b.KL > 0 && b.KL < 100):
		return sec.Errorf("budget.kl", "must be more than 0 and less than 100 nats, not %g", b.KL)
	}
	return nil
}

// leastBudget is a number of bytes below which no package of a language model is.
const leastBudget = 50_000

// tooFew is the error for a size without its unit.
func tooFew(sec recipes.Section, key string, n recipes.Size) error {
	meant := ""
	if n > 0 {
		meant = fmt.Sprintf("; did you mean %dMB?", n)
	}
	return sec.Errorf(key, "%d bytes hold no model%s", int64(n), meant)
}

func (b *Budget) String() string {
	switch {
	case b.Bytes != nil:
		return fmt.Sprintf("at most %s for all files that the engine opens", sheet.Size(int64(*b.Bytes)))
	case b.BPW > 0:
		return fmt.Sprintf("at most %g bits per weight", b.BPW)
	case b.DeviceRAM != nil:
		return fmt.Sprintf("at most %s of device memory", sheet.Size(int64(*b.DeviceRAM)))
	}
	return fmt.Sprintf("the smallest package with a predicted KL of at most %g nats", b.KL)
}

// remainder is the part of a package that is not allocated.
type remainder struct {
	// allocated and ram are bytes of the items as they were planned, matrices those of other matrices; weights counts
	// all matrices.
	allocated, ram, matrices, weights int64
}

// Budgeted reports whether a budget chooses how an item of a part is stored: a matrix of the text model, or of a tower that calibration
// shows something, that no override fixes.
// Fine ones keep their 16 bits, and the table of rows with marks of pictures its 8.
func Budgeted(p *assemble.Planned, part *plan.Part, it *plan.Item) bool {
	text := part == p.Plan.Text() && !it.Slot.Tower
	return it.Matrix() && it.Choice.Override < 0 && (text || p.Shown[part.Lowered.Name]) && !it.Slot.Fine
}

// unfixed returns the measured matrices that are [Budgeted].
func unfixed(p *assemble.Planned, measured []quant.Item) ([]quant.Item, remainder, error) {
	var list []quant.Item
	var r remainder
	of := map[string]quant.Item{}
	for _, m := range measured {
		of[m.Members[0]] = m
	}
	for _, part := range p.Plan.Parts {
		for i := range part.Items {
			it := &part.Items[i]
			if !it.Matrix() {
				continue
			}
			r.weights += int64(it.Layout.Rows) * int64(it.Layout.Cols)
			if !Budgeted(p, part, it) {
				r.matrices += it.Size() - it.Bias
				continue
			}
			m, ok := of[it.Slot.Weight.Tensor]
			if !ok {
				return nil, r, fmt.Errorf("internal error: %s was not measured", it.Slot.Weight.Tensor)
			}
			bytes, ram, err := it.Cost(it.Choice.Spec)
			if err != nil {
				return nil, r, err
			}
			r.allocated, r.ram = r.allocated+bytes, r.ram+ram
			list = append(list, m)
		}
	}
	return list, r, nil
}

// bound is a budget as a limit of an allocation.
type bound struct {
	key string // of the recipe
	// limit is that of the package, fixed the part of it that is not allocated, both in bytes; a bound on divergence has none.
	limit, fixed int64
	budget       quant.Budget
}

// bound turns the budget into a limit on the items of a plan; sum is that for a limit on the divergence.
func (b *Budget) bound(base *assemble.Planned, rest remainder, inputs string, sum float64) (x bound, err error) {
	switch {
	case b.Bytes != nil:
		files, err := base.FileBytes(inputs)
		if err != nil {
			return x, err
		}
		x = bound{key: "budget.bytes", limit: int64(*b.Bytes), fixed: files - rest.allocated}
		x.budget.Bytes = max(x.limit-x.fixed, 1) // the allocation rejects a budget that is too small
	case b.BPW > 0:
		x = bound{key: "budget.bpw", limit: int64(b.BPW * float64(rest.weights) / 8), fixed: rest.matrices}
		x.budget.Bytes = max(x.limit-x.fixed, 1)
	case b.DeviceRAM != nil:
		x = bound{key: "budget.device_ram", limit: int64(*b.DeviceRAM), fixed: base.Memory().Total(assemble.DeviceContext) - rest.ram}
		x.budget.RAM = max(x.limit-x.fixed, 1)
	default:
		x = bound{key: "budget.kl", budget: quant.Budget{KL: sum}}
	}
	return x, nil
}

// tooSmall returns the error for a bound that even the smallest allocation exceeds.
func (x *bound) tooSmall(sec recipes.Section, smallest quant.Budget, weights int64) error {
	least := max(smallest.Bytes, smallest.RAM) + x.fixed
	switch x.key {
	case "budget.bpw":
		return sec.Errorf(x.key, "cannot be met: the smallest possible is %.3f", math.Ceil(8000*float64(least)/float64(weights))/1000)
	}
	return sec.Errorf(x.key, "cannot be met: the smallest possible is %s", sheet.Size(least))
}

// share allocates the budget of a run to the matrices of a plan. sum bounds the sum of their divergences if the budget is a limit
// on the divergence; if that cannot be met, the allocation is the one with the least. It returns the sum, and no divergence yet.
func share(r *Run, base *assemble.Planned, sens *quant.Sensitivities, sum float64) (*assemble.Allocation, *assemble.Planned, float64, error) {
	sec := r.Recipe.Stages["quantize"]
	items, rest, err := unfixed(base, sens.Items)
	if err != nil {
		return nil, nil, 0, err
	}
	items = combined(base, items)
	if len(items) == 0 {
		return nil, nil, 0, sec.Errorf("budget", "overrides fix every matrix, so there is nothing to choose")
	}
	x, err := r.Quantize.Budget.bound(base, rest, r.Inputs.Path, sum)
	if err != nil {
		return nil, nil, 0, err
	}
	files := x.key == "budget.bytes"
	for smallest := false; ; {
		chosen, err := quant.Allocate(items, x.budget)
		if small := (*quant.BudgetError)(nil); errors.As(err, &small) {
			if !files && x.key != "budget.kl" {
				return nil, nil, 0, x.tooSmall(sec, small.Smallest, rest.weights)
			}
			// The size of the smallest package's graph is known only once it is laid out.
			smallest, x.budget = true, small.Smallest
			continue
		}
		if err != nil {
			return nil, nil, 0, err
		}
		a := &assemble.Allocation{Specs: map[string]string{}, Probe: sens.Text.Tokens}
		for i, o := range chosen.Options {
			for _, name := range items[i].Members {
				a.Specs[name] = o.Spec.String()
			}
		}
		pl, err := r.Plan(base.Source, a)
		if err != nil {
			return nil, nil, 0, err
		}
		if a.Bytes, err = pl.FileBytes(r.Inputs.Path); err != nil {
			return nil, nil, 0, err
		}
		// The graph records how ops are stored, so its size may change by a few bytes.
		over := a.Bytes - x.limit
		switch {
		case !files || over <= 0:
			return a, pl, chosen.KL, nil
		case smallest:
			return nil, nil, 0, sec.Errorf(x.key, "cannot be met: the smallest possible is %s", sheet.Size(a.Bytes))
		}
		x.budget.Bytes = max(x.budget.Bytes-over, 1)
	}
}

// roundUp formats a number with three digits or a few more, never smaller than its value.
func roundUp(v float64) string {
	for digits := 3; ; digits++ {
		s := strconv.FormatFloat(v, 'g', digits, 64)
		if w, err := strconv.ParseFloat(s, 64); err != nil || w >= v {
			return s
		}
	}
}

// fused combines matrices that read the same vector into one item: backends other than the CPU may compute q, k and v, and
// gate and up, as one op, which has one storage form.
func fused(layers []arch.Layer, items []quant.Item) []quant.Item {
	group := map[string]string{} // of tensors to the first of their group
	for _, l := range layers {
		for _, b := range l {
			switch x := b.Block.(type) {
			case *arch.Attention:
				for _, l := range []*arch.Linear{&x.Q, &x.K, &x.V} {
					group[l.Weight.Tensor] = x.Q.Weight.Tensor
				}
			case *arch.MLP:
				if x.Gate.Weight.Tensor != "" {
					group[x.Gate.Weight.Tensor], group[x.Up.Weight.Tensor] = x.Gate.Weight.Tensor, x.Gate.Weight.Tensor
				}
			}
		}
	}
	var list []quant.Item
	at := map[string]int{}
	for _, it := range items {
		first, ok := group[it.Members[0]]
		if i, known := at[first]; ok && known {
			list[i] = quant.Fuse(list[i], it)
			continue
		}
		if ok {
			at[first] = len(list)
		}
		list = append(list, it)
	}
	return list
}
