package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Budget is what a package may cost; one of its fields is set.
type Budget struct {
	Bytes     *recipes.Size `json:"bytes,omitempty" jsonschema_description:"All files that the engine opens, such as 400MB."`
	BPW       float64       `json:"bpw,omitempty" jsonschema_description:"Mean bits of a weight, scales counted."`
	DeviceRAM *recipes.Size `json:"device_ram,omitempty" jsonschema_description:"Memory on the device with a context of 2048."`
	KL        float64       `json:"kl,omitempty" jsonschema_description:"Predicted divergence from the source in nats; the smallest package below it is made."`
}

// Allocate measures how much the storage of every matrix matters, and shares a budget out.
type Allocate struct{}

// String implements pipeline.Stage.
func (*Allocate) String() string { return "allocate" }

// Skip implements pipeline.Skipper.
func (*Allocate) Skip(job *pipeline.Job) (string, bool) {
	q, err := quantizeOf(job)
	return "there is no budget", err == nil && q.Budget == nil
}

const (
	sensitivitiesFile = "sensitivities.json"
	allocationFile    = "allocation.json"
)

// Run implements pipeline.Stage.
func (a *Allocate) Run(ctx context.Context, job *pipeline.Job) error {
	q, err := quantizeOf(job)
	if err != nil {
		return err
	}
	sens, digest, err := a.sensitivities(ctx, job, q)
	if err != nil {
		return err
	}
	key, err := pipeline.Key("allocate", digest, job.Recipe.Target, q)
	if err != nil {
		return err
	}
	art, err := made(ctx, job, "allocation", key, func(p *pipeline.Partial) (manifest.Digest, error) {
		src, err := openSource(ctx, job)
		if err != nil {
			return "", err
		}
		defer src.Close()
		alloc, err := q.allocate(job, src, sens)
		if err != nil {
			return "", err
		}
		zerolog.Ctx(ctx).Info().Float64("predicted_kl", alloc.KL).Int64("bytes", alloc.Bytes).Msg("allocated")
		b, err := json.Marshal(alloc)
		if err != nil {
			return "", err
		}
		return manifest.DigestOf(b), os.WriteFile(filepath.Join(p.Dir, allocationFile), b, 0o666)
	})
	if err != nil {
		return err
	}
	art.Kind = pipeline.Allocation
	job.Artifacts.Add(art)
	return nil
}

// sensitivities measures what the ways to store every matrix cost, or finds what was measured before: they do not
// depend on the budget.
func (a *Allocate) sensitivities(ctx context.Context, job *pipeline.Job, q *Quantize) (*quant.Sensitivities, manifest.Digest, error) {
	c, err := calibrateOf(job)
	if err != nil {
		return nil, "", err
	}
	all, text, err := openCorpus(job)
	if err != nil {
		return nil, "", err
	}
	checkpoint, err := job.Artifacts.One(pipeline.Checkpoint)
	if err != nil {
		return nil, "", err
	}
	// Tuning moves what all ways to store a matrix have in common.
	measured := slices.DeleteFunc(slices.Clone(q.Method), func(m quant.Method) bool { return m.Name() == "distill" })
	key, err := pipeline.Key("sensitivities", checkpoint.Digest, text.Digest, job.Recipe.Target, job.Recipe.Model.IgnoreConfig, measured, q.Scale, c.SkipTokens, c.Probe, c.Sequential)
	if err != nil {
		return nil, "", err
	}
	art, err := made(ctx, job, "sensitivities", key, func(p *pipeline.Partial) (manifest.Digest, error) {
		src, err := openSource(ctx, job)
		if err != nil {
			return "", err
		}
		defer src.Close()
		chain, err := quant.NewChain(q.Method)
		if err != nil {
			return "", err
		}
		scale, err := q.scaleOf(job)
		if err != nil {
			return "", err
		}
		targeted, err := profiles(job.Recipe)
		if err != nil {
			return "", err
		}
		target, err := lower.TargetOf(job.Recipe.Target.Engine)
		if err != nil {
			return "", err
		}
		windows, probe, err := c.split(all.Windows)
		if err != nil {
			return "", err
		}
		o := calibrate.Options{
			Decoder: src.Decoder, Source: src.Weights, Windows: windows[:min(len(windows), measuringWindows)], Skip: c.SkipTokens,
			Threads: job.Limits.Threads, Memory: job.Limits.Memory, Dir: p.Dir,
			Progress: func(done, total int64) { job.Limits.Report("allocate", "matrices", done, total) },
		}
		list, err := calibrate.Measure(ctx, o, calibrate.Measuring{
			Chain: chain, Scale: scale, Probe: probe, Sequential: c.Sequential,
			Options: func(w arch.Weight, lookup bool) []quant.Spec {
				return storable(w.Rows, w.Cols, lookup, scale, targeted, target.Minimum)
			},
		})
		if err != nil {
			return "", err
		}
		s := &quant.Sensitivities{
			Source: string(checkpoint.Digest),
			Text:   quant.SensitivityText{Name: "probe of the calibration text", Digest: string(text.Digest), Tokens: int64(len(probe) * len(probe[0]))},
		}
		if s.Items, err = q.priced(job, src, list); err != nil {
			return "", err
		}
		b, err := s.Marshal()
		if err != nil {
			return "", err
		}
		return manifest.DigestOf(b), os.WriteFile(filepath.Join(p.Dir, sensitivitiesFile), b, 0o666)
	})
	if err != nil {
		return nil, "", err
	}
	b, err := os.ReadFile(filepath.Join(art.Path, sensitivitiesFile))
	if err != nil {
		return nil, "", err
	}
	s, err := quant.ParseSensitivities(b)
	return s, art.Digest, err
}

