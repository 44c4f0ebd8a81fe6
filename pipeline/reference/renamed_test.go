package reference

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// builder makes a checkpoint of a family that transformers does not have from one that computes the same.
type builder struct {
	t    *testing.T
	from *memory
	memory
}

// rows are the rows of tensors, one tensor behind the other.
func (b *builder) rows(names ...string) (rows [][]byte) {
	for _, name := range names {
		info := b.from.info(b.t, name)
		rows = append(rows, slices.Collect(slices.Chunk(b.from.data[name], int(info.Size/info.Shape[0])))...)
	}
	return rows
}

// put adds a tensor of rows like those of the tensor called like.
func (b *builder) put(name, like string, rows [][]byte) {
	info := *b.from.info(b.t, like)
	info.Name, info.Shape = name, slices.Clone(info.Shape)
	info.Shape[0] = int64(len(rows))
	if b.data == nil {
		b.data = make(map[string][]byte)
	}
	b.data[name] = slices.Concat(rows...)
	info.Size = int64(len(b.data[name]))
	b.infos = append(b.infos, info)
}

// rename adds a tensor under another name.
func (b *builder) rename(from, to string) { b.put(to, from, b.rows(from)) }

// eachLayer calls f with the prefix of the layers' tensors and their number.
func eachLayer(f func(p, n string)) {
	for i := range 3 {
		f("model.layers."+strconv.Itoa(i)+".", strconv.Itoa(i))
	}
}

const headDim = 16 // of the checkpoints below, which have 4 heads on 2 key-value heads

// grouped is q, k and v as InternLM 2 has them.
func grouped(q, k, v [][]byte) (rows [][]byte) {
	for g := range 2 {
		rows = append(rows, q[2*g*headDim:2*(g+1)*headDim]...)
		rows = append(rows, k[g*headDim:(g+1)*headDim]...)
		rows = append(rows, v[g*headDim:(g+1)*headDim]...)
	}
	return rows
}

// twice repeats every head.
func twice(rows [][]byte) (out [][]byte) {
	for head := range slices.Chunk(rows, headDim) {
		out = append(append(out, head...), head...)
	}
	return out
}

// common are keys of the files that are like those of Llama.
func common(modelType, architecture string, more map[string]any) map[string]any {
	keys := map[string]any{
		"model_type": modelType, "architectures": []string{architecture}, "hidden_act": "silu", "hidden_size": 64,
		"intermediate_size": 160, "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
		"num_key_value_heads": 2, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "vocab_size": 320,
		"auto_map": map[string]string{"AutoModelForCausalLM": "modeling." + architecture},
	}
	for k, v := range more {
		keys[k] = v
	}
	return keys
}

