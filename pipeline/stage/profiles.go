package stage

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// profiles returns the profiles of the target's backends, in the recipe's order.
func profiles(r *recipes.Recipe) ([]*backends.Profile, error) {
	list := make([]*backends.Profile, len(r.Target.Backends))
	for i, name := range r.Target.Backends {
		p, err := backends.ProfileOf(name)
		if err != nil {
			return nil, r.Errorf(fmt.Sprintf("target.backends[%d]", i), "%v", err)
		}
		list[i] = p
	}
	return list, nil
}

// checkSpecs rejects storage forms that a backend of the target does not compute correctly, as far as the recipe alone
// decides them. With a budget only those that backends compute correctly are chosen.
func (q *Quantize) checkSpecs(r *recipes.Recipe, p *quant.Policy) error {
	targeted, err := profiles(r)
	if err != nil {
		return err
	}
	target, err := lower.TargetOf(r.Target.Engine)
	if err != nil {
		return r.Errorf("target.engine", "%v", err)
	}
	var f backends.Features
	if q.Budget == nil {
		f.Specs = []quant.Spec{p.Default, p.Table}
	}
	for i, x := range targeted {
		if bad := refused(x.Problems(&f, target.Minimum)); bad != nil {
			return r.Errorf(fmt.Sprintf("target.backends[%d]", i), "%s: %s", bad, bad.Rule.Change)
		}
	}
	return nil
}

// refused returns the first problem that makes results wrong or impossible; nil if there is none.
func refused(list []backends.Problem) *backends.Problem {
	for i := range list {
		if list[i].Rule.Verdict != backends.Slow {
			return &list[i]
		}
	}
	return nil
}

// features are those of the model and of the storage forms that its plan has.
func (p *Planned) features() backends.Features {
	f := p.Plan.Model.Features
	for i := range p.Plan.Items {
		it := &p.Plan.Items[i]
		if it.Slot.Kind == lower.LinearSlot && !slices.Contains(f.Specs, it.Choice.Spec) {
			f.Specs = append(f.Specs, it.Choice.Spec)
		}
	}
	return f
}

// checkBackends rejects features that a backend of the target does not compute correctly.
func checkBackends(list []*backends.Profile, f *backends.Features, minimum string) error {
	for _, x := range list {
		if bad := refused(x.Problems(f, minimum)); bad != nil {
			return fmt.Errorf("target.backends: %s: %s: %w", bad, bad.Rule.Change, tensor.ErrUnsupported)
		}
	}
	return nil
}

// backendConditions are the sentences on backends that card, plan and manifest carry.
func (p *Planned) backendConditions() []string {
	var list []string
	f := p.features()
	for _, x := range p.Profiles {
		if c := x.Condition(); c != "" {
			list = append(list, c)
		}
		for _, slow := range x.Problems(&f, p.Target.Minimum) {
			list = append(list, fmt.Sprintf("%s: %s", slow, slow.Rule.Change))
		}
	}
	return list
}
