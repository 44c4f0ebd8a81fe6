package lower

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// wrongOn lists the small checkpoints whose 16-bit packages gave other logits than the CPU on engine 3.6.1 when they were run
// there past their windows, with prompts, single tokens and second prompts; all others agreed within 1e-9 nats. Checkpoints that were not
// run are judged by what they share with those that were.
var wrongOn = map[string][]string{
	"opencl": {
		"bamba", "bloom", "cohere2", "cwm", "exaone4", "falcon_h1", "gemma3", "gemma3-untied", "gemma3-window", "gemma3_text", "gemma4", "gemma4-causal",
		"gemma4-edge", "gemma4-hearing", "gemma4-hearing-far", "gemma4-hearing-wide", "gemma4-moe", "gemma4_text", "gemma4_text-edge",
		"gemma4_text-keys", "gemma4_text-moe", "gemma4_text-untied", "gpt_oss",
		"granitemoehybrid", "llama4_text", "llama4_text-dense", "llava-mistral", "ministral", "ministral3", "mistral", "olmo3", "phi3", "qwen2-slide", "qwen3_5",
		"qwen3_5-corners", "qwen3_5-tied", "qwen3_5_moe", "qwen3_5_moe-corners", "qwen3_5_moe-tied", "qwen3_5_moe_text", "qwen3_5_text",
		"qwen3_next", "starcoder2",
	},
	"vulkan": {"gpt_oss"},
}

// TestFeatures: the profiles predict from graphs alone on which checkpoints the measured backends are wrong.
func TestFeatures(t *testing.T) {
	paths, err := filepath.Glob("../arch/testdata/*/model.safetensors")
	if err != nil || len(paths) < 50 {
		t.Fatalf("%d checkpoints, %v", len(paths), err)
	}
	got := map[string][]string{}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "golden.safetensors")); err != nil {
			continue
		}
		m, err := Classic(describeWhole(t, name, nil), Options{SpelledGELU: true})
		if err != nil {
			t.Fatal(err)
		}
		for backend := range wrongOn {
			p, err := backends.ProfileOf(backend)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Problems(&m.Features, backends.Settings{Precision: "high", Memory: "low"}, "3.6.1")) > 0 {
				got[backend] = append(got[backend], name)
			}
		}
	}
	for backend, want := range wrongOn {
		if !slices.Equal(got[backend], want) {
			t.Errorf("%s:\n got %q\nwant %q", backend, got[backend], want)
		}
	}
}

// Vulkan has no exact GELU, so graphs for it spell the function out. Others are as they were.
func TestFeaturesGELU(t *testing.T) {
	d := describeWhole(t, "gpt_neox", nil)
	for _, spelled := range []bool{false, true} {
		m, err := Classic(d, Options{SpelledGELU: spelled})
		if err != nil {
			t.Fatal(err)
		}
		if m.Features.ExactGELU == spelled {
			t.Errorf("spelled out %v: an op of the exact GELU %v", spelled, m.Features.ExactGELU)
		}
	}
}