var llamaNorms = map[string]string{"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}

// renamed are families whose code is not in transformers, but in that of other families.
var renamed = []struct {
	name, from string
	config     map[string]any
	build      func(b *builder)
	// head changes what the checkpoint at hand gives to what is expected.
	head func(b *builder, logits []float32)
}{
	{
		name: "internlm2", from: "llama",
		config: common("internlm2", "InternLM2ForCausalLM", map[string]any{"bias": false, "rope_theta": 5e5}),
		build: func(b *builder) {
			b.rename("model.embed_tokens.weight", "model.tok_embeddings.weight")
			b.rename("model.norm.weight", "model.norm.weight")
			b.rename("lm_head.weight", "output.weight")
			eachLayer(func(p, _ string) {
				q := p + "self_attn.q_proj.weight"
				b.put(p+"attention.wqkv.weight", q, grouped(b.rows(q), b.rows(p+"self_attn.k_proj.weight"), b.rows(p+"self_attn.v_proj.weight")))
				b.rename(p+"self_attn.o_proj.weight", p+"attention.wo.weight")
				for from, to := range map[string]string{"gate": "w1", "up": "w3", "down": "w2"} {
					b.rename(p+"mlp."+from+"_proj.weight", p+"feed_forward."+to+".weight")
				}
				for from, to := range llamaNorms {
					b.rename(p+from+".weight", p+to+".weight")
				}
			})
		},
	},
	{
		name: "chatglm", from: "glm",
		config: map[string]any{
			"model_type": "chatglm", "architectures": []string{"ChatGLMModel"}, "hidden_size": 64, "padded_vocab_size": 320,
			"vocab_size": 320, "seq_length": 512, "num_layers": 3, "ffn_hidden_size": 160, "kv_channels": 16,
			"num_attention_heads": 4, "multi_query_attention": true, "multi_query_group_num": 2, "layernorm_epsilon": 1e-6,
			"add_qkv_bias": true, "add_bias_linear": false, "rmsnorm": true, "original_rope": true, "post_layer_norm": true,
			"auto_map": map[string]string{"AutoModel": "modeling_chatglm.ChatGLMForConditionalGeneration"},
		},
		build: func(b *builder) {
			b.rename("model.embed_tokens.weight", "transformer.embedding.word_embeddings.weight")
			b.rename("model.norm.weight", "transformer.encoder.final_layernorm.weight")
			b.rename("lm_head.weight", "transformer.output_layer.weight")
			b.put("transformer.rotary_pos_emb.inv_freq", "model.norm.weight", b.rows("model.norm.weight")[:4])
			eachLayer(func(p, n string) {
				to := "transformer.encoder.layers." + n + "."
				for _, kind := range []string{"weight", "bias"} {
					q := p + "self_attn.q_proj." + kind
					b.put(to+"self_attention.query_key_value."+kind, q, b.rows(q, p+"self_attn.k_proj."+kind, p+"self_attn.v_proj."+kind))
				}
				b.rename(p+"self_attn.o_proj.weight", to+"self_attention.dense.weight")
				b.rename(p+"mlp.gate_up_proj.weight", to+"mlp.dense_h_to_4h.weight")
				b.rename(p+"mlp.down_proj.weight", to+"mlp.dense_4h_to_h.weight")
				for norm := range llamaNorms {
					b.rename(p+norm+".weight", to+norm+".weight")
				}
			})
		},
	},
	{
		name: "minicpm", from: "granite",
		config: common("minicpm", "MiniCPMForCausalLM", map[string]any{
			"scale_emb": 12, "dim_model_base": 8, "scale_depth": 0.22 * math.Sqrt(3), "tie_word_embeddings": true,
		}),
		build: func(b *builder) {
			for _, info := range b.from.infos {
				b.rename(info.Name, info.Name)
				if !strings.HasSuffix(info.Name, "q_proj.weight") {
					continue
				}
				// Granite multiplies scores by 1/16, MiniCPM by 1/4.
				for x := range slices.Chunk(b.data[info.Name], 2) {
					v := []float32{0}
					if err := kernel.ToF32(v, x, tensor.BF16); err != nil {
						b.t.Fatal(err)
					}
					bits := math.Float32bits(v[0] / 4)
					x[0], x[1] = byte(bits>>16), byte(bits>>24)
				}
			}
		},
	},
	{
		name: "baichuan", from: "llama",
		config: common("baichuan", "BaiChuanForCausalLM", map[string]any{"rope_theta": 5e5}),
		build:  baichuan,
	},
	{
		name: "baichuan2", from: "llama",
		config: common("baichuan", "BaichuanForCausalLM", map[string]any{"rope_theta": 5e5, "z_loss_weight": 0}),
		build:  baichuan,
		head: func(b *builder, logits []float32) {
			rows := b.rows("lm_head.weight")
			for j, row := range rows {
				x, sum := make([]float32, len(row)/2), 0.0
				if err := kernel.ToF32(x, row, tensor.BF16); err != nil {
					b.t.Fatal(err)
				}
				for _, v := range x {
					sum += float64(v) * float64(v)
				}
				for at := j; at < len(logits); at += len(rows) {
					logits[at] /= float32(math.Sqrt(sum))
				}
			}
		},
	},
}

func baichuan(b *builder) {
	for _, info := range b.from.infos {
		if !strings.Contains(info.Name, "_proj.weight") || !strings.Contains(info.Name, "self_attn") || strings.Contains(info.Name, "o_proj") {
			b.rename(info.Name, info.Name)
		}
	}
	eachLayer(func(p, _ string) {
		q := p + "self_attn.q_proj.weight"
		b.put(p+"self_attn.W_pack.weight", q, slices.Concat(b.rows(q), twice(b.rows(p+"self_attn.k_proj.weight")), twice(b.rows(p+"self_attn.v_proj.weight"))))
	})
}

// The same weights under the names and in the order of another family give the same logits.
func TestRenamed(t *testing.T) {
	for _, tt := range renamed {
		t.Run(tt.name, func(t *testing.T) {
			b := &builder{t: t, from: readFile(t, filepath.Join(familyDir(tt.from), "model.safetensors"))}
			tt.build(b)
			config, err := json.Marshal(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			described, err := arch.Describe(config, b.infos, arch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			d := described.Text
			src, err := arch.Open(d, &b.memory)
			if err != nil {
				t.Fatal(err)
			}
			m, err := New(d, src, Options{})
			if err != nil {
				t.Fatal(err)
			}
			golden := readFile(t, filepath.Join(familyDir(tt.from), "golden.safetensors"))
			got := scoreAll(t, m, [][]int32{golden.tokens(t, "ids_0"), golden.tokens(t, "ids_1")})
			for i, name := range []string{"logits_0", "logits_1"} {
				want := golden.floats(name)
				if tt.head != nil {
					tt.head(b, want)
				}
				for j, w := range want {
					if !(math.Abs(float64(got[i][j])-float64(w)) <= logitBound) {
						t.Fatalf("%s[%d] is %v, want %v", name, j, got[i][j], w)
					}
				}
			}
		})
	}
}
