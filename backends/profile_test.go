package backends_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestProfiles: the table is sorted, and an unknown name is refused with the list.
func TestProfiles(t *testing.T) {
	names := backends.ProfileNames()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("names %q", names)
	}
	_, err := backends.ProfileOf("banana")
	if err == nil || !strings.Contains(err.Error(), `"banana"`) || !strings.Contains(err.Error(), strings.Join(names, ", ")) {
		t.Errorf("error %v", err)
	}
	for _, name := range names {
		p, err := backends.ProfileOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Rules {
			if r.What == "" || len(r.Change) == 0 {
				t.Errorf("%s: rule without text: %+v", name, r)
			}
		}
		if (p.Condition() == "") != (name == "cpu") {
			t.Errorf("%s: condition %q", name, p.Condition())
		}
	}
}

func spec(bits int, symmetric bool) quant.Spec {
	return quant.Spec{Bits: bits, Block: 64, Symmetric: symmetric, Scale: tensor.F16}
}

// TestStores holds the widths to what was measured on the engines: the digits are the widths that are right, an s marks those
// that are right only without zero terms.
func TestStores(t *testing.T) {
	for _, tt := range []struct{ backend, minimum, want string }{
		{"cpu", "3.5.0", "2 3 4 5 6 8"},
		{"opencl", "3.6.0", "2s 3s 4 5 6 8"},
		{"opencl", "3.5.0", "2s 3s 4 5 6 8"}, // asymmetric 2 and 3 bits are right on 3.5.0, but not on later engines
		{"vulkan", "3.6.0", "2 3 4 5 6 8"},
		{"vulkan", "3.5.0", "4 5 6 8"},
		{"metal", "3.6.0", "2 3 4 5 6 8"},
		{"hexagon", "3.6.0", "2 3 4 5 6 8"},
		{"cuda", "3.6.0", "2 3 4 5 6 8"},
	} {
		p, err := backends.ProfileOf(tt.backend)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			sym, asym := p.Stores(spec(bits, true), tt.minimum), p.Stores(spec(bits, false), tt.minimum)
			digit := string(rune('0' + bits))
			switch {
			case sym && asym:
				got = append(got, digit)
			case sym:
				got = append(got, digit+"s")
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s from engine %s: %q, want %q", tt.backend, tt.minimum, s, tt.want)
		}
		if !p.Stores(quant.Half, tt.minimum) {
			t.Errorf("%s: 16 bits are refused", tt.backend)
		}
	}
}

