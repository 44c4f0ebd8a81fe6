package assemble

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Refused returns the first feature that makes results of a backend wrong or impossible, and the backend's place in the
// list; nil if there is none.
func Refused(list []*backends.Profile, f *backends.Features, minimum string) (int, *backends.Problem) {
	for i, x := range list {
		for _, p := range x.Problems(f, minimum) {
			if p.Rule.Verdict != backends.Slow {
				return i, &p
			}
		}
	}
	return 0, nil
}

// CheckBackends rejects features that a backend of the target does not compute correctly.
func CheckBackends(list []*backends.Profile, f *backends.Features, minimum string) error {
	if _, bad := Refused(list, f, minimum); bad != nil {
		return fmt.Errorf("target.backends: %s: %s: %w", bad, bad.Rule.Change, tensor.ErrUnsupported)
	}
	return nil
}

// Features are those of the model and of the storage forms in its plan.
func (p *Planned) Features() backends.Features {
	f := p.Plan.Model.Features
	for it := range p.Plan.Items() {
		if it.Slot.Kind == lower.LinearSlot && !slices.Contains(f.Specs, it.Choice.Spec) {
			f.Specs = append(f.Specs, it.Choice.Spec)
		}
	}
	return f
}

// backendConditions returns the sentences about backends in card, plan and manifest.
func (p *Planned) backendConditions() []string {
	var list []string
	f := p.Features()
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
