package plan

import (
	"bytes"
	"regexp"
	"testing"

	synthetic "github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Experts that are made when they are needed give the bytes of experts that were all there, and the size that is known
// before. Numbers of layers and experts have one digit and more.
func TestGraphSize(t *testing.T) {
	mixture := func(config string) func(*testing.T) *lower.Model {
		return func(t *testing.T) *lower.Model {
			src, err := synthetic.New([]byte(config), 1)
			if err != nil {
				t.Fatal(err)
			}
			return lowered(t, []byte(config), src.Tensors())
		}
	}
	bits, row := 8, 0
	odd := []quant.Override{{Match: regexp.MustCompile(`experts\.(7|1.)\.(up|down)_proj`), Bits: &bits, Block: &row}}
	for _, tt := range []struct {
		name      string
		model     func(*testing.T) *lower.Model
		overrides []quant.Override
	}{
		{"qwen3_moe", mixture(`{"model_type":"qwen3_moe","architectures":["Qwen3MoeForCausalLM"],"hidden_size":64,"intermediate_size":64,
			"num_hidden_layers":12,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"num_experts":123,"num_experts_per_tok":2,
			"moe_intermediate_size":32,"vocab_size":320,"max_position_embeddings":512,"rope_theta":10000,"tie_word_embeddings":false}`), nil},
		{"specs", mixture(`{"model_type":"qwen3_moe","architectures":["Qwen3MoeForCausalLM"],"hidden_size":64,"intermediate_size":64,
			"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"num_experts":40,"num_experts_per_tok":2,
			"moe_intermediate_size":32,"vocab_size":320,"max_position_embeddings":512,"rope_theta":10000,"tie_word_embeddings":false}`), odd},
		{"gpt_oss", mixture(`{"model_type":"gpt_oss","architectures":["GptOssForCausalLM"],"hidden_size":64,"intermediate_size":32,
			"num_hidden_layers":11,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"num_local_experts":17,"num_experts_per_tok":2,
			"vocab_size":320,"max_position_embeddings":512,"rope_theta":10000,"sliding_window":16,"tie_word_embeddings":false}`), nil},
		{"dense", func(t *testing.T) *lower.Model { m, _ := checkpoint(t, "qwen3-tied"); return m }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := func() *Part {
				m := tt.model(t)
				s := spec(t, "w4-b32-asym")
				p, err := New(m, allOf(m), &quant.Policy{Default: s, Table: s, Overrides: tt.overrides})
				if err != nil {
					t.Fatal(err)
				}
				return p.Parts[0]
			}
			g := plan().Graph()
			size, err := g.Size()
			if err != nil {
				t.Fatal(err)
			}
			got, err := g.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			want, err := plan().Link().Marshal()
			if err != nil || !bytes.Equal(got, want) || size != len(want) {
				t.Errorf("size %d, %d bytes, want %d (%v)", size, len(got), len(want), err)
			}
		})
	}
}

// allOf are the facts of the tensors that a model takes, all of them BF16.
func allOf(m *lower.Model) (infos []tensor.Info) {
	for _, s := range m.Parts[0].Slots {
		for _, w := range []arch.Weight{s.Weight, s.Bias} {
			if w.Tensor != "" {
				infos = append(infos, tensor.Info{Name: w.Tensor, DType: tensor.BF16, Shape: tensor.Shape{int64(w.Rows), int64(max(w.Cols, 1))}})
			}
		}
	}
	return infos
}
