package stage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// lowered lowers a model for the target of the run, whose backends all compute it correctly.
func (r *Run) lowered(model *arch.Model) (*lower.Model, error) {
	context := r.Recipe.Target.Context
	if most := model.Text.MaxPositions; context > most {
		return nil, r.Recipe.Errorf("target.context", "the checkpoint has %d positions, fewer than %d", most, context)
	}
	named := r.Recipe.Target.Backends
	o := lower.Options{Context: context, SpelledGELU: slices.Contains(named, "vulkan"), TabledQuotients: slices.Contains(named, "cuda")}
	if r.Recipe.Target.Form == recipes.FormC4 {
		o.Form = lower.FormC4
	}
	m, err := r.lower(model, o)
	if err != nil {
		return nil, err
	}
	if _, bad := r.devices.Refused(&m.Features); bad != nil && 0 < context && context <= lower.MaxStoredContext && slices.Contains(storing, bad.Rule.ID) {
		o.StoredAttention = true
		if m, err = r.lower(model, o); err != nil {
			return nil, err
		}
	}
	if m.Oldest > r.target.Minimum {
		read := "pictures for its tower"
		if len(model.Towers) == 0 {
			read = "clips for its encoder of sound"
		}
		return nil, r.Recipe.Errorf("target.engine", "%q is too old for this checkpoint: engines before %s cannot read %s", r.target.Engine, m.Oldest, read)
	}
	return m, r.devices.Check(&m.Features)
}

// storing are the rules about attention that a bounded context avoids: it can be computed from other ops.
var storing = []string{"mask-decode", "sinks"}

// Plan lays out the package of an open source, with the specs of an allocation unless that is nil.
func (r *Run) Plan(src *source.Source, a *assemble.Allocation) (*assemble.Planned, error) {
	policy, err := r.Quantize.policy(r)
	if err != nil {
		return nil, err
	}
	kept, err := r.Quantize.kept(r, src, policy)
	if err != nil {
		return nil, err
	}
	policy.Fixed = kept
	if a != nil {
		if policy.Fixed, err = a.Fixed(); err != nil {
			return nil, err
		}
	}
	m, err := r.lowered(src.Model)
	if err != nil {
		return nil, err
	}
	p, err := plan.New(m, src.Weights.Tensors(), policy)
	if err != nil {
		var unused *plan.UnusedOverride
		if errors.As(err, &unused) {
			at := fmt.Sprintf("overrides[%d].match", unused.Index)
			return nil, r.Recipe.Stages["quantize"].Errorf(at, "%q matches no matrix of the checkpoint", unused.Pattern)
		}
		return nil, err
	}
	var size int64
	for _, part := range p.Parts {
		n, err := part.Graph().Size()
		if err != nil {
			return nil, err
		}
		if err := part.Lowered.CheckGraphSize(n); err != nil {
			return nil, err
		}
		size += int64(n)
	}
	pl := &assemble.Planned{
		Source: src, Target: r.target, Plan: p, GraphBytes: size, Allocation: a, Kept: kept, Devices: r.devices,
		Shown: map[string]bool{mnn.VisualPart: r.Calibrate.Pictures != nil, mnn.AudioPart: r.Calibrate.Sounds != nil},
	}
	// Until a budget is allocated, storage forms are provisional.
	if r.Quantize.Budget != nil && a == nil {
		return pl, r.checkBudget(pl)
	}
	f := pl.Features()
	return pl, r.devices.Check(&f)
}
