// Package backends holds the profiles of the engine's backends on real devices; the packages below it run graphs.
package backends

import (
	"bytes"
	_ "embed" // for devices.json
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/quant"
)

// Profile describes one of the engine's backends: which packages it computes correctly. The engine's logits on its x86 CPU
// backend, in float, are the standard.
type Profile struct {
	// Name is the engine's word, which target.backends and backend_type use, or another name of a kind of device with that backend.
	Name string `json:"name"`
	// Of is the engine's word if Name is not.
	Of string `json:"of,omitempty"`
	// Title is the heading of the profile in tables.
	Title string `json:"title"`
	// Driver is what packages of this program were run on; empty if the profile was only read in the engine's source.
	Driver string `json:"driver,omitempty"`
	// Measured lists the engine releases on which packages were run.
	Measured []string `json:"measured,omitempty"`
	// Half lists the precisions at which the backend stores activations in fp16.
	Half []string `json:"half,omitempty"`
	// Int8 reports whether memory "low" rounds activations to int8.
	Int8 bool `json:"int8,omitempty"`
	// Int8Cache reports whether a backend other than the CPU can keep keys and values in int8 (attention_mode 9 and 10); the others
	// ignore the key.
	Int8Cache bool `json:"int8_cache,omitempty"`
	// Fuses reports whether the backend may compute q, k and v, or gate and up, as one op, whose matrices share a storage form.
	Fuses bool `json:"fuses,omitempty"`
	// Memories are the values of memory that configurations for the backend may set, the preferred one first; if it is empty, they set "low".
	Memories []string `json:"memories,omitempty"`
	// Threads is the thread_num that the backend needs, where it is not a number of threads; else 0.
	Threads int `json:"threads,omitempty"`
	// Rules lists the features that the backend does not compute correctly, or only slowly.
	Rules []*Rule `json:"-"`
}

// Verdict is how a backend treats a package. Later ones are worse.
type Verdict int

// The verdicts.
const (
	// Right results are those of the CPU, up to the rounding of the precision.
	Right Verdict = iota
	// Slow features are computed correctly by the CPU, with copies there and back.
	Slow
	// Unknown results were not measured, or depend on the weights.
	Unknown
	// Wrong features change logits without a message.
	Wrong
	// Unsupported features fail or crash.
	Unsupported
)

var verdicts = []string{"right", "falls back", "unknown", "wrong", "unsupported"}

func (v Verdict) String() string { return verdicts[v] }

// MarshalText returns the word for a verdict.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText sets the verdict from its word.
func (v *Verdict) UnmarshalText(b []byte) error {
	i := slices.Index(verdicts, string(b))
	if i < 0 {
		return fmt.Errorf("unknown verdict %q; known are %s", b, strings.Join(verdicts, ", "))
	}
	*v = Verdict(i)
	return nil
}

// The kinds of evidence of a rule.
const (
	// Run behavior was measured on a driver.
	Run = "run"
	// Read behavior follows from the engine's source.
	Read = "read"
)

// Narrow devices have subgroups of fewer than 16 work-items.
const Narrow = "narrow"

// Rule is a feature of packages that backends do not compute correctly.
type Rule struct {
	ID      string  `json:"id"`
	Verdict Verdict `json:"verdict"`
	// Since and Until are the first and the last engine release with this behavior, such as "3.6.0"; empty if it has always been so,
	// and if no release has mended it.
	Since string `json:"since,omitempty"`
	Until string `json:"until,omitempty"`
	// Phase is "prefill" or "decode" if only prompts or only single tokens are affected.
	Phase string `json:"phase,omitempty"`
	// Device, if not empty, restricts the rule to a kind of device: [Narrow] or, where it is known, a family of GPUs of [SOCNames].
	Device string `json:"device,omitempty"`
	// When is what a package has to have.
	When Condition `json:"when"`
	// Evidence says for every affected profile how the behavior is known: [Run] or [Read].
	Evidence map[string]string `json:"evidence"`
	// What is the backend's fault, a clause whose subject is the backend.
	What string `json:"what"`
	// Cite names the file and line of the engine's release 3.6.1 that were read.
	Cite string `json:"cite,omitempty"`
	// Change lists what the user can do instead, best first.
	Change []string `json:"change"`
}

