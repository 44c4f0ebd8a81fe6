// Package backends holds the profiles of the engine's backends on real devices; the packages below it run graphs.
package backends

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/quant"
)

// Profile describes one of the engine's backends: which packages it computes correctly. The engine's logits on its x86 CPU
// backend are the standard.
type Profile struct {
	// Name is the engine's word, which target.backends and backend_type use.
	Name string
	// Ran names the driver on which packages of this program were run; empty if the profile was only read in the engine's
	// source.
	Ran string
	// Fuses reports whether the backend may compute q, k and v, or gate and up, as one op, whose matrices share a storage form.
	Fuses bool
	// HalfAtNormal reports whether precision "normal" stores activations in fp16, which only "high" prevents.
	HalfAtNormal bool
	// Rules lists the features that the backend does not compute correctly, or only slowly.
	Rules []Rule
}

// Verdict is how a backend treats a feature.
type Verdict int

// The verdicts. A feature without a rule is computed correctly.
const (
	// Slow features are computed correctly by the CPU, with copies there and back.
	Slow Verdict = iota
	// Wrong features change logits without a message.
	Wrong
	// Unsupported features fail or crash.
	Unsupported
)

// Rule is a feature of packages that a backend does not compute correctly.
type Rule struct {
	Verdict Verdict
	// Until is the last engine release with this behavior, such as "3.6.0"; empty if no release has mended it.
	Until string
	// Applies reports whether a package has the feature.
	Applies func(f *Features) bool
	// What is the backend's fault, a clause whose subject is the backend.
	What string
	// Change is what the user can do instead.
	Change string
}

// Features are the properties of a package on which backends differ.
type Features struct {
	// Specs are the storage forms of linear layers.
	Specs []quant.Spec
	// HeadDims are the head dimensions of Attention ops.
	HeadDims []int
	// Masks reports whether an Attention op has a mask other than the causal one: a sliding window, a chunk or ALiBi.
	Masks bool
	// Sinks reports whether an Attention op has attention sinks.
	Sinks bool
	// ShortConv reports whether a LinearAttention op is a short convolution.
	ShortConv bool
	// NormedDelta reports whether a LinearAttention op is a gated delta rule that normalizes queries and keys.
	NormedDelta bool
}

// Problem is a rule that holds for a package.
type Problem struct {
	Backend string
	Rule    *Rule
	// Evidence says how the behavior is known: the driver on which it was measured, or the engine's source.
	Evidence string
}

func (p Problem) String() string {
	releases := ""
	if p.Rule.Until != "" {
		releases = " up to engine " + p.Rule.Until
	}
	return fmt.Sprintf("%s %s%s (%s)", p.Backend, p.Rule.What, releases, p.Evidence)
}

func anySpec(holds func(s quant.Spec) bool) func(f *Features) bool {
	return func(f *Features) bool { return slices.ContainsFunc(f.Specs, holds) }
}

func bits(s quant.Spec, widths ...int) bool { return slices.Contains(widths, s.Bits) }

const (
	otherBackend = "remove it from target.backends"
	fewBits      = "choose 4, 8 or 16 bits, or remove it from target.backends"
)

// masksIgnored is a fault that several backends share: the kernel for one token takes no mask.
var masksIgnored = Rule{
	Verdict: Wrong, Applies: func(f *Features) bool { return f.Masks },
	What:   "ignores attention masks while it generates, so that sliding windows, chunks and ALiBi have no effect",
	Change: "set target.context to at most the window, or remove it from target.backends",
}

var sinksIgnored = Rule{
	Verdict: Wrong, Applies: func(f *Features) bool { return f.Sinks },
	What: "ignores attention sinks", Change: otherBackend,
}

var oddHeads = Rule{
	Verdict: Unsupported,
	Applies: func(f *Features) bool { return slices.ContainsFunc(f.HeadDims, func(n int) bool { return n%4 != 0 }) },
	What:    "needs head dimensions that are multiples of 4", Change: otherBackend,
}

