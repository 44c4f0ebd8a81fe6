package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestExpertForms rewrites the experts of a checkpoint to tensors that hold all of them, in both orders, and damages them.
func TestExpertForms(t *testing.T) {
	ck := loadCheckpoint(t, "testdata/qwen3_moe") // 8 experts of 48 in layers 1 and 2, hidden size 64
	stacked := func(gateUp, down tensor.Shape) []tensor.Info {
		infos := slices.DeleteFunc(slices.Clone(ck.tensors), func(i tensor.Info) bool { return strings.Contains(i.Name, ".experts.") })
		for i := 1; i <= 2; i++ {
			p := fmt.Sprintf("model.layers.%d.mlp.experts.", i)
			infos = append(infos, tensor.Info{Name: p + "gate_up_proj", DType: tensor.BF16, Shape: gateUp},
				tensor.Info{Name: p + "down_proj", DType: tensor.BF16, Shape: down})
		}
		return infos
	}
	rows, columns := stacked(tensor.Shape{8, 96, 64}, tensor.Shape{8, 64, 48}), stacked(tensor.Shape{8, 64, 96}, tensor.Shape{8, 48, 64})
	for _, tt := range []struct {
		name       string
		infos      []tensor.Info
		transposed bool
		up         string // of expert 3
	}{
		{"rows are outputs", rows, false, "[{336 48 0 0 0}] from 0"},
		{"columns are outputs", columns, true, "[{48 48 0 0 0}] from 192"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := describe(ck.config, tt.infos, Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := d.Layers[1][1].Block.(*Experts)
			v := d.Views[slices.IndexFunc(d.Views, func(v View) bool { return v.Name == e.Experts[3].Up.Weight.Tensor })]
			if got := fmt.Sprintf("%v from %d", v.Runs, v.From); got != tt.up || v.Transposed != tt.transposed || v.Rows != 48 || v.Cols != 64 {
				t.Errorf("%s, %+v", got, v)
			}
		})
	}
	without := func(infos []tensor.Info, name string) []tensor.Info {
		return slices.DeleteFunc(slices.Clone(infos), func(i tensor.Info) bool { return i.Name == name })
	}
	shaped := func(infos []tensor.Info, name string, shape tensor.Shape) []tensor.Info {
		infos = slices.Clone(infos)
		infos[slices.IndexFunc(infos, func(i tensor.Info) bool { return i.Name == name })].Shape = shape
		return infos
	}
	const p = "model.layers.1.mlp.experts."
	for _, tt := range []struct {
		name  string
		infos []tensor.Info
		want  string
	}{
		{"an expert is missing", without(ck.tensors, p+"5.up_proj.weight"), `tensors: missing: model.layers.1.mlp.experts.5.up_proj.weight`},
		{"an expert is of another shape", shaped(ck.tensors, p+"5.up_proj.weight", tensor.Shape{40, 64}),
			`tensors: wrong shape: model.layers.1.mlp.experts.5.up_proj.weight is [40 64], want [48 64]`},
		{"half of a stack is missing", without(rows, p+"down_proj"), `tensors: missing: model.layers.1.mlp.experts.down_proj`},
		{"too few in a stack", shaped(rows, p+"gate_up_proj", tensor.Shape{7, 96, 64}),
			`tensors: wrong shape: model.layers.1.mlp.experts.gate_up_proj is [7 96 64], want [8 96 64]`},
		{"two dimensions", shaped(rows, p+"down_proj", tensor.Shape{8 * 64, 48}),
			`tensors: wrong shape: model.layers.1.mlp.experts.down_proj is [512 48], want [8 64 48]`},
		{"one of each order", shaped(rows, p+"down_proj", tensor.Shape{8, 48, 64}),
			`tensors: wrong shape: model.layers.1.mlp.experts.down_proj is [8 48 64], want [8 64 48]`},
	} {
		t.Run(tt.name, func(t *testing.T) { wantError(t, ck.config, tt.infos, Options{}, tensor.ErrCorrupt, tt.want) })
	}
	t.Run("more than any checkpoint has", func(t *testing.T) {
		config := edit(t, ck.config, map[string]any{"num_local_experts": 16384, "num_hidden_layers": 4096})
		wantError(t, config, ck.tensors, Options{}, tensor.ErrCorrupt, `tensors: missing: model.layers.1.mlp.experts.8.gate_proj.weight`)
	})
}