// Settings are the keys of config.json in which backends differ, and what is known of the device.
type Settings struct {
	Precision     string `json:"precision"`
	Memory        string `json:"memory"`
	AttentionMode int    `json:"attention_mode,omitempty"`
	// SOC names a family of GPUs, one of [SOCNames]; empty if it is not known.
	SOC string `json:"soc,omitempty"`
}

// SOC is a family of GPUs.
type SOC struct {
	Name string `json:"name"`
	// Wide reports whether 16 work-items run in lock step.
	Wide bool   `json:"wide"`
	Cite string `json:"cite"`
}

// table is the knowledge about devices, as it is stored.
type table struct {
	Releases []string   `json:"releases"`
	Profiles []*Profile `json:"profiles"`
	SOCs     []SOC      `json:"socs"`
	Rules    []*Rule    `json:"rules"`
}

//go:embed devices.json
var devicesJSON []byte

var known = mustParse(devicesJSON)

func mustParse(b []byte) *table {
	t := new(table)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(t); err != nil {
		panic("devices.json: " + err.Error())
	}
	for _, r := range t.Rules {
		for _, p := range t.Profiles {
			if r.Evidence[p.Name] != "" {
				p.Rules = append(p.Rules, r)
			}
		}
	}
	return t
}

// Releases lists the engine releases that the profiles speak of, oldest first.
func Releases() []string { return slices.Clone(known.Releases) }

// Profiles lists all profiles, sorted by name.
func Profiles() []*Profile { return slices.Clone(known.Profiles) }

// Rules lists all rules.
func Rules() []*Rule { return slices.Clone(known.Rules) }

// SOCNames lists the families of GPUs that target.soc may name, sorted.
func SOCNames() []string {
	var names []string
	for _, s := range known.SOCs {
		names = append(names, s.Name)
	}
	return names
}