// TestProblems: which features of a model a backend gets wrong, from which engine on.
func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		backend, minimum string
		features         backends.Features
		want             string // of the first problem; empty for none
		verdict          backends.Verdict
	}{
		{"cpu", "3.5.0", backends.Features{Masks: true, Sinks: true, ShortConv: true, NormedDelta: true, HeadDims: []int{10}}, "", 0},
		{"opencl", "3.6.0", backends.Features{HeadDims: []int{64, 128}}, "", 0},
		{"opencl", "3.6.0", backends.Features{Masks: true}, "opencl ignores attention masks while it generates", backends.Wrong},
		{"opencl", "3.6.0", backends.Features{ShortConv: true},
			"opencl computes short convolutions incorrectly up to engine 3.6.0 (measured on pocl)", backends.Wrong},
		{"opencl", "3.6.1", backends.Features{ShortConv: true}, "", 0},
		{"vulkan", "3.5.0", backends.Features{LinearAttention: true},
			"vulkan computes short convolutions and delta rules incorrectly up to engine 3.5.0", backends.Wrong},
		{"opencl", "3.6.0", backends.Features{PlainDelta: true}, "opencl crashes on delta rules", backends.Unsupported},
		{"opencl", "3.6.1", backends.Features{PlainDelta: true}, "", 0},
		{"vulkan", "3.6.0", backends.Features{ShortConv: true}, "vulkan leaves short convolutions to the CPU", backends.Wrong},
		{"vulkan", "3.6.1", backends.Features{ShortConv: true, EvenDelta: true}, "", 0},
		{"opencl", "3.6.1", backends.Features{PlainDelta: true, EvenDelta: true}, "opencl forgets, at the second prompt of a conversation", backends.Wrong},
		{"vulkan", "3.6.1", backends.Features{PackedRest: true}, "vulkan reads, in the C4 form, memory behind", backends.Wrong},
		{"vulkan", "3.5.0", backends.Features{ExactGELU: true}, "vulkan computes the exact GELU in its tanh form", backends.Wrong},
		{"vulkan", "3.5.0", backends.Features{Experts: true}, "vulkan leaves the routers of experts to the CPU", backends.Slow},
		{"vulkan", "3.6.0", backends.Features{Masks: true, NormedDelta: true}, "", 0},
		{"vulkan", "3.6.0", backends.Features{HeadDims: []int{64, 10}}, "vulkan needs head dimensions", backends.Unsupported},
		{"cuda", "3.6.1", backends.Features{IntDivision: true}, "cuda does not divide integers", backends.Wrong},
		{"cuda", "3.6.1", backends.Features{Linears: []backends.Linear{{Bits: 16}}}, "cuda takes weights of 16 bits for coded ones", backends.Unsupported},
		{"cuda", "3.6.1", backends.Features{WideDelta: true}, "cuda needs keys and values of delta rules", backends.Unsupported},
		{"cuda", "3.6.1", backends.Features{RaggedChoice: true}, "cuda crashes where experts are chosen in groups", backends.Unsupported},
		{"vulkan", "3.6.1", backends.Features{IntDivision: true, WideDelta: true, RaggedChoice: true}, "", 0},
		{"metal", "3.6.0", backends.Features{Sinks: true}, "metal ignores attention sinks (read in the engine's source)", backends.Wrong},
	} {
		p, err := backends.ProfileOf(tt.backend)
		if err != nil {
			t.Fatal(err)
		}
		list := p.Problems(&tt.features, backends.Settings{Precision: "high", Memory: "low"}, tt.minimum)
		switch {
		case tt.want == "" && len(list) > 0, tt.want != "" && len(list) == 0:
			t.Errorf("%s from %s: %v, want %q", tt.backend, tt.minimum, list, tt.want)
		case tt.want != "" && (!strings.HasPrefix(list[0].String(), tt.want) || list[0].Rule.Verdict != tt.verdict):
			t.Errorf("%s from %s: %v, want %q", tt.backend, tt.minimum, list[0], tt.want)
		}
	}
}

// TestConfigured: what configurations for a backend say.
func TestConfigured(t *testing.T) {
	four, eight, half := backends.Linear{Bits: 4, Block: 64, Header: 4}, backends.Linear{Bits: 8, Block: 64, Header: 8}, backends.Linear{Bits: 16}
	for _, tt := range []struct {
		backend           string
		features          backends.Features
		memory, precision string
	}{
		{"cuda", backends.Features{Linears: []backends.Linear{four}}, "low", "low"},
		{"cuda", backends.Features{Linears: []backends.Linear{four, eight}}, "low", "high"},
		{"cuda", backends.Features{Linears: []backends.Linear{half}}, "normal", "low"},
		{"cuda", backends.Features{Linears: []backends.Linear{four, half}}, "normal", "low"},
		{"cuda", backends.Features{Linears: []backends.Linear{half}, Needs: "normal"}, "normal", "high"},
		{"cuda", backends.Features{Linears: []backends.Linear{half}, Masks: true}, "normal", "low"},
		{"opencl", backends.Features{Linears: []backends.Linear{{Bits: 2}}}, "low", "low"},
		{"vulkan", backends.Features{Linears: []backends.Linear{half}, Needs: "high"}, "low", "high"},
	} {
		p, err := backends.ProfileOf(tt.backend)
		if err != nil {
			t.Fatal(err)
		}
		memory := p.Memory(&tt.features, "3.6.1")
		if precision := p.Precision(&tt.features, memory, "3.6.1"); memory != tt.memory || precision != tt.precision {
			t.Errorf("%s, %+v: memory %s, precision %s, want %s, %s", tt.backend, tt.features, memory, precision, tt.memory, tt.precision)
		}
	}
}
