package lower

import (
	"errors"
	"slices"
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
			d.Plain(1).MLP.Up.Weight.Rows, d.Plain(1).MLP.Up.Weight.Cols = 1<<20, 1<<11
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
	if err := CheckGraphSize(1<<31 - 1); err != nil {
		t.Error(err)
	}
	if err := CheckGraphSize(1 << 31); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "llm.mnn would have 2147483648 bytes") {
		t.Errorf("graph of 2^31 bytes: %v", err)
	}
}

// Ops come after the ops whose results they read, tensors have one name each, and every slot belongs to the op
// of its name.
func TestClassicIsWellFormed(t *testing.T) {
	for _, name := range []string{"qwen3-tied", "qwen3-untied", "qwen2-tied", "qwen2-untied", "llama", "llama-bias", "llama3-rope", "llama-linear-rope"} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, name, nil)
			m, err := Classic(d, Options{})
			if err != nil {
				t.Fatal(err)
			}
			g := m.Graph
			seen := map[string]bool{}
			for _, n := range g.Tensors {
				if seen[n] {
					t.Errorf("two tensors are called %s", n)
				}
				seen[n] = true
			}
			written := make([]bool, len(g.Tensors))
			for i := range g.Ops {
				for _, in := range g.Ops[i].Inputs {
					if !written[in] {
						t.Errorf("%s reads %s before it is written", g.Ops[i].Name, g.Tensors[in])
					}
				}
				for _, out := range g.Ops[i].Outputs {
					written[out] = true
				}
			}
			if i := slices.Index(g.Live(), false); i >= 0 {
				t.Errorf("nothing needs %s", g.Ops[i].Name)
			}
			lookups, heads := 0, 0
			for _, s := range m.Slots {
				if s.Lookup {
					lookups++
				}
				if s.Name == HeadOp {
					heads++
				}
				if s.Kind == TableSlot {
					if s.Op != -1 || d.Tied {
						t.Errorf("table %+v", s)
					}
					continue
				}
				op := g.Ops[s.Op]
				if op.Name != s.Name || (op.Type == mnn.OpConvolution) != (s.Kind == LinearSlot) {
					t.Errorf("slot %s is of op %s (%v)", s.Name, op.Name, op.Type)
				}
			}
			if lookups != 1 || heads != 1 {
				t.Errorf("%d lookup slots, %d heads", lookups, heads)
			}
			for i := range d.Layers {
				if !seen[LayerOutput(i)] {
					t.Errorf("no tensor %s", LayerOutput(i))
				}
			}
		})
	}
}

func TestTargets(t *testing.T) {
	for _, name := range Engines() {
		got, err := TargetOf(name)
		if err != nil || got.Engine != name || !strings.HasPrefix(got.Minimum, name+".") {
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