// ProfileNames lists the backends that a target may name, sorted.
func ProfileNames() []string {
	var names []string
	for _, p := range known.Profiles {
		if p.Of == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// ProfileOf returns the profile of a backend that a target may name. The error lists them.
func ProfileOf(name string) (*Profile, error) {
	for _, p := range known.Profiles {
		if p.Name == name && p.Of == "" {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown backend %q; known are %s", name, strings.Join(ProfileNames(), ", "))
}

// Backend returns the engine's word.
func (p *Profile) Backend() string {
	if p.Of != "" {
		return p.Of
	}
	return p.Name
}

// HalfAt reports whether the backend stores activations in fp16 at a precision.
func (p *Profile) HalfAt(precision string) bool { return slices.Contains(p.Half, precision) }

// Problem is a rule that holds for a package.
type Problem struct {
	Backend string
	Rule    *Rule
	// Evidence says how the behavior is known: the driver on which it was measured, or the engine's source.
	Evidence string
}

func (p Problem) String() string {
	releases := ""
	if r := p.Rule; r.Since != "" && r.Since == r.Until {
		releases = " on engine " + r.Since
	} else if r.Until != "" {
		releases = " up to engine " + r.Until
	} else if r.Since != "" {
		releases = " from engine " + r.Since + " on"
	}
	return fmt.Sprintf("%s %s%s (%s)", p.Backend, p.Rule.What, releases, p.Evidence)
}

// Change is what the user can do instead.
func (p Problem) Change() string { return strings.Join(p.Rule.Change, ", or ") }

// In reports whether a release has the behavior.
func (r *Rule) In(release string) bool {
	return (r.Since == "" || r.Since <= release) && (r.Until == "" || release <= r.Until)
}

// Engines are the releases with the behavior, in words.
func (r *Rule) Engines() string {
	switch {
	case r.Since == "" && r.Until == "":
		return "all"
	case r.Since == r.Until:
		return r.Since
	case r.Since == "":
		return "up to " + r.Until
	case r.Until == "":
		return "from " + r.Since + " on"
	}
	return r.Since + " to " + r.Until
}

// on reports whether the rule concerns the devices of a setting.
func (r *Rule) on(s Settings) bool {
	switch r.Device {
	case "":
		return true
	case Narrow:
		return !slices.ContainsFunc(known.SOCs, func(x SOC) bool { return x.Name == s.SOC && x.Wide })
	}
	return r.Device == s.SOC
}

// Problems lists the rules that hold for a package on any known engine release from minimum on, such as "3.6.0".
func (p *Profile) Problems(f *Features, s Settings, minimum string) []Problem {
	return p.problems(f, s, func(r *Rule) bool {
		return slices.ContainsFunc(known.Releases, func(x string) bool { return x >= minimum && r.In(x) })
	})
}

func (p *Profile) problems(f *Features, s Settings, in func(r *Rule) bool) []Problem {
	var list []Problem
	for _, r := range p.Rules {
		if in(r) && r.on(s) && r.When.holds(f, s, p) {
			list = append(list, Problem{p.Backend(), r, p.evidence(r.Evidence[p.Name])})
		}
	}
	return list
}

// Judge returns how the backend of an engine release treats a package with some settings, and why.
func (p *Profile) Judge(f *Features, s Settings, release string) (Verdict, []Problem) {
	list := p.problems(f, s, func(r *Rule) bool { return r.In(release) })
	worst := Right
	if !slices.Contains(p.Measured, release) {
		worst = Unknown
	}
	for _, x := range list {
		worst = max(worst, x.Rule.Verdict)
	}
	return worst, list
}

// Evidence says how the behavior of the backend is known.
func (p *Profile) Evidence() string {
	if p.Driver == "" {
		return p.evidence(Read)
	}
	return p.evidence(Run)
}

func (p *Profile) evidence(kind string) string {
	if kind == Read {
		return "read in the engine's source"
	}
	return "measured on " + p.Driver
}

// Stores reports whether the backend computes linear layers of a storage form correctly, as llmexport writes them.
func (p *Profile) Stores(spec quant.Spec, minimum string) bool {
	f := &Features{Linears: []Linear{LinearOf(spec)}}
	return !slices.ContainsFunc(p.Problems(f, Settings{Precision: "high", Memory: p.Memory(f, minimum)}, minimum), Problem.Refuses)
}

// Refuses reports whether a package with this problem must not be made for the backend.
func (p Problem) Refuses() bool { return p.Rule.Verdict >= Wrong }

// Memory returns the value of memory that a configuration for the backend sets: the first with the fewest problems at precision "high" on all
// releases from minimum on.
func (p *Profile) Memory(f *Features, minimum string) string {
	best, least := "low", 0
	for i, memory := range p.Memories {
		if n := len(p.Problems(f, Settings{Precision: "high", Memory: memory}, minimum)); i == 0 || n < least {
			best, least = memory, n
		}
	}
	return best
}

// Precision returns the lowest precision that is right for a package at a value of memory on all releases from minimum on: "low" computes
// in fp16 on GPUs, "high" never does. It is at least "normal" if the model needs that.
func (p *Profile) Precision(f *Features, memory, minimum string) string {
	s := Settings{Precision: "high", Memory: memory}
	least := len(p.Problems(f, s, minimum))
	for _, precision := range []string{"low", "normal"} {
		if s.Precision = precision; len(p.Problems(f, s, minimum)) == least {
			return precision
		}
	}
	return "high"
}

// Condition is the sentence on the backend that card, plan and manifest carry; empty for the CPU, on which packages are
// verified.
func (p *Profile) Condition() string {
	switch {
	case p.Name == "cpu":
		return ""
	case p.Driver == "":
		return p.Name + ": no package has been run on this backend; support is inferred from the engine's source"
	}
	return fmt.Sprintf("%s: this package was not run on it; packages of the same kind give the CPU's results there (%s, float32)", p.Name, p.Evidence())
}
