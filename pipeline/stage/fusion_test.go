package stage

import (
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// q, k and v get one spec, gate and up another, and everything else one each; a matrix that an override has taken out
// leaves the rest of its group together.
func TestFused(t *testing.T) {
	t.Parallel()
	w := func(name string) arch.Linear { return arch.Linear{Weight: arch.Weight{Tensor: name}} }
	d := &arch.Decoder{Layers: []arch.Layer{{
		{Norm: &arch.Norm{}, Block: &arch.Attention{Q: w("q"), K: w("k"), V: w("v"), O: w("o"), Rope: &arch.Rope{}}},
		{Norm: &arch.Norm{}, Block: &arch.MLP{Activation: arch.SiLU, Gate: w("gate"), Up: w("up"), Down: w("down")}},
	}}}
	var items []quant.Item
	for _, name := range []string{"table", "k", "v", "o", "gate", "up", "down"} {
		items = append(items, quant.Item{Members: []string{name}, Options: []quant.Option{
			{Spec: quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16}, Bytes: 10, RAM: 20, KL: 1},
			{Spec: quant.Spec{Bits: 8, Block: 64, Scale: tensor.F16}, Bytes: 20, RAM: 30, KL: 0.5},
		}})
	}
	var got []string
	for _, it := range fused(d.Layers, items) {
		name := ""
		for _, m := range it.Members {
			name += m + " "
		}
		got = append(got, name)
		if n := int64(len(it.Members)); len(it.Options) != 2 || it.Options[0].Bytes != 10*n || it.Options[1].RAM != 30*n || it.Options[0].KL != float64(n) {
			t.Errorf("%s: %+v", name, it.Options)
		}
	}
	want := []string{"table ", "k v ", "o ", "gate up ", "down "}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