// CUDA does not divide integers, so graphs for it look quotients of positions up. Others are as they were.
func TestFeaturesQuotients(t *testing.T) {
	for _, c := range []struct {
		name    string
		context int
		want    map[string][2]int // tables: what they divide by, and the largest dividend
	}{
		{"llama", 100, map[string][2]int{"/quotients_16_111": {16, 111}}},
		{"phi3-longrope", 0, map[string][2]int{"/quotients_32_511": {32, 511}}},
		{"ministral3", 16, map[string][2]int{"/quotients_4_15": {4, 15}, "/quotients_16_16": {16, 16}}},
		{"gpt2", 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := describeWhole(t, c.name, nil)
			for _, tabled := range []bool{false, true} {
				m, err := Classic(d, Options{Context: c.context, TabledQuotients: tabled})
				if err != nil {
					t.Fatal(err)
				}
				if divided := m.Features.IntDivision; divided != (!tabled && c.want != nil) {
					t.Errorf("tabled %v: integers are divided: %v", tabled, divided)
				}
				got := map[string][2]int{}
				for _, op := range m.Parts[0].Graph.Ops {
					b, ok := op.Param.(*mnn.Blob)
					if !ok || !strings.HasPrefix(op.Name, "/quotients") {
						continue
					}
					n := slices.Index(b.Int32s, 1)
					got[op.Name] = [2]int{n, len(b.Int32s) - 1}
					for p, q := range b.Int32s {
						if int(q) != p/n {
							t.Fatalf("%s has %d for %d", op.Name, q, p)
						}
					}
				}
				if want := c.want; tabled && !maps.Equal(got, want) || !tabled && len(got) > 0 {
					t.Errorf("tabled %v: tables %v, want %v", tabled, got, want)
				}
			}
		})
	}
}

// CUDA gathers scores incorrectly from rows whose length is not a multiple of 8. Experts that are chosen by their scores alone need no picking.
func TestFeaturesChoice(t *testing.T) {
	for name, ragged := range map[string]bool{"deepseek_v3": false, "lfm2_moe": true, "mixtral": false} {
		m, err := Classic(describeWhole(t, name, nil), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Features.RaggedChoice != ragged {
			t.Errorf("%s: %v, want %v", name, m.Features.RaggedChoice, ragged)
		}
	}
}

// Capped scores of gemma2 are computed by a delta rule whose values are as wide as the context.
func TestFeaturesWideDelta(t *testing.T) {
	for context, wide := range map[int]bool{128: false, 129: true} {
		m, err := Classic(describeWhole(t, "gemma2", nil), Options{Context: context})
		if err != nil {
			t.Fatal(err)
		}
		if m.Features.WideDelta != wide {
			t.Errorf("a context of %d: %v, want %v", context, m.Features.WideDelta, wide)
		}
	}
}

// In a bounded context, attention with windows and sinks can do without what backends ignore.
func TestFeaturesStored(t *testing.T) {
	d := describeWhole(t, "gpt_oss", nil)
	for _, stored := range []bool{false, true} {
		m, err := Classic(d, Options{Context: 64, StoredAttention: stored})
		if err != nil {
			t.Fatal(err)
		}
		if f := m.Features; f.Masks == stored || f.Sinks == stored || f.PlainDelta != stored || stored && m.Precision != "high" {
			t.Errorf("stored %v: precision %q, %+v", stored, m.Precision, f)
		}
	}
	d.MaxPositions = 2 * MaxStoredContext
	if _, err := Classic(d, Options{Context: MaxStoredContext + 1, StoredAttention: true}); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("a context of %d: %v", MaxStoredContext+1, err)
	}
}

// A window that covers the context needs no mask.
func TestFeaturesBounded(t *testing.T) {
	d := describeWhole(t, "mistral", nil)
	for _, c := range []struct {
		context int
		masks   bool
	}{{16, false}, {17, true}} {
		m, err := Classic(d, Options{Context: c.context})
		if err != nil {
			t.Fatal(err)
		}
		if m.Features.Masks != c.masks {
			t.Errorf("a context of %d positions: masks %v", c.context, m.Features.Masks)
		}
	}
}

// Head dimensions follow from the ops before Attention, through rotations of parts of a head, latent forms and several axes.
func TestFeaturesHeads(t *testing.T) {
	for name, want := range map[string][]int{
		"qwen3-untied": {16}, "deepseek_v3": {24}, "glm4_moe_lite": {20}, "gpt_oss": {16}, "gemma4_text": {8, 16}, "glm_ocr-heads": {8}, "gemma2": {},
	} {
		m, err := Classic(describeWhole(t, name, nil), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.Features.HeadDims, want) {
			t.Errorf("%s: head dimensions %v, want %v", name, m.Features.HeadDims, want)
		}
	}
}
