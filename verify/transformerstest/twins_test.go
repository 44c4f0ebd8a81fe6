//go:build transformers

package transformerstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// twin is a model type whose code is not in transformers, held to one that computes the same from the same weights under
// other names.
type twin struct {
	// of is the checkpoint of pipeline/arch/testdata whose config the other one is, config the one of the model type.
	of     string
	theirs object // changes of of's config
	config object
	build  func(b *twinBuilder)
	// logits changes what transformers computes to what is expected.
	logits func(b *twinBuilder, logits []float32)
	// changes are pairs: of the config, and of the twin's.
	changes [][2]object
}

// both is a change of the same keys.
func both(keys object) [2]object { return [2]object{keys, keys} }

// under is the config of a checkpoint of pipeline/arch/testdata under another model type.
func under(modelType, of string) object {
	b, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "arch", "testdata", of, "config.json"))
	config := object{}
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		panic(err)
	}
	config["model_type"], config["num_attention_heads"] = modelType, int(config["num_attention_heads"].(float64))
	return config
}

// twins are these model types.
var twins = map[string]twin{
	"internlm2": {
		of: "llama", config: common("internlm2", "InternLM2ForCausalLM", object{"bias": false, "rope_theta": 5e5}), build: internLM2,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rope_scaling": object{"type": "linear", "factor": 4}}, now("linear", 5e5, object{"factor": 4})},
			{{"bias": true}, {"attention_bias": true}},
			{{"bias": removed}, {"attention_bias": true}},
			{{"rms_norm_eps": 0.1}, {"rms_norm_eps": 0.1}},
			{{"num_key_value_heads": removed}, {"num_key_value_heads": 4}},
			{{"num_key_value_heads": 1}, {"num_key_value_heads": 1}},
			alike(plain[0], object{"head_dim": removed}),
			alike(divided[1], object{"head_dim": removed}),
			alike(divided[2], object{"head_dim": removed}),
		},
	},
	"kimi_k2": {
		of: "deepseek_v3", config: under("kimi_k2", "deepseek_v3"), build: asItIs,
		changes: [][2]object{
			{nil, nil},
			both(object{"routed_scaling_factor": 1.5}),
			both(object{"n_group": 1, "topk_group": 1}),
			both(object{"norm_topk_prob": false}),
			both(object{"rms_norm_eps": 0.1}),
			both(object{"first_k_dense_replace": 2}),
		},
	},
	"minicpm": {
		of: "granite", theirs: object{
			"embedding_multiplier": 12, "logits_scaling": 8, "residual_multiplier": 1.4 / math.Sqrt(3), "attention_multiplier": 0.25, "tie_word_embeddings": true,
		},
		config: common("minicpm", "MiniCPMForCausalLM", object{"scale_emb": 12, "dim_model_base": 8, "scale_depth": 1.4, "tie_word_embeddings": true}),
		build:  asItIs,
		changes: [][2]object{
			{nil, nil},
			{{"scale_emb": 1}, {"embedding_multiplier": 1}},
			{{"scale_emb": removed}, {"embedding_multiplier": 1}},
			{{"scale_depth": removed}, {"residual_multiplier": 1 / math.Sqrt(3)}},
			{{"dim_model_base": 32}, {"logits_scaling": 2}},
			{{"dim_model_base": removed}, {"logits_scaling": 64}},
			{{"attention_bias": true}, {"attention_bias": true}},
			{{"tie_word_embeddings": false}, {"tie_word_embeddings": false}},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rms_norm_eps": 0.1}, {"rms_norm_eps": 0.1}},
			pair(divided[0], object{"scale_depth": 1}, object{"residual_multiplier": 1, "logits_scaling": 7.5, "attention_multiplier": 1 / math.Sqrt(10)}),
			pair(divided[1], nil, object{"residual_multiplier": 1.4 / math.Sqrt2, "logits_scaling": 30, "attention_multiplier": 1 / math.Sqrt(80)}),
			pair(divided[2], object{"scale_depth": 2}, object{"residual_multiplier": 2 / math.Sqrt(5), "logits_scaling": 64, "attention_multiplier": 0.125}),
		},
	},
	"baichuan": {
		of: "llama", theirs: object{"num_key_value_heads": 4},
		config: common("baichuan", "BaichuanForCausalLM", object{"rope_theta": 5e5, "z_loss_weight": 0}), build: baichuan, logits: unitRows,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rope_theta": removed}, {"rope_parameters.rope_theta": 10000}},
			{{"rms_norm_eps": 0.1}, {"rms_norm_eps": 0.1}},
			{{"num_attention_heads": 2}, {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}},
			{{"rope_scaling": object{"type": "linear", "factor": 4}}, now("linear", 5e5, object{"factor": 4})},
			pair(divided[0], nil, object{"num_key_value_heads": 6, "head_dim": removed}),
			pair(divided[1], nil, object{"num_key_value_heads": 3, "head_dim": removed}),
			pair(divided[2], nil, object{"head_dim": removed}),
		},
	},
	"bailing_moe": {
		of: "granitemoehybrid", theirs: object{
			"layer_types": []string{"attention", "attention"}, "num_hidden_layers": 2, "position_embedding_type": "rope", "num_local_experts": 4,
			"num_experts_per_tok": 2, "intermediate_size": 24, "shared_intermediate_size": 24, "embedding_multiplier": 1, "logits_scaling": 1,
			"residual_multiplier": 1, "attention_multiplier": 0.25, "tie_word_embeddings": false,
		},
		config: common("bailing_moe", "BailingMoeForCausalLM", object{
			"num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 24,
			"use_bias": false, "rope_theta": 10000,
		}),
		build: bailingMoe,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters": object{"rope_type": "default", "rope_theta": 300}}},
			both(object{"rms_norm_eps": 0.1}),
			both(object{"num_experts_per_tok": 3}),
			{{"num_experts": 6}, {"num_local_experts": 6}},
			{{"num_shared_experts": 3}, {"shared_intermediate_size": 72}},
			both(object{"tie_word_embeddings": true}),
			both(object{"num_key_value_heads": 1}),
			{
				{"num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 321},
				{"num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 321, "layer_types": []string{"attention"}, "attention_multiplier": math.Sqrt(1. / 32)},
			},
			{
				{"moe_intermediate_size": 33, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3},
				{"intermediate_size": 33, "shared_intermediate_size": 33, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "mamba_n_heads": 12},
			},
		},
	},
	"exaone": {
		of: "llama3-rope", theirs: object{"num_hidden_layers": 2},
		config: object{
			"model_type": "exaone", "architectures": []string{"ExaoneForCausalLM"}, "activation_function": "silu", "hidden_size": 64,
			"intermediate_size": 160, "max_position_embeddings": 512, "num_attention_heads": 4, "num_layers": 2, "num_key_value_heads": 2,
			"layer_norm_epsilon": 1e-6, "tie_word_embeddings": true, "vocab_size": 320, "rope_theta": 5e5, "rope_scaling": exaoneRope,
		},
		build: exaone,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rope_scaling": nil}, {"rope_parameters": object{"rope_type": "default", "rope_theta": 5e5}}},
			{{"rope_scaling": object{"type": "linear", "factor": 4}}, now("linear", 5e5, object{"factor": 4})},
			{{"layer_norm_epsilon": 0.1}, {"rms_norm_eps": 0.1}},
			{{"layer_norm_epsilon": removed}, {"rms_norm_eps": 1e-5}},
			{{"tie_word_embeddings": false}, {"tie_word_embeddings": false}},
			{{"num_key_value_heads": removed}, {"num_key_value_heads": 4}},
			{{"num_key_value_heads": 1}, {"num_key_value_heads": 1}},
			{{"head_dim": 24}, {"head_dim": 24}},
			{{"num_layers": 1, "vocab_size": 321}, {"num_hidden_layers": 1, "vocab_size": 321}},
			{
				{"num_layers": 3, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 100},
				{"num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 100, "head_dim": 16},
			},
		},
	},
	"mimo": {
		of: "qwen2-untied", config: common("mimo", "MiMoForCausalLM", object{"rope_theta": 1e6, "num_nextn_predict_layers": 1, "attention_bias": true}), build: mimo,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rope_scaling": object{"type": "linear", "factor": 4}}, now("linear", 1e6, object{"factor": 4})},
			both(object{"rms_norm_eps": 0.1}),
			both(object{"tie_word_embeddings": true}),
			both(object{"num_key_value_heads": 1}),
			both(object{"head_dim": 24}),
			alike(plain[0], object{"head_dim": removed, "layer_types": removed}),
			alike(divided[1], object{"head_dim": removed, "layer_types": removed}),
			alike(divided[2], object{"head_dim": removed, "layer_types": removed}),
		},
	},
	"lfm2_audio": {
		of: "lfm2", config: lfm2Audio(), build: hearing,
		changes: [][2]object{
			{nil, nil},
			{{"lfm.rope_parameters.rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"lfm.norm_eps": 0.1}, {"norm_eps": 0.1}},
			{{"lfm.num_key_value_heads": 1}, {"num_key_value_heads": 1}},
			{{"lfm.layer_types": []string{"full_attention", "conv", "conv", "conv"}}, {"layer_types": []string{"full_attention", "conv", "conv", "conv"}}},
			{{"lfm.conv_L_cache": 4}, {"conv_L_cache": 4}},
		},
	},
	"llava_qwen2": {
		of: "qwen2-untied", config: common("llava_qwen2", "LlavaQwen2ForCausalLM", object{
			"rope_theta": 1e6, "mm_vision_tower": "mobileclip_l_128", "mm_hidden_size": 128, "mm_projector_type": "mlp2x_gelu", "image_aspect_ratio": "pad",
		}), build: fastVLM,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rope_scaling": object{"type": "linear", "factor": 4}}, now("linear", 1e6, object{"factor": 4})},
			both(object{"rms_norm_eps": 0.1}),
			both(object{"tie_word_embeddings": true}),
			both(object{"num_key_value_heads": 1}),
			both(object{"num_key_value_heads": 4}),
		},
	},
	"minicpmv": {
		of: "qwen2-untied", config: common("minicpmv", "MiniCPMV", object{
			"rope_theta": 1e6, "version": 2.6, "vision_config": object{
				"hidden_size": 16, "image_size": 1960, "intermediate_size": 40, "num_attention_heads": 2, "num_hidden_layers": 2, "patch_size": 28,
			},
		}), build: miniCPMV,
		changes: [][2]object{
			{nil, nil},
			{{"rope_theta": 300}, {"rope_parameters.rope_theta": 300}},
			{{"rope_scaling": object{"type": "linear", "factor": 4}}, now("linear", 1e6, object{"factor": 4})},
			both(object{"rms_norm_eps": 0.1}),
			both(object{"tie_word_embeddings": true}),
			both(object{"num_key_value_heads": 1}),
			both(object{"num_key_value_heads": 4}),
		},
	},
	"chatglm": {
		of: "glm", config: chatGLMConfig, build: chatGLM,
		changes: [][2]object{
			{nil, nil},
			{{"rope_ratio": 0.03}, {"rope_parameters.rope_theta": 300}},
			{{"rope_ratio": 50}, {"rope_parameters.rope_theta": 500000}},
			{{"add_qkv_bias": false}, {"attention_bias": false}},
			{{"multi_query_group_num": 4}, {"num_key_value_heads": 4}},
			{{"multi_query_group_num": 1}, {"num_key_value_heads": 1}},
			{{"layernorm_epsilon": 0.1}, {"rms_norm_eps": 0.1}},
			{{"kv_channels": 24}, {"head_dim": 24}},
			{
				{"num_attention_heads": 6, "multi_query_group_num": 3, "kv_channels": 12, "hidden_size": 48, "num_layers": 1, "padded_vocab_size": 321},
				{"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 12, "hidden_size": 48, "num_hidden_layers": 1, "vocab_size": 321},
			},
			{
				{"num_attention_heads": 3, "multi_query_group_num": 1, "kv_channels": 80, "hidden_size": 72, "num_layers": 2, "ffn_hidden_size": 100},
				{"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 80, "hidden_size": 72, "num_hidden_layers": 2, "intermediate_size": 100},
			},
			{
				{"num_attention_heads": 8, "multi_query_group_num": 8, "kv_channels": 64, "hidden_size": 96, "num_layers": 5},
				{"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 96, "num_hidden_layers": 5},
			},
		},
	},
}

// alike is the same change of both, and one more of the twin's.
func alike(change, theirs object) [2]object {
	ours := maps.Clone(change)
	delete(ours, "head_dim")
	return [2]object{ours, merged(change, theirs)}
}

// pair is the same change of both, with more of each.
func pair(change, ours, theirs object) [2]object {
	return [2]object{merged(change, ours), merged(change, theirs)}
}

// common are keys that are like those of Llama.
func common(modelType, architecture string, more object) object {
	return merged(object{
		"model_type": modelType, "architectures": []string{architecture}, "hidden_act": "silu", "hidden_size": 64,
		"intermediate_size": 160, "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
		"num_key_value_heads": 2, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "vocab_size": 320,
	}, more)
}

var exaoneRope = object{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}

var chatGLMConfig = object{
	"model_type": "chatglm", "architectures": []string{"ChatGLMModel"}, "hidden_size": 64, "padded_vocab_size": 320,
	"vocab_size": 320, "seq_length": 512, "num_layers": 3, "ffn_hidden_size": 160, "kv_channels": 16,
	"num_attention_heads": 4, "multi_query_attention": true, "multi_query_group_num": 2, "layernorm_epsilon": 1e-6,
	"add_qkv_bias": true, "add_bias_linear": false, "rmsnorm": true, "original_rope": true, "post_layer_norm": true,
}

// TestTwins: model types that transformers does not have compute what their twins do.
func TestTwins(t *testing.T) {
	for modelType, w := range twins {
		t.Run(modelType, func(t *testing.T) {
			t.Parallel()
			if a := do(t, job{Defaults: modelType}); a.Error == "" {
				t.Error("transformers has it")
			}
			var plain []float32
			for i, change := range w.changes {
				t.Run(text(change[0]), func(t *testing.T) {
					logits := w.run(t, change)
					if i == 0 {
						plain = logits
					} else if _, changed := divergence(plain, logits[:min(len(logits),
						len(plain))], len(plain)/120); len(plain) == len(logits) && changed <= plainBound.worst {
						t.Errorf("nothing changes (%.2g nats)", changed)
					}
				})
			}
		})
	}
}

// run compares a change with that of the twin, of the same random weights every time, and returns the logits.
func (w twin) run(t *testing.T, change [2]object) []float32 {
	t.Helper()
	c := testdata(t, w.of)
	their := c.run(t, merged(w.theirs, change[1]), 1)
	their.wantEqual(t)
	want := readFloats(t, filepath.Join(their.dir, "logits"))
	src, err := safetensors.OpenDir(their.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	config := edited(w.config, change[0])
	heads, _ := config["num_attention_heads"].(int) // of a flat config
	b := &twinBuilder{t: t, src: src, heads: heads}
	w.build(b)
	if w.logits != nil {
		w.logits(b, want)
	}
	dir := t.TempDir()
	if err := packed.Write(dir, b.out); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	ids := c.within(edited(c.config, merged(w.theirs, change[1])))
	got, bound, err := compute(t, dir, text, ids)
	if err != nil {
		t.Fatal(err)
	}
	if mean, worst := divergence(want, got, len(want)/tokens(ids)); !(mean <= bound.mean && worst <= bound.worst) {
		t.Errorf("%.2g nats from the twin, %.2g at the worst position", mean, worst)
	}
	return got
}

// twinBuilder makes the tensors of one checkpoint from those of another.
type twinBuilder struct {
	t     *testing.T
	src   *safetensors.Checkpoint
	heads int
	out   []packed.Tensor
}

// has reports whether there is a tensor.
func (b *twinBuilder) has(name string) bool {
	return slices.ContainsFunc(b.src.Tensors(), func(i tensor.Info) bool { return i.Name == name })
}

// rows are the rows of tensors, one tensor behind the other.
func (b *twinBuilder) rows(names ...string) (rows [][]byte) {
	for _, name := range names {
		raw := read(b.t, b.src, name)
		rows = append(rows, slices.Collect(slices.Chunk(raw, len(raw)/int(b.info(name).Shape[0])))...)
	}
	return rows
}

func (b *twinBuilder) info(name string) tensor.Info {
	i := slices.IndexFunc(b.src.Tensors(), func(i tensor.Info) bool { return i.Name == name })
	if i < 0 {
		b.t.Fatal("no tensor ", name)
	}
	return b.src.Tensors()[i]
}

// put adds a tensor of rows like those of the tensor called like.
func (b *twinBuilder) put(name, like string, rows [][]byte) {
	info := b.info(like)
	info.Name, info.Shape = name, slices.Clone(info.Shape)
	info.Shape[0] = int64(len(rows))
	b.out = append(b.out, packed.Tensor{Info: info, Data: slices.Concat(rows...)})
}

// rename adds every tensor whose name has one of the parts, with the part replaced.
func (b *twinBuilder) rename(parts ...string) {
	for _, info := range b.src.Tensors() {
		for i := 0; i < len(parts); i += 2 {
			if strings.Contains(info.Name, parts[i]) {
				b.put(strings.Replace(info.Name, parts[i], parts[i+1], 1), info.Name, b.rows(info.Name))
				break
			}
		}
	}
}

// layers calls f with the prefix of every layer's attention and the kinds of tensors that its projections have.
func (b *twinBuilder) layers(f func(p string, kinds []string)) {
	for _, info := range b.src.Tensors() {
		if p, ok := strings.CutSuffix(info.Name, "q_proj.weight"); ok {
			kinds := []string{".weight"}
			if b.has(p + "q_proj.bias") {
				kinds = append(kinds, ".bias")
			}
			f(p, kinds)
		}
	}
}

func asItIs(b *twinBuilder) { b.rename("model.", "model.", "lm_head.", "lm_head.") }

func internLM2(b *twinBuilder) {
	names := []string{
		"embed_tokens", "tok_embeddings", "model.norm", "model.norm", "lm_head", "output", "self_attn.o_proj", "attention.wo", "mlp.gate_proj", "feed_forward.w1",
		"mlp.up_proj", "feed_forward.w3", "mlp.down_proj", "feed_forward.w2", "input_layernorm", "attention_norm", "post_attention_layernorm", "ffn_norm",
	}
	b.rename(names...)
	b.layers(func(p string, kinds []string) {
		for _, kind := range kinds {
			q, k, v := b.rows(p+"q_proj"+kind), b.rows(p+"k_proj"+kind), b.rows(p+"v_proj"+kind)
			dim := len(q) / b.heads
			var rows [][]byte
			for g := range len(k) / dim {
				per := len(q) / (len(k) / dim)
				rows = slices.Concat(rows, q[g*per:(g+1)*per], k[g*dim:(g+1)*dim], v[g*dim:(g+1)*dim])
			}
			b.put(strings.Replace(p, "self_attn.", "attention.", 1)+"wqkv"+kind, p+"q_proj"+kind, rows)
		}
	})
}

func baichuan(b *twinBuilder) {
	b.rename("embed_tokens", "embed_tokens", "norm", "norm", "lm_head", "lm_head", "o_proj", "o_proj", "mlp.", "mlp.")
	b.layers(func(p string, _ []string) {
		b.put(p+"W_pack.weight", p+"q_proj.weight", b.rows(p+"q_proj.weight", p+"k_proj.weight", p+"v_proj.weight"))
	})
}

func chatGLM(b *twinBuilder) {
	names := []string{
		"model.embed_tokens", "transformer.embedding.word_embeddings", "model.norm", "transformer.encoder.final_layernorm",
		"lm_head", "transformer.output_layer", "self_attn.o_proj", "self_attention.dense", "mlp.gate_up_proj", "mlp.dense_h_to_4h",
		"mlp.down_proj", "mlp.dense_4h_to_h", "layernorm", "layernorm",
	}
	b.rename(names...)
	b.layers(func(p string, kinds []string) {
		for _, kind := range kinds {
			b.put(strings.Replace(p, "self_attn.", "self_attention.", 1)+"query_key_value"+kind, p+"q_proj"+kind,
				b.rows(p+"q_proj"+kind, p+"k_proj"+kind, p+"v_proj"+kind))
		}
	})
	for i := range b.out {
		b.out[i].Name = strings.Replace(b.out[i].Name, "model.layers.", "transformer.encoder.layers.", 1)
	}
}

func exaone(b *twinBuilder) {
	b.rename("embed_tokens", "embed_tokens", "model.norm", "model.norm", "lm_head", "lm_head", "_proj", "_proj", "layernorm", "layernorm")
	names := strings.NewReplacer(
		"model.embed_tokens", "transformer.wte", "model.norm", "transformer.ln_f", "model.layers", "transformer.h", "self_attn.o_proj", "attn.attention.out_proj",
		"self_attn", "attn.attention", "mlp.gate_proj", "mlp.c_fc_0", "mlp.up_proj", "mlp.c_fc_1", "mlp.down_proj", "mlp.c_proj", "input_layernorm", "ln_1",
		"post_attention_layernorm", "ln_2",
	)
	for i := range b.out {
		b.out[i].Name = names.Replace(b.out[i].Name)
	}
}

func mimo(b *twinBuilder) {
	asItIs(b)
	for _, name := range []string{"token_layernorm", "hidden_layernorm", "final_layernorm"} {
		b.put("model.mtp_layers.0."+name+".weight", "model.norm.weight", b.rows("model.norm.weight"))
	}
	b.rename("model.layers.0.", "model.mtp_layers.0.")
}

// fastVLM adds the tower of a checkpoint to the text model, which no picture is shown to, and a projector to rows of its width.
func fastVLM(b *twinBuilder) {
	asItIs(b)
	b.join("llava_qwen2", "model.vision_tower.", "model.mm_projector.", 32)
}

// miniCPMV does so with other names of the text model.
func miniCPMV(b *twinBuilder) {
	b.rename("model.", "llm.model.", "lm_head", "llm.lm_head")
	b.join("minicpmv", "vpm.", "resampler.", 128)
}

// lfm2Audio is the config of a checkpoint with the text model of another.
func lfm2Audio() object {
	config := under("lfm2", "lfm2")
	whole := object{}
	b, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "arch", "testdata", "lfm2_audio", "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &whole)
	}
	if err != nil {
		panic(err)
	}
	whole["lfm"] = config
	return whole
}

// hearing adds the encoder of sound of a checkpoint to the text model, which hears no clip, and an MLP to rows of its width.
func hearing(b *twinBuilder) {
	b.rename("model.", "lfm.")
	b.join("lfm2_audio", "conformer.", "audio_adapter.", 32)
}

// join adds the tower of a checkpoint of pipeline/arch/testdata, and zeros for its projector, whose rows there have old elements, for rows of
// the text model's width.
func (b *twinBuilder) join(of, tower, projector string, old int64) {
	src, err := safetensors.OpenDir(filepath.Join("..", "..", "pipeline", "arch", "testdata", of))
	if err != nil {
		b.t.Fatal(err)
	}
	defer src.Close()
	width := b.info("model.embed_tokens.weight").Shape[1]
	for _, info := range src.Tensors() {
		switch {
		case strings.HasPrefix(info.Name, tower):
			b.out = append(b.out, packed.Tensor{Info: info, Data: read(b.t, src, info.Name)})
		case strings.HasPrefix(info.Name, projector):
			info.Shape = slices.Clone(info.Shape)
			for i, n := range info.Shape {
				if n == old || n == 3*old { // three matrices may be one
					info.Shape[i] = n / old * width
				}
			}
			n, err := info.Shape.Elements()
			if err != nil {
				b.t.Fatal(err)
			}
			info.Size = n * info.DType.Size()
			b.out = append(b.out, packed.Tensor{Info: info, Data: make([]byte, info.Size)})
		}
	}
}

func bailingMoe(b *twinBuilder) {
	b.rename("model.embed_tokens", "model.word_embeddings", "model.norm", "model.norm", "lm_head", "lm_head", "self_attn.o_proj", "attention.dense",
		"block_sparse_moe.router.layer", "mlp.gate", "shared_mlp.output_linear", "mlp.shared_experts.down_proj", "layernorm", "layernorm")
	halves := func(name string, cut func(part string) string) {
		rows := b.rows(name)
		b.put(cut("gate_proj"), name, rows[:len(rows)/2])
		b.put(cut("up_proj"), name, rows[len(rows)/2:])
	}
	for _, info := range b.src.Tensors() {
		p, ok := strings.CutSuffix(info.Name, "self_attn.q_proj.weight")
		if !ok {
			continue
		}
		a := p + "self_attn."
		b.put(p+"attention.query_key_value.weight", info.Name, b.rows(a+"q_proj.weight", a+"k_proj.weight", a+"v_proj.weight"))
		halves(p+"shared_mlp.input_linear.weight", func(part string) string { return p + "mlp.shared_experts." + part + ".weight" })
		for _, stacked := range []string{"input", "output"} {
			whole := b.info(p + "block_sparse_moe." + stacked + "_linear.weight")
			for j, data := range b.rows(whole.Name) {
				q := fmt.Sprintf("%smlp.experts.%d.", p, j)
				parts := []string{"down_proj"}
				if stacked == "input" {
					parts = []string{"gate_proj", "up_proj"}
				}
				for k, part := range parts {
					one := tensor.Info{
						Name: q + part + ".weight", DType: whole.DType, Shape: tensor.Shape{whole.Shape[1] / int64(len(parts)), whole.Shape[2]},
					}
					n := len(data) / len(parts)
					b.out = append(b.out, packed.Tensor{Info: one, Data: data[k*n : (k+1)*n]})
				}
			}
		}
	}
}

// unitRows divides logits by the lengths of the head's rows.
func unitRows(b *twinBuilder, logits []float32) {
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
}