// measuringWindows are enough to tell ways to store a matrix apart.
const measuringWindows = 48

// storable lists the specs of a matrix that the target's backends compute correctly.
func storable(rows, cols int, lookup bool, scale tensor.DType, targeted []*backends.Profile, minimum string) []quant.Spec {
	bits := []int{2, 3, 4, 5, 6, 8}
	blocks := []int{32, 64, 128}
	if lookup {
		bits = slices.DeleteFunc(bits, func(n int) bool { return n != 4 && n != 8 })
		blocks = append(blocks, quant.WholeRow)
	}
	if !slices.ContainsFunc(blocks, func(b int) bool { return b != quant.WholeRow && cols%b == 0 }) {
		blocks = []int{quant.WholeRow}
	}
	var list []quant.Spec
	for _, n := range bits {
		for _, block := range blocks {
			for _, symmetric := range []bool{false, true} {
				s := quant.Spec{Bits: n, Block: block, Symmetric: symmetric, Scale: scale}
				wrong := func(p *backends.Profile) bool { return !p.Stores(s, minimum) }
				if _, err := s.Layout(rows, cols); err != nil || slices.ContainsFunc(targeted, wrong) {
					continue
				}
				list = append(list, s)
			}
		}
	}
	return list
}

// allocation is a choice of specs for a budget.
type allocation struct {
	// Specs by tensor.
	Specs map[string]string `json:"specs"`
	// KL is the predicted divergence from the source in nats, Probe the number of tokens that it was measured on.
	KL    float64 `json:"kl"`
	Probe int64   `json:"probe"`
	// Bytes of all files that the engine opens.
	Bytes int64 `json:"bytes"`
}

// openAllocation reads the allocation of a job; nil without one.
func openAllocation(job *pipeline.Job) (*allocation, error) {
	a, err := job.Artifacts.One(pipeline.Allocation)
	if err != nil {
		return nil, nil
	}
	x := &allocation{}
	return x, readJSON(filepath.Join(a.Path, allocationFile), x)
}

// fixed are the specs as a policy takes them.
func (a *allocation) fixed() (map[string]quant.Spec, error) {
	specs := map[string]quant.Spec{}
	for name, text := range a.Specs {
		s, err := quant.ParseSpec(text)
		if err != nil {
			return nil, err
		}
		specs[name] = s
	}
	return specs, nil
}

// allocate shares the budget out.
func (q *Quantize) allocate(job *pipeline.Job, src *Source, sens *quant.Sensitivities) (*allocation, error) {
	sec := job.Recipe.Stages["quantize"]
	base, err := q.Plan(job, src)
	if err != nil {
		return nil, err
	}
	items, rest, err := base.items(sens.Items)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(base.Profiles, func(p *backends.Profile) bool { return p.Fuses }) {
		items = fused(src.Decoder, items)
	}
	if len(items) == 0 {
		return nil, sec.Errorf("budget", "overrides fix every matrix, so that there is nothing to choose")
	}
	inputs, err := job.Artifacts.One(pipeline.Inputs)
	if err != nil {
		return nil, err
	}
	// limit is that of the package, fixed what of it is not allocated.
	var limit, fixed int64
	b, key := quant.Budget{KL: q.Budget.KL}, "budget.kl"
	switch {
	case q.Budget.Bytes != nil:
		files, err := base.FileBytes(inputs.Path)
		if err != nil {
			return nil, err
		}
		limit, fixed, key = int64(*q.Budget.Bytes), files-rest.allocated, "budget.bytes"
	case q.Budget.BPW > 0:
		limit, fixed, key = int64(q.Budget.BPW*float64(rest.weights)/8), rest.matrices, "budget.bpw"
	case q.Budget.DeviceRAM != nil:
		limit, fixed, key = int64(*q.Budget.DeviceRAM), base.Memory().Total(DeviceContext)-rest.ram, "budget.device_ram"
		b.RAM = max(limit-fixed, 1)
	}
	if key == "budget.bytes" || key == "budget.bpw" {
		b.Bytes = max(limit-fixed, 1) // too little is refused as too little
	}
	smallest := false
	for {
		a, err := quant.Allocate(items, b)
		var small *quant.BudgetError
		if errors.As(err, &small) {
			least := max(small.Smallest.Bytes, small.Smallest.RAM) + fixed
			switch key {
			case "budget.kl":
				return nil, sec.Errorf(key, "cannot be met: the smallest divergence possible is %s", roundUp(small.Smallest.KL))
			case "budget.bpw":
				return nil, sec.Errorf(key, "cannot be met: the smallest possible is %.3f", math.Ceil(8000*float64(least)/float64(rest.weights))/1000)
			case "budget.device_ram":
				return nil, sec.Errorf(key, "cannot be met: the smallest possible is %d bytes", least)
			}
			// How large the graph of the smallest package is shows when it is laid out.
			smallest, b = true, small.Smallest
			continue
		}
		if err != nil {
			return nil, err
		}
		x := &allocation{Specs: map[string]string{}, KL: a.KL, Probe: sens.Text.Tokens}
		for i, o := range a.Options {
			for _, name := range items[i].Members {
				x.Specs[name] = o.Spec.String()
			}
		}
		pl, err := q.planWith(job, src, x)
		if err != nil {
			return nil, err
		}
		if x.Bytes, err = pl.FileBytes(inputs.Path); err != nil {
			return nil, err
		}
		// The graph says how ops are stored, so its size may move by some bytes.
		if over := x.Bytes - limit; key == "budget.bytes" && over > 0 {
			if smallest {
				return nil, sec.Errorf(key, "cannot be met: the smallest possible is %d bytes", x.Bytes)
			}
			b.Bytes = max(b.Bytes-over, 1)
			continue
		}
		return x, nil
	}
}

