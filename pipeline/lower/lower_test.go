package lower

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestClassicRefusesByName(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *arch.Decoder)
		want   string
	}{
		{"an op too large", func(d *arch.Decoder) {
			up := &d.Layers[1][1].Block.(*arch.MLP).Up.Weight
			up.Rows, up.Cols = 1<<20, 1<<11
		}, "model.layers.1.mlp.up_proj.weight: 1048576 x 2048 is more than 2^31-1 weights"},
		{"tables too large", func(d *arch.Decoder) {
			d.MaxPositions = 1 << 26
			d.Ropes[0].Dim = 1 << 13
		}, "rotary tables of"},
		{"too many positions", func(d *arch.Decoder) { d.MaxPositions = 1<<26 + 1 }, "67108865 positions"},
		{"too fast a rotation", func(d *arch.Decoder) { d.Ropes[0].InvFreq[0] = 1e9 }, "rotary angle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := describe(t, "qwen3-tied", nil)
			c.change(d)
			m, err := Classic(d, Options{})
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want) || m != nil {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	p := &Part{}
	if err := p.CheckGraphSize(1<<31 - 1); err != nil {
		t.Error(err)
	}
	if err := p.CheckGraphSize(1 << 31); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "llm.mnn would have 2147483648 bytes") {
		t.Errorf("graph of 2^31 bytes: %v", err)
	}
}

// TestC4: in the C4 form every layer keeps its states in NC4HW4, the graph has the slots of the classic form, and is well-formed.
func TestC4(t *testing.T) {
	for _, name := range []string{"llama", "qwen2-untied", "qwen3-tied", "gemma3_text", "qwen3_moe", "deepseek_v3", "olmo2", "bloom", "gpt_oss", "lfm2"} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, name, nil)
			classic, err := Classic(d, Options{})
			if err != nil {
				t.Fatal(err)
			}
			m, err := Classic(d, Options{Form: FormC4})
			if err != nil {
				t.Fatal(err)
			}
			checkWellFormed(t, d, m)
			if m.Features.Classic || !classic.Features.Classic {
				t.Errorf("the form is not recognized: %+v", m.Features)
			}
			if a, b := len(m.Parts[0].Slots), len(classic.Parts[0].Slots); a != b {
				t.Errorf("%d slots, the classic form has %d", a, b)
			}
			for _, op := range m.Parts[0].Graph.Ops {
				a, ok := op.Param.(*mnn.Attention)
				if op.Name == mnn.LayerOutput(0) && op.Format != mnn.DimNC4HW4 || ok && !a.OutputC4 {
					t.Errorf("%s (%v) is not in NC4HW4", op.Name, op.Type)
				}
			}
		})
	}
}

func TestClassicIsWellFormed(t *testing.T) {
	for _, name := range []string{"qwen3-tied", "qwen3-untied", "qwen2-tied", "qwen2-untied", "llama", "llama-bias", "llama3-rope", "llama-linear-rope"} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, name, nil)
			m, err := Classic(d, Options{})
			if err != nil {
				t.Fatal(err)
			}
			checkWellFormed(t, d, m)
		})
	}
}

func TestTargets(t *testing.T) {
	for _, name := range Engines() {
		got, err := TargetOf(name)
		if err != nil || got.Engine != name || !strings.HasPrefix(got.Minimum+".", name+".") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// Scales of two bytes appeared in 3.6.0.
	if t35, _ := TargetOf("3.5"); t35.Scale != tensor.F32 {
		t.Error("3.5 does not read halves as scales")
	}
	if _, err := TargetOf("2.0"); err == nil || !strings.Contains(err.Error(), "3.5, 3.6") {
		t.Errorf("unknown engine: %v", err)
	}
}