// profiles is the table of backends, sorted by name. It was measured by running packages of some sixty small checkpoints
// on engines 3.5.0, 3.6.0 and 3.6.1 (float32; pocl 3.1 for OpenCL, lavapipe 22.3 for Vulkan), or read in the source of 3.6.1.
var profiles = []Profile{
	{Name: "cpu", Ran: "x86-64 and arm64"},
	{
		Name: "cuda", Fuses: true,
		Rules: []Rule{masksIgnored, sinksIgnored},
	},
	{
		Name: "hexagon", Fuses: true,
		Rules: []Rule{
			{
				Verdict: Unsupported, Applies: func(*Features) bool { return true },
				What: "runs only graphs in the C4 form, which llmexport does not write", Change: otherBackend,
			},
			{
				Verdict: Unsupported, Applies: anySpec(func(s quant.Spec) bool { return s.Bits != 4 || !s.Symmetric }),
				What: "has kernels for symmetric 4-bit weights only", Change: "set quantize.symmetric and bits: 4, or remove it from target.backends",
			},
		},
	},
	{
		Name: "metal", Fuses: true, HalfAtNormal: true,
		Rules: []Rule{masksIgnored, sinksIgnored},
	},
	{
		Name: "opencl", Ran: "pocl", Fuses: true, HalfAtNormal: true,
		Rules: []Rule{
			masksIgnored, sinksIgnored, oddHeads,
			{
				Verdict: Wrong, Applies: anySpec(func(s quant.Spec) bool { return bits(s, 5, 6) }),
				What: "misreads weights of 5 and 6 bits", Change: fewBits,
			},
			{
				Verdict: Wrong, Applies: anySpec(func(s quant.Spec) bool { return bits(s, 2, 3) && !s.Symmetric }),
				What: "misreads asymmetric weights of 2 and 3 bits", Change: "set quantize.symmetric, or remove it from target.backends",
			},
			{
				Verdict: Wrong, Until: "3.6.0", Applies: func(f *Features) bool { return f.ShortConv },
				What: "computes short convolutions incorrectly", Change: otherBackend,
			},
			{
				Verdict: Wrong, Applies: func(f *Features) bool { return f.NormedDelta },
				What:   "computes the gated delta rule incorrectly while it generates, on devices whose subgroups are narrower than 16",
				Change: otherBackend,
			},
		},
	},
	{
		Name: "vulkan", Ran: "lavapipe", Fuses: true, HalfAtNormal: true,
		Rules: []Rule{
			sinksIgnored, oddHeads,
			{
				Verdict: Unsupported, Until: "3.5.0", Applies: anySpec(func(s quant.Spec) bool { return bits(s, 2, 3) }),
				What: "crashes on weights of 2 and 3 bits", Change: `set target.engine: "3.6", or choose 4 bits or more`,
			},
			{
				Verdict: Wrong, Until: "3.5.0", Applies: func(f *Features) bool { return f.ShortConv },
				What: "computes short convolutions incorrectly", Change: `set target.engine: "3.6"`,
			},
			{
				Verdict: Slow, Until: "3.6.0", Applies: func(f *Features) bool { return f.ShortConv },
				What: "leaves short convolutions to the CPU", Change: "use engine 3.6.1",
			},
		},
	},
}

// ProfileNames lists the backends that have a profile, sorted.
func ProfileNames() []string {
	names := make([]string, len(profiles))
	for i := range profiles {
		names[i] = profiles[i].Name
	}
	return names
}

// ProfileOf returns the profile of a backend. The error lists the known ones.
func ProfileOf(name string) (*Profile, error) {
	for i := range profiles {
		if profiles[i].Name == name {
			return &profiles[i], nil
		}
	}
	return nil, fmt.Errorf("unknown backend %q; known are %s", name, strings.Join(ProfileNames(), ", "))
}

// Problems lists the rules that hold for a package whose oldest engine release is minimum, such as "3.6.0".
func (p *Profile) Problems(f *Features, minimum string) []Problem {
	var list []Problem
	for i := range p.Rules {
		r := &p.Rules[i]
		if (r.Until == "" || r.Until >= minimum) && r.Applies(f) {
			list = append(list, Problem{p.Name, r, p.Evidence()})
		}
	}
	return list
}

// Evidence says how the behavior of the backend is known.
func (p *Profile) Evidence() string {
	if p.Ran == "" {
		return "read in the engine's source"
	}
	return "measured on " + p.Ran
}

// Stores reports whether the backend computes linear layers of a storage form correctly.
func (p *Profile) Stores(s quant.Spec, minimum string) bool {
	return !slices.ContainsFunc(p.Problems(&Features{Specs: []quant.Spec{s}}, minimum), func(x Problem) bool { return x.Rule.Verdict != Slow })
}

// Condition is the sentence on the backend that card, plan and manifest carry; empty for the CPU, on which packages are
// verified.
func (p *Profile) Condition() string {
	switch {
	case p.Name == "cpu":
		return ""
	case p.Ran == "":
		return p.Name + ": no package has been run on this backend; support is inferred from the engine's source"
	}
	return fmt.Sprintf("%s: this package was not run on it; packages of the same kind give the CPU's results there (%s, float32)", p.Name, p.Evidence())
}