// roundUp writes a number with three digits or a few more, never less than it is.
func roundUp(v float64) string {
	for digits := 3; ; digits++ {
		s := strconv.FormatFloat(v, 'g', digits, 64)
		if w, err := strconv.ParseFloat(s, 64); err != nil || w >= v {
			return s
		}
	}
}

// remainder is what the items of an allocation share a package with.
type remainder struct {
	// allocated and ram are bytes of the items as they were planned, matrices those of other matrices; weights counts
	// all matrices.
	allocated, ram, matrices, weights int64
}

// priced adds to what was measured of the matrices what their options take.
func (q *Quantize) priced(job *pipeline.Job, src *Source, list []calibrate.Sensitivity) ([]quant.Item, error) {
	base, err := q.planWith(job, src, nil)
	if err != nil {
		return nil, err
	}
	var items []quant.Item
	for _, s := range list {
		at := slices.IndexFunc(base.Plan.Items, func(it plan.Item) bool { return it.Slot.Weight.Tensor == s.Tensor })
		if at < 0 {
			return nil, fmt.Errorf("internal error: %s has no slot", s.Tensor)
		}
		item := quant.Item{Members: []string{s.Tensor}}
		for _, o := range s.Options {
			bytes, ram, err := base.Plan.Items[at].Cost(o.Spec)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Tensor, err)
			}
			item.Options = append(item.Options, quant.Option{Spec: o.Spec, Bytes: bytes, RAM: ram, KL: o.KL})
		}
		items = append(items, item)
	}
	return items, nil
}

// items are the matrices that no override fixes, among those that were measured.
func (p *Planned) items(measured []quant.Item) ([]quant.Item, remainder, error) {
	var list []quant.Item
	var r remainder
	for i := range p.Plan.Items {
		it := &p.Plan.Items[i]
		if !it.Matrix() {
			continue
		}
		r.weights += int64(it.Layout.Rows) * int64(it.Layout.Cols)
		if it.Choice.Override >= 0 {
			r.matrices += it.Size() - it.Bias
			continue
		}
		name := it.Slot.Weight.Tensor
		at := slices.IndexFunc(measured, func(m quant.Item) bool { return m.Members[0] == name })
		if at < 0 {
			return nil, r, fmt.Errorf("internal error: %s was not measured", name)
		}
		bytes, ram, err := it.Cost(it.Choice.Spec)
		if err != nil {
			return nil, r, err
		}
		r.allocated, r.ram = r.allocated+bytes, r.ram+ram
		list = append(list, measured[at])
	}
	return list, r, nil
}

// fused makes one item of the matrices that read the same vector: backends other than the CPU may compute q, k and v, and
// gate and up, as one op, which has one storage form.
func fused(d *arch.Decoder, items []quant.Item) []quant.Item {
	group := map[string]string{} // of tensors to the first of their group
	for i := range d.Layers {
		a, m := d.Pair(i).Attention, d.Pair(i).MLP
		for _, l := range []*arch.Linear{&a.Q, &a.K, &a.V} {
			group[l.Weight.Tensor] = a.Q.Weight.Tensor
		}
		if m.Gate.Weight.Tensor != "" {
			group[m.Gate.Weight.Tensor], group[m.Up.Weight.Tensor] = m.Gate.Weight.Tensor, m.Gate.Weight.Tensor
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

// validate refuses budgets that say nothing or too much.
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
	case b.BPW != 0 && !(b.BPW > 0 && b.BPW <= 16):
		return sec.Errorf("budget.bpw", "must be from 0 to 16, not %g", b.BPW)
	case b.KL != 0 && !(b.KL > 0 && b.KL < 100):
		return sec.Errorf("budget.kl", "must be more than 0 nats and sensible, not %g", b.KL)
	}
	return nil
}
