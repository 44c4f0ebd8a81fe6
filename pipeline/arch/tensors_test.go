package arch

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestClaim(t *testing.T) {
	change := func(name string, f func(*tensor.Info)) func([]tensor.Info) []tensor.Info {
		return func(infos []tensor.Info) []tensor.Info {
			for i := range infos {
				if infos[i].Name == name {
					f(&infos[i])
				}
			}
			return infos
		}
	}
	drop := func(names ...string) func([]tensor.Info) []tensor.Info {
		return func(infos []tensor.Info) []tensor.Info {
			return slices.DeleteFunc(infos, func(i tensor.Info) bool { return slices.Contains(names, i.Name) })
		}
	}
	add := func(more ...tensor.Info) func([]tensor.Info) []tensor.Info {
		return func(infos []tensor.Info) []tensor.Info { return append(infos, more...) }
	}
	head := tensor.Info{Name: "lm_head.weight", DType: tensor.BF16, Shape: tensor.Shape{320, 64}}
	bad, no := tensor.ErrCorrupt, tensor.ErrUnsupported
	for _, tt := range []struct {
		name, base string
		change     func([]tensor.Info) []tensor.Info
		kind       error
		want       string // after "tensors: "
	}{
		{"missing", "llama", drop("model.norm.weight", "model.layers.2.mlp.up_proj.weight"), bad,
			`missing: model.layers.2.mlp.up_proj.weight, model.norm.weight`},
		{"no head", "qwen3-untied", drop("lm_head.weight"), bad, `missing: lm_head.weight (tie_word_embeddings is false)`},
		{"no table", "qwen3-tied", drop("model.embed_tokens.weight"), bad, `missing: model.embed_tokens.weight`},
		{"nothing", "llama", func([]tensor.Info) []tensor.Info { return nil }, bad,
			`missing: model.embed_tokens.weight, model.layers.0.input_layernorm.weight, model.layers.0.self_attn.q_proj.weight, ` +
				`model.layers.0.self_attn.k_proj.weight, model.layers.0.self_attn.v_proj.weight, model.layers.0.self_attn.o_proj.weight, ` +
				`model.layers.0.post_attention_layernorm.weight, model.layers.0.mlp.gate_proj.weight, model.layers.0.mlp.up_proj.weight, ` +
				`model.layers.0.mlp.down_proj.weight, and 20 more`},
		{"unclaimed", "llama", add(tensor.Info{Name: "model.layers.3.input_layernorm.weight"}, tensor.Info{Name: "extra\n"}), no,
			`not part of the model: "extra\n", model.layers.3.input_layernorm.weight`},
		{"bias without a key", "llama", add(tensor.Info{Name: "model.layers.0.self_attn.q_proj.bias", DType: tensor.BF16, Shape: tensor.Shape{64}}), no,
			`not part of the model: model.layers.0.self_attn.q_proj.bias`},
		{"transposed", "llama", change("model.layers.0.mlp.down_proj.weight", func(i *tensor.Info) { i.Shape = tensor.Shape{160, 64} }), bad,
			`wrong shape: model.layers.0.mlp.down_proj.weight is [160 64], want [64 160]`},
		{"vector as a matrix", "llama", change("model.norm.weight", func(i *tensor.Info) { i.Shape = tensor.Shape{64, 1} }), bad,
			`wrong shape: model.norm.weight is [64 1], want [64]`},
		{"scalar", "llama", change("model.norm.weight", func(i *tensor.Info) { i.Shape = nil }), bad,
			`wrong shape: model.norm.weight is [], want [64]`},
		{"float8", "llama", change("model.norm.weight", func(i *tensor.Info) { i.DType = tensor.F8E4M3 }), no,
			`wrong element type: model.norm.weight is F8_E4M3, want F16, BF16 or F32`},
		{"float64", "llama", change("model.norm.weight", func(i *tensor.Info) { i.DType = tensor.F64 }), no,
			`wrong element type: model.norm.weight is F64, want F16, BF16 or F32`},
		{"int8", "llama", change("model.norm.weight", func(i *tensor.Info) { i.DType = tensor.I8 }), no,
			`wrong element type: model.norm.weight is I8, want F16, BF16 or F32`},
		{"twice", "llama", add(head), bad, `given twice: lm_head.weight`},
		{"tied, another type", "qwen3-tied", add(tensor.Info{Name: "lm_head.weight", DType: tensor.F16, Shape: head.Shape}), no,
			`wrong element type: lm_head.weight is F16, want BF16 like model.embed_tokens.weight (tie_word_embeddings is true)`},
		{"tied, another shape", "qwen3-tied", add(tensor.Info{Name: "lm_head.weight", DType: tensor.BF16, Shape: tensor.Shape{320, 32}}), bad,
			`wrong shape: lm_head.weight is [320 32], want [320 64]`},
		{"everything", "llama", func(infos []tensor.Info) []tensor.Info {
			infos = drop("model.norm.weight")(infos)
			return add(tensor.Info{Name: "x"})(infos)
		}, bad, `missing: model.norm.weight; not part of the model: x`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ck := loadCheckpoint(t, "testdata/"+tt.base)
			wantError(t, ck.config, tt.change(ck.tensors), Options{}, tt.kind, "tensors: "+tt.want)
		})
	}

	t.Run("left out", func(t *testing.T) {
		ck := loadCheckpoint(t, "testdata/qwen3-tied")
		buffer := tensor.Info{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", DType: tensor.F32, Shape: tensor.Shape{16}}
		d, err := describe(ck.config, append(ck.tensors, head, buffer), Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := [2]string{d.Claimed[head.Name], d.Claimed[buffer.Name]}
		if want := [2]string{"duplicate of model.embed_tokens.weight", "rotary buffer"}; got != want {
			t.Errorf("claimed as %q", got)
		}
		want := map[string]string{"lm_head.weight": "model.embed_tokens.weight"}
		if diff := cmp.Diff(want, d.Duplicates()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}
