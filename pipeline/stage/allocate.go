package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Allocate measures how much the storage of every matrix matters, and allocates a budget.
type Allocate struct{}

// String implements [pipeline.Stage].
func (*Allocate) String() string { return "allocate" }

// Skip implements [pipeline.Skipper].
func (*Allocate) Skip(r *Run) (string, bool) { return "there is no budget", r.Quantize.Budget == nil }

const (
	sensitivitiesFile = "sensitivities.json"
	allocationFile    = "allocation.json"
)

// textName describes the text of a measurement, with the number of groups.
const textName = "probe of the calibration text, estimated by gradients and measured for %d groups of matrices"

// coreTime is the unit of the progress of a measurement, see [calibrate.Measure].
const coreTime = "milliseconds of a typical core"

// Run implements [pipeline.Stage].
func (a *Allocate) Run(ctx context.Context, r *Run) error {
	sens, measured, err := a.sensitivities(ctx, r)
	if err != nil {
		return err
	}
	of := inputs{measured, r.Recipe.Target, &r.Quantize, r.Calibrate.Sequential}
	r.Allocation, err = r.entry(ctx, "allocation", of, func(p *pipeline.Partial) (digest.Digest, error) {
		base, err := r.Planned(ctx)
		if err != nil {
			return "", err
		}
		alloc, err := r.predicted(ctx, base, sens, p)
		if err != nil {
			return "", err
		}
		zerolog.Ctx(ctx).Info().Float64("predicted_kl", alloc.KL).Int64("bytes", alloc.Bytes).Msg("allocated")
		return p.WriteJSON(allocationFile, alloc)
	}, trialDir)
	return err
}

// sensitivities measures the cost of the ways to store every matrix, or reuses an earlier measurement, because the cost does
// not depend on the budget.
func (a *Allocate) sensitivities(ctx context.Context, r *Run) (*quant.Sensitivities, digest.Digest, error) {
	q, c := &r.Quantize, &r.Calibrate
	measured := quant.Untuned(q.Method)
	of := inputs{
		r.Checkpoint.Digest, r.Calibration.Digest, r.Recipe.Target, r.Recipe.Model.IgnoreConfig,
		measured, q.Scale, c.SkipTokens, c.Probe,
	}
	art, err := r.entry(ctx, "sensitivities", of, func(p *pipeline.Partial) (digest.Digest, error) {
		base, err := r.Planned(ctx)
		if err != nil {
			return "", err
		}
		chain, err := q.chain()
		if err != nil {
			return "", err
		}
		scale, err := q.scale(r)
		if err != nil {
			return "", err
		}
		_, windows, probe, err := r.text()
		if err != nil {
			return "", err
		}
		o, shown, err := r.watching(base, enough(windows), p, "allocate", coreTime)
		if err != nil {
			return "", err
		}
		fixed := map[string]bool{} // to 16 bits, or 32
		for it := range base.Plan.Items() {
			fixed[it.Slot.Weight.Tensor] = it.Slot.Fine || !it.Matrix()
		}
		ms := calibrate.Measuring{
			Chain: chain, Scale: scale, Probe: probe,
			Options: func(w arch.Weight, lookup bool) []quant.Spec {
				if fixed[w.Tensor] {
					return nil
				}
				return storable(w.Rows, w.Cols, lookup, scale, &r.devices)
			},
		}
		var towers []calibrate.Sensitivity
		if shown != nil {
			if towers, err = calibrate.MeasureShown(ctx, o, ms, shown.shown, shown.probe); err != nil {
				return "", err
			}
		}
		m, err := calibrate.Measure(ctx, o, ms)
		if err != nil {
			return "", err
		}
		m.Sensitivities = append(m.Sensitivities, towers...)
		s := &quant.Sensitivities{
			Source: string(r.Checkpoint.Digest),
			Text: quant.SensitivityText{
				Name: fmt.Sprintf(textName, m.Groups), Digest: string(r.Calibration.Digest), Tokens: int64(len(probe) * len(probe[0])),
			},
		}
		if s.Items, err = priced(base, m.Sensitivities); err != nil {
			return "", err
		}
		b, err := s.Marshal()
		if err != nil {
			return "", err
		}
		return digest.Of(b), os.WriteFile(filepath.Join(p.Dir, sensitivitiesFile), b, 0o666)
	}, calibrate.ResumableMeasure...)
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

// measuringTokens are enough to distinguish the ways to store a matrix.
const measuringTokens = 12288

// enough returns the first windows, with measuringTokens.
func enough(windows [][]int32) [][]int32 {
	return windows[:min(len(windows), (measuringTokens+len(windows[0])-1)/len(windows[0]))]
}

// storable lists the specs of a matrix that the target's backends compute correctly.
func storable(rows, cols int, lookup bool, scale tensor.DType, d *assemble.Devices) []quant.Spec {
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
				wrong := func(p *backends.Profile) bool { return !p.Stores(s, d.Minimum) }
				if _, err := s.Layout(rows, cols); err != nil || slices.ContainsFunc(d.Profiles, wrong) {
					continue
				}
				list = append(list, s)
			}
		}
	}
	return list
}

// priced adds the size in bytes of every option to the measurements.
func priced(base *assemble.Planned, list []calibrate.Sensitivity) ([]quant.Item, error) {
	slots := map[string]*plan.Item{}
	for it := range base.Plan.Items() {
		if name := it.Slot.Weight.Tensor; slots[name] == nil {
			slots[name] = it
		}
	}
	var items []quant.Item
	for _, s := range list {
		slot := slots[s.Tensor]
		if slot == nil {
			return nil, fmt.Errorf("internal error: %s has no slot", s.Tensor)
		}
		item := quant.Item{Members: []string{s.Tensor}}
		for _, o := range s.Options {
			bytes, ram, err := slot.Cost(o.Spec)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Tensor, err)
			}
			item.Options = append(item.Options, quant.Option{Spec: o.Spec, Bytes: bytes, RAM: ram, KL: o.KL})
		}
		items = append(items, item)
	}
	return items, nil
}

// combined returns matrices that are stored alike as one item each.
func combined(base *assemble.Planned, items []quant.Item) []quant.Item {
	if slices.ContainsFunc(base.Profiles, func(p *backends.Profile) bool { return p.Fuses }) {
		items = fused(base.Source.Decoder.Layers, items)
		for _, t := range base.Source.Model.Towers {
			items = fused(t.Layers, items)
		}
		if e := base.Source.Model.Ear; e != nil {
			items = fused(e.Layers, items)
		}
	}
	return classes(base.Source.Decoder, items)
}
