package assemble

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Devices is what a target says about devices.
type Devices struct {
	// Profiles are those of the target's backends, in the order of the recipe.
	Profiles []*backends.Profile
	// SOC is target.soc.
	SOC string
	// AttentionMode is attention_mode of the engine, 0 for its default.
	AttentionMode int
	// Minimum is the oldest engine release.
	Minimum string
}

// attentionModes are the engine's numbers for target.kv_cache.
var attentionModes = map[string]int{recipes.CacheFloat: 0, recipes.CacheInt8Keys: 9, recipes.CacheInt8: 10}

// DevicesOf returns what a target says about devices; minimum is the oldest engine release. The error is one of an unknown backend.
func DevicesOf(t recipes.Target, minimum string) (Devices, error) {
	d := Devices{SOC: t.SOC, AttentionMode: attentionModes[t.KVCache], Minimum: minimum}
	for _, name := range t.Backends {
		p, err := backends.ProfileOf(name)
		if err != nil {
			return d, err
		}
		d.Profiles = append(d.Profiles, p)
	}
	return d, nil
}

// settings are those of the configuration for a backend, which the package gets; without one of its own, memory is that of config.json.
func (d *Devices) settings(p *backends.Profile, f *backends.Features) backends.Settings {
	memory := "low"
	if slices.Contains(d.Profiles, p) {
		memory = p.Memory(f, d.Minimum)
	}
	return backends.Settings{Precision: p.Precision(f, memory, d.Minimum), Memory: memory, AttentionMode: d.AttentionMode, SOC: d.SOC}
}

// Problems lists what holds for a package on a backend with the configuration that it gets.
func (d *Devices) Problems(p *backends.Profile, f *backends.Features) []backends.Problem {
	return p.Problems(f, d.settings(p, f), d.Minimum)
}

// Refused returns the first feature that makes results of a backend wrong or impossible, and the backend's place in the
// list; nil if there is none.
func (d *Devices) Refused(f *backends.Features) (int, *backends.Problem) {
	for i, x := range d.Profiles {
		for _, p := range d.Problems(x, f) {
			if p.Refuses() {
				return i, &p
			}
		}
	}
	return 0, nil
}

// Check rejects features that a backend of the target does not compute correctly.
func (d *Devices) Check(f *backends.Features) error {
	if _, bad := d.Refused(f); bad != nil {
		return fmt.Errorf("target.backends: %s: %s: %w", bad, bad.Change(), tensor.ErrUnsupported)
	}
	return nil
}

// Features are those of the model and of the storage forms in its plan.
func (p *Planned) Features() backends.Features {
	f := p.Plan.Model.Features
	for it := range p.Plan.Items() {
		if it.Slot.Kind == lower.LinearSlot {
			f.AddLinear(backends.LinearOf(it.Choice.Spec))
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
		for _, known := range p.Problems(x, &f) {
			list = append(list, fmt.Sprintf("%s: %s", known, known.Change()))
		}
	}
	return list
}
