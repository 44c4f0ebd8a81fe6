package arch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// describeKeys describes a model by its keys, without looking at the shapes of tensors.
func describeKeys(t testing.TB, config []byte, ck checkpoint, ignore ...string) (*Decoder, error) {
	t.Helper()
	m, err := describeModel(t, config, ck, ignore...)
	if err != nil {
		return nil, err
	}
	return m.Text, nil
}

// describeModel is describeKeys with the towers.
func describeModel(t testing.TB, config []byte, ck checkpoint, ignore ...string) (*Model, error) {
	t.Helper()
	c, err := ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c.ignore(ignore)
	f, _, ok := pickFamily(c)
	if !ok {
		t.Fatal(c.problems)
	}
	c.know(f.modelType, tensor.ByName(ck.tensors))
	d, err := f.describe(c)
	return &Model{Text: d, Towers: c.towers, Ear: c.ear}, err
}

// traits are what a change of a key may change, one word each.
func traits(d *Decoder) map[string]string {
	f := map[string]string{
		"eps": fmt.Sprint(d.FinalNorm.Eps), "tied": fmt.Sprint(d.Tied), "positions": fmt.Sprint(d.MaxPositions),
		"embedding": fmt.Sprintf("%.4g", d.EmbeddingScale), "cap": fmt.Sprint(d.LogitCap), "logits": fmt.Sprintf("%.4g", d.LogitScale),
		"headbias": fmt.Sprint(d.Head.Bias.Tensor != ""),
	}
	if d.Positions.Tensor != "" {
		f["learned"] = fmt.Sprint(d.Positions.Rows, " from ", d.FirstPosition)
	}
	if len(d.Ropes) > 0 {
		r := d.Ropes[0]
		f["rope"] = fmt.Sprintf("%s %d %.4g %.4g", r.Type, r.Dim, r.InvFreq[1], r.InvFreq[len(r.InvFreq)-1])
	}
	list := func(name string, v any) { f[name] = strings.TrimSpace(f[name] + " " + fmt.Sprint(v)) }
	for i, layer := range d.Layers {
		shape := ""
		for _, b := range layer {
			if b.Parallel {
				shape += "|"
			}
			shape += strings.TrimPrefix(fmt.Sprintf("%T", b.Block), "*arch.")[:2]
			if b.PostNorm != nil {
				list("behind", i)
			}
			if i == 0 {
				list("scales", fmt.Sprintf("%.4g", b.Scale))
				b.Block.linears(func(name string, l *Linear) {
					if l.Bias.Tensor != "" && !strings.Contains(name, "experts.") {
						list("biases", name[strings.LastIndexByte(name, '.')+1:])
					}
				})
			}
			switch x := b.Block.(type) {
			case *Attention:
				list("windows", x.Window+x.Chunk)
				list("turns", x.Rope != nil)
				if x.V.Weight.Tensor == "" {
					list("values", i)
				}
				if f["attention"] == "" {
					f["attention"] = fmt.Sprintf("%d/%d of %d, %.4g, %d slopes, temperature %v", x.Heads, x.KVHeads, x.HeadDim, x.Scale, len(x.Slopes), x.Temperature != nil)
					if x.QNorm != nil {
						f["qnorm"] = fmt.Sprint(x.QNorm.Gamma.Rows, x.NormAfter) + flag(fmt.Sprint(" in ", x.QNorm.Parts), x.QNorm.Parts > 0)
					}
					if x.Clip != 0 {
						f["clip"] = fmt.Sprint(x.Clip)
					}
				}
				if x.Temperature != nil {
					f["temperature"] = fmt.Sprint(*x.Temperature)
				}
			case *LatentAttention:
				f["attention"] = fmt.Sprintf("%d of %d+%d, %d, ranks %d %d, %.4g", x.Heads, x.NopeDim, x.RopeDim, x.ValueDim, x.QRank, x.KVRank, x.Scale)
			case *MLP:
				f["mlp"] = fmt.Sprint(x.Intermediate, " ", x.Activation)
				if x.GateScale != 0 {
					f["gate"] = fmt.Sprint(x.GateScale)
				}
			case *Experts:
				scoring := string(x.Scoring)
				if x.Near != 0 {
					scoring += fmt.Sprintf(" within %g", x.Near)
				}
				f["experts"] = fmt.Sprintf("%d of %d, %s, %t, %.4g, %d/%d", x.TopK, len(x.Experts), scoring, x.Normalize, x.Scale, x.TopGroups, x.Groups)
				if x.Shared != nil {
					f["shared"] = fmt.Sprint(x.Shared.Intermediate)
				}
			case *Mamba2:
				f["mamba"] = fmt.Sprintf("%d of %d, %d groups of %d, %d taps, %v to %v, %t", x.Heads, x.HeadDim, x.Groups, x.State, len(x.Taps),
					x.TimeMin, x.TimeMax, x.Norm != nil)
				f["mambascales"] = fmt.Sprintf("%.4g", x.Scales)
				f["convbias"] = fmt.Sprint(x.ConvBias.Tensor != "")
			}
		}
		list("blocks", shape)
	}
	f["unit"] = fmt.Sprint(slices.ContainsFunc(d.Views, func(v View) bool { return v.Map == UnitRows }))
	for _, v := range d.Views {
		for _, r := range v.Runs {
			if r.Scale != 0 && r.Scale != 1 && strings.Contains(v.Name, "layers.0.") {
				list("rows", fmt.Sprintf("%.4g", r.Scale))
			}
		}
	}
	return f
}

// change is a change of keys.
type change struct {
	keys map[string]any
	want string // the traits that change and their new values, or after "!" the refusal
}

// TestDescribeChanges changes one key at a time: either the description changes, in the right place and nowhere else, or the
// key is refused by name.
func TestDescribeChanges(t *testing.T) {
	for base, changes := range describeChanges() {
		testChanges(t, base, loadCheckpoint(t, filepath.Join("testdata", base)), changes)
	}
}

// describeChanges are the changes by checkpoint of testdata.
func describeChanges() map[string][]change {
	type object = map[string]any
	rope := func(m object) object { return object{"rope_parameters": m} }
	theta := func(base float64) object { return rope(object{"rope_type": "default", "rope_theta": base}) }
	half := rope(object{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})
	types := func(full string, words ...string) []any {
		var out []any
		for _, c := range full {
			out = append(out, words[strings.IndexRune("fsc", c)])
		}
		return out
	}
	kinds := func(s string) []any { return types(s, "full_attention", "sliding_attention", "chunked_attention") }
	return map[string][]change{
		"apertus": {
			{object{"rms_norm_eps": 1e-3}, "eps=0.001"},
			{object{"hidden_act": "silu"}, `!hidden_act: "silu"`},
			{theta(1e4), "rope=default 16 0.3162 0.0003162"},
			{object{"rope_parameters": removed}, "rope=llama3 16 0.1303 7.991e-08"},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"qk_norm": false}, "!qk_norm: false"},
			{object{"post_norm": true}, "!post_norm: true"},
			{object{"mlp_bias": true}, "!mlp_bias: true"},
			{object{"tie_word_embeddings": true}, "tied=true"},
		},
		"arcee": {
			{object{"rms_norm_eps": removed}, "eps=1e-05"},
			{object{"hidden_act": "silu"}, `!hidden_act: "silu"`},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"mlp_bias": true}, "biases=up down"},
			{theta(1e6), "rope=default 16 0.1778 5.623e-06"},
			{half, "!rope_parameters.partial_rotary_factor: 0.5"},
			{object{"tie_word_embeddings": true}, "tied=true"},
		},
		"bailing_moe": {
			{object{"norm_topk_prob": false}, "experts=3 of 5, softmax, false, 0, 0/0"},
			{object{"num_experts_per_tok": 1}, "experts=1 of 5, softmax, false, 0, 0/0"},
			{object{"num_experts_per_tok": 6}, "!num_experts_per_tok: 6 of 5 experts"},
			{object{"num_experts_per_tok": removed}, "!num_experts_per_tok: missing"},
			{object{"num_experts": removed}, "!num_experts: missing"},
			{object{"num_shared_experts": 1}, "shared=16"},
			{object{"num_shared_experts": 0}, "shared="},
			{object{"first_k_dense_replace": 2}, "blocks=AtML AtML; experts=; shared="},
			{object{"use_qkv_bias": false}, "biases="},
			{object{"use_bias": true}, "!use_bias: true, the default, is not supported"},
			{object{"use_bias": removed}, "!use_bias: true, the default, is not supported"},
			{object{"norm_head": true}, "!norm_head: true is not supported, only false"},
			{object{"norm_softmax": true, "embedding_dropout": 0.5}, ""},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
			{object{"score_function": "sigmoid"}, "!score_function: unknown to family bailing_moe"},
			{object{"rope_scaling": object{"type": "dynamic", "factor": 4}}, "rope=dynamic 8 0.1 0.001"},
		},
		"axk1": {
			{object{"mlp_layer_types": []string{"sparse", "dense"}}, "!missing: model.layers.0.mlp.experts.0.gate_proj.weight"},
			{object{"mlp_layer_types": removed, "first_k_dense_replace": 0, "moe_layer_freq": 2}, "!missing: model.layers.0.mlp.experts.0.gate_proj.weight"},
			{object{"mlp_layer_types": removed, "first_k_dense_replace": 2}, "behind=; blocks=LaML LaML; experts=; shared="},
			{object{"mlp_layer_types": removed}, ""},
			{object{"first_k_dense_replace": 2, "moe_layer_freq": 2}, ""},
			{object{"mlp_layer_types": []string{"dense"}}, "!mlp_layer_types: 1 entries for 2 layers"},
			{object{"q_lora_rank": nil}, "!q_lora_rank: null"},
			{object{"q_lora_rank": 20}, "attention=4 of 8+8, 8, ranks 20 16, 0.3648"},
			{object{"n_group": 1, "topk_group": 1}, "experts=2 of 6, sigmoid, true, 2.5, 0/0"},
			{object{"routed_scaling_factor": 1}, "experts=2 of 6, sigmoid, true, 0, 2/3"},
			{object{"rms_norm_eps": 1e-3}, "eps=0.001"},
			{object{"topk_method": "greedy"}, `!topk_method: "greedy"`},
			{object{"head_dim": 16}, "!head_dim: 16 is not supported, only 8"},
		},
		"bamba": {
			{object{"attn_layer_indices": []int{0, 3}}, "blocks=AtML MaML MaML AtML; turns=true true; windows=0 0"},
			{object{"attn_layer_indices": []int{4}}, "!attn_layer_indices: 4 of 4 layers"},
			{object{"mamba_n_groups": 2}, "mamba=8 of 16, 2 groups of 16, 4 taps, 0 to +Inf, true"},
			{object{"mamba_d_state": 8}, "mamba=8 of 16, 1 groups of 8, 4 taps, 0 to +Inf, true"},
			{object{"mamba_n_groups": 3}, "!mamba_n_heads: 128 elements in 8 heads in 3 groups"},
			{object{"mamba_d_head": 32}, "!mamba_d_head: 32 contradicts"},
			{object{"time_step_limit": []float64{0.25, 4}}, "mamba=8 of 16, 1 groups of 16, 4 taps, 0.25 to 4, true"},
			{object{"time_step_limit": []float64{4, 0.25}}, "!time_step_limit: is not"},
			{object{"mamba_conv_bias": false}, "convbias=false"},
			{object{"mamba_proj_bias": true}, "biases=z xbc dt out"},
			{object{"mlp_bias": true}, "biases=gate up down"},
			{object{"attn_rotary_emb": 16}, "!attn_rotary_emb: 16 contradicts"},
			{object{"rope_parameters": removed, "rope_theta": 1e4}, ""},
			{object{"rope_parameters": removed, "partial_rotary_factor": 0.25}, "!partial_rotary_factor: 0.25 is not supported, only 0.5"},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
		},
		"bitnet": {
			{object{"rms_norm_eps": 1e-3}, "eps=0.001"},
			{object{"hidden_act": "silu"}, `!hidden_act: "silu"`},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"rope_parameters": removed}, "rope=default 16 0.1939 1.031e-05"},
			{object{"quantization_config": object{"quant_method": "bitnet"}}, "!quantization_config: an object"},
			{object{"auto_map": object{"AutoConfig": "configuration_bitnet.BitNetConfig"}}, ""},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_bitnet.OtherForCausalLM"}},
				"!auto_map.AutoModelForCausalLM: \"modeling_bitnet.OtherForCausalLM\""},
			{object{"tie_word_embeddings": true}, "tied=true"},
		},
		"bloom": {
			{object{"layer_norm_epsilon": 1e-3}, "eps=0.001"},
			{object{"apply_residual_connection_post_layernorm": true}, "!apply_residual_connection_post_layernorm: true"},
			{object{"n_head": 2}, "attention=2/2 of 32, 0, 2 slopes, temperature false"},
			{object{"n_head": 5}, "!n_head: hidden_size 64 is not divisible"},
			{object{"num_attention_heads": 8}, "!num_attention_heads: 8 contradicts n_head 4"},
			{object{"n_layer": removed, "num_hidden_layers": 2}, "blocks=AtML AtML; turns=false false; windows=0 0"},
			{object{"n_inner": 160}, "!n_inner: 160"},
			{object{"n_embed": 32}, "!hidden_size: 64 contradicts n_embed 32"},
			{object{"seq_length": 1024, "max_position_embeddings": removed}, "positions=1024"},
			{object{"tie_word_embeddings": false}, "tied=false"},
			{object{"clip_qkv": 8}, "!clip_qkv: unknown to family bloom"},
		},
		"cohere": {
			{object{"layer_norm_eps": 1e-3}, "eps=0.001"},
			{object{"logit_scale": 0.5}, "logits=0.5"},
			{object{"logit_scale": removed}, ""},
			{object{"use_qk_norm": true}, "qnorm=64 false in 4"},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"rope_parameters": removed}, "rope=default 16 0.1939 1.031e-05"},
			{object{"tie_word_embeddings": removed}, ""},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
		},
		"cohere2": {
			{object{"logit_scale": removed}, "logits=0.0625"},
			{object{"use_qk_norm": true}, "!use_qk_norm: true"},
			{object{"sliding_window": 32}, "windows=32 32 32 0"},
			{object{"sliding_window": 0}, "!sliding_window: 0"},
			{object{"sliding_window": nil}, "!sliding_window: null"},
			{object{"layer_types": kinds("fsff")}, "turns=false true false false; windows=0 16 0 0"},
			{object{"layer_types": kinds("fs")}, "!layer_types: 2 entries for 4 layers"},
			{object{"layer_types": removed, "sliding_window_pattern": 2}, "turns=true false true false; windows=16 0 16 0"},
			{object{"layer_types": removed}, ""},
			{object{"layer_switch": 2}, "!layer_switch: 2 contradicts"},
			{object{"position_embedding_type": "nope"}, `!position_embedding_type: "nope"`},
			{object{"use_parallel_block": false}, "!use_parallel_block: false"},
			{object{"order_of_interleaved_layers": "global_attn_first"}, "!order_of_interleaved_layers"},
			{object{"rotary_pct": 0.5}, "!rotary_pct: 0.5 is not supported, only 1"},
		},
		"cwm": {
			{object{"sliding_window": 32}, "windows=0 32 32"},
			{object{"sliding_window": nil}, "!sliding_window: none, but layer 1 slides"},
			{object{"layer_types": removed}, ""},
			{object{"layer_types": kinds("sff")}, "windows=16 0 0"},
			{object{"mlp_bias": removed}, "biases="},
			{object{"attention_bias": true}, "!attention_bias: true"},
			{object{"rope_parameters": removed}, "rope=llama3 16 0.1778 3.515e-07"},
			{theta(1e4), "rope=default 16 0.3162 0.0003162"},
			{object{"rope_parameters": removed, "rope_theta": 300}, "!rope_theta: 300 contradicts"},
			{object{"head_dim": 32}, "attention=4/2 of 32, 0, 0 slopes, temperature false; rope=llama3 32 0.4217 1.482e-07"},
		},
		"dots1": {
			{object{"first_k_dense_replace": 2}, "blocks=AtML AtML AtEx"},
			{object{"norm_topk_prob": false}, "experts=2 of 8, sigmoid, false, 2.5, 1/1"},
			{object{"routed_scaling_factor": removed}, "experts=2 of 8, sigmoid, true, 0, 1/1"},
			{object{"n_group": 4, "topk_group": 2}, "experts=2 of 8, sigmoid, true, 2.5, 2/4"},
			{object{"n_group": 3}, "!n_group: 8 experts in 3 groups"},
			{object{"num_experts_per_tok": 9}, "!num_experts_per_tok: 9 of 8"},
			{object{"n_routed_experts": removed}, "!n_routed_experts: missing"},
			{object{"n_shared_experts": 2}, "shared=96"},
			{object{"scoring_func": "softmax"}, `!scoring_func: "softmax"`},
			{object{"sliding_window": 16, "layer_types": kinds("fsf")}, "windows=0 16 0"},
			{object{"sliding_window": 16, "layer_types": removed, "max_window_layers": 1}, "windows=0 16 16"},
			{object{"moe_layer_freq": 2}, "!moe_layer_freq: 2"},
		},
		"exaone": {
			{object{"layer_norm_epsilon": removed}, "eps=1e-05"},
			{object{"rms_norm_eps": 0.1}, "!rms_norm_eps: unknown to family exaone"},
			{object{"rope_scaling": nil}, "rope=default 8 0.03761 5.318e-05"},
			{object{"tie_word_embeddings": false}, "tied=false"},
			{object{"tie_word_embeddings": removed}, "!tie_word_embeddings: missing"},
			{object{"num_key_value_heads": removed}, "attention=4/4 of 8, 0, 0 slopes, temperature false"},
			{object{"head_dim": removed}, ""},
			{object{"num_hidden_layers": 2}, ""},
			{object{"num_hidden_layers": 3}, "!num_hidden_layers: 3 contradicts num_layers 2"},
			{object{"activation_function": "gelu"}, `!activation_function: "gelu" is not supported, only "silu"`},
		},
		"exaone4": {
			{object{"sliding_window": 32}, "windows=32 32 32 0"},
			{object{"sliding_window": 0}, "!sliding_window: 0"},
			{object{"sliding_window": nil, "layer_types": kinds("ffff")}, "turns=true true true true; windows=0 0 0 0"},
			{object{"sliding_window": nil}, "!sliding_window: none, but layer 0 slides"},
			{object{"layer_types": kinds("sfsf")}, "turns=true false true false; windows=16 0 16 0"},
			{object{"layer_types": removed, "sliding_window_pattern": 2}, "turns=true false true false; windows=16 0 16 0"},
			{object{"layer_types": removed, "sliding_window_pattern": "LLLG"}, `!sliding_window_pattern: "LLLG"`},
			{object{"sliding_window_pattern": "LLLG"}, ""},
			{object{"attention_bias": true}, "!attention_bias: unknown to family exaone4"},
			{object{"rms_norm_eps": removed}, "eps=1e-05"},
		},
		"falcon_h1": {
			{object{"embedding_multiplier": 2}, "embedding=2"},
			{object{"lm_head_multiplier": 2}, "logits=2"},
			{object{"key_multiplier": 1}, "attention=4/2 of 16, 0.1225, 0 slopes, temperature false"},
			{object{"attention_out_multiplier": 1}, "scales=0.6 0.7 0.7"},
			{object{"attention_in_multiplier": 1}, "attention=4/2 of 16, 0.15, 0 slopes, temperature false; scales=0.6 0.8 0.7"},
			{object{"ssm_out_multiplier": 0.5}, "scales=0.5 0.56 0.7"},
			{object{"ssm_in_multiplier": 1}, "mambascales=[0.9 0.8 1.1 0.7 1.3]"},
			{object{"ssm_multipliers": []float64{1, 1, 1, 1, 2}}, "mambascales=[1.2 1.2 1.2 1.2 2.4]"},
			{object{"ssm_multipliers": []float64{1}}, "!ssm_multipliers: 1 numbers, want 5"},
			{object{"mlp_multipliers": []float64{2, 3}}, "gate=2; scales=0.6 0.56 3"},
			{object{"mamba_rms_norm": true}, "!mamba_norm_before_gate: true"},
			{object{"mamba_rms_norm": true, "mamba_norm_before_gate": false}, "mamba=8 of 16, 1 groups of 16, 4 taps, 0 to +Inf, true"},
			{object{"attention_bias": true}, "!attention_in_multiplier: 0.7 is not supported together with attention_bias true"},
			{object{"mamba_d_ssm": 64}, "!mamba_d_head: 16 contradicts 64 elements in 8 heads"},
			{object{"attn_layer_indices": []int{1}}, "!attn_layer_indices: a list"},
		},
		"gpt2": {
			{object{"n_inner": nil}, "mlp=128 gelu_tanh"},
			{object{"n_inner": 64}, "mlp=64 gelu_tanh"},
			{object{"n_head": 2}, "attention=2/2 of 16, 0, 0 slopes, temperature false"},
			{object{"n_head": 3}, "!n_head: hidden_size 32 is not divisible by it"},
			{object{"n_positions": 64}, "learned=64 from 0; positions=64"},
			{object{"n_positions": removed, "max_position_embeddings": 64}, "learned=64 from 0; positions=64"},
			{object{"max_position_embeddings": 64}, "!max_position_embeddings: 64 contradicts n_positions 128"},
			{object{"hidden_size": 64}, "!hidden_size: 64 contradicts n_embd 32"},
			{object{"scale_attn_weights": false}, "attention=4/4 of 8, 1, 0 slopes, temperature false"},
			{object{"scale_attn_by_inverse_layer_idx": true}, "attention=4/4 of 8, 0.3536, 0 slopes, temperature false"},
			{object{"reorder_and_upcast_attn": true, "n_ctx": 64}, ""},
			{object{"layer_norm_epsilon": 0.1}, "eps=0.1"},
			{object{"activation_function": "relu"}, "mlp=48 relu"},
			{object{"activation_function": "gelu"}, "mlp=48 gelu"},
			{object{"activation_function": "tanh"}, `!activation_function: "tanh" is not supported, only "gelu" or`},
			{object{"add_cross_attention": true}, "!add_cross_attention: true is not supported"},
			{object{"tie_word_embeddings": false}, "tied=false"},
		},
		"gemma4_text": {
			{object{"per_layer_config": object{}}, "attention=4/2 of 8, 1, 0 slopes, temperature false; qnorm=8 false; rope=proportional 8 0 0"},
			{object{"per_layer_config": removed}, "attention=4/2 of 512, 1, 0 slopes, temperature false; qnorm=512 false; rope=proportional 512 0.9475 0"},
			{object{"per_layer_config": removed, "global_head_dim": 24, "num_global_key_value_heads": 1},
				"attention=4/1 of 24, 1, 0 slopes, temperature false; qnorm=24 false; rope=proportional 24 0.3162 0"},
			{object{"per_layer_config": removed, "global_head_dim": 32, "num_global_key_value_heads": 3}, "!num_global_key_value_heads: 4 heads cannot share 3"},
			{object{"per_layer_config": removed, "global_head_dim": nil}, "!global_head_dim: null"},
			{object{"global_head_dim": 32}, "!global_head_dim: is not supported together with per_layer_config"},
			{object{"per_layer_config": object{"0": object{"sliding_window": 8}}}, "!per_layer_config.0.sliding_window: unknown key"},
			{object{"attention_k_eq_v": false}, "values="},
			{object{"attention_bias": true}, "biases=q k o"},
			{object{"layer_types": kinds("sff"), "per_layer_config": object{}},
				"attention=4/2 of 8, 1, 0 slopes, temperature false; qnorm=8 false; rope=proportional 8 0 0; values=1 2; windows=16 0 0"},
			{object{"sliding_window": 32}, "windows=0 32 0"},
			{object{"final_logit_softcapping": removed}, "cap=0"},
			{object{"final_logit_softcapping": 30}, "cap=30"},
			{object{"hidden_size_per_layer_input": 256}, "!vocab_size_per_layer_input: 262144 is not supported, only the 320 of vocab_size"},
			{object{"num_kv_shared_layers": 2}, "!num_kv_shared_layers: 2 is not supported without hidden_size_per_layer_input"},
			{object{"use_bidirectional_attention": "all"}, `!use_bidirectional_attention: "all"`},
			{object{"use_bidirectional_attention": "vision"}, ""},
			{object{"rope_parameters": object{"full_attention": object{"rope_type": "proportional", "rope_theta": 1e4}}}, "!rope_parameters.sliding_attention: missing"},
			{object{"rope_theta": 1e4}, "!rope_theta: unknown to family gemma4_text"},
			{object{"enable_moe_block": true}, "!num_experts: null is not allowed"},
		},
		"gemma4_text-moe": {
			{object{"top_k_experts": 5}, "!top_k_experts: 5 of 3 experts"},
			{object{"moe_intermediate_size": 8}, "!wrong shape: model.layers.0.experts.gate_up_proj"},
			{object{"num_experts": 5}, "!wrong shape: model.layers.0.experts.gate_up_proj"},
			{object{"enable_moe_block": false}, "blocks=AtML AtML; mlp=32 gelu_tanh; rows="},
		},
		"glm4_moe_lite": {
			{object{"mlp_layer_types": removed}, ""},
			{object{"mlp_layer_types": []string{"sparse", "sparse"}}, "!missing: model.layers.0.mlp.experts.0.gate_proj.weight"},
			{object{"mlp_layer_types": []string{"dense", "dense"}}, "blocks=LaML LaML; experts=; shared="},
			{object{"mlp_layer_types": []string{"dense"}}, "!mlp_layer_types: 1 entries for 2 layers"},
			{object{"first_k_dense_replace": 1}, ""},
			{object{"first_k_dense_replace": 2}, "!first_k_dense_replace: 2 is not supported, only 1"},
			{object{"routed_scaling_factor": 1}, "experts=2 of 4, sigmoid, true, 0, 0/0"},
			{object{"norm_topk_prob": false}, "experts=2 of 4, sigmoid, false, 1.8, 0/0"},
			{object{"n_shared_experts": 2}, "shared=32"},
			{object{"q_lora_rank": nil}, "attention=2 of 12+8, 16, ranks 0 20, 0.2236"},
			{object{"head_dim": 16}, "!head_dim: 16 is not supported, only 8"},
			{object{"partial_rotary_factor": 0.5}, "!partial_rotary_factor: 0.5"},
			{rope(object{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4, "mscale": 1, "mscale_all_dim": 1}),
				"attention=2 of 12+8, 16, ranks 24 20, 0.2899; rope=yarn 8 0.01976 7.906e-06"},
		},
		"gpt_neox": {
			{object{"use_parallel_residual": false}, "blocks=AtML AtML AtML"},
			{object{"layer_norm_eps": 1e-3}, "eps=0.001"},
			{object{"hidden_act": "gelu_fast"}, "mlp=160 gelu_tanh"},
			{object{"hidden_act": "relu"}, `!hidden_act: "relu"`},
			{object{"attention_bias": false}, "biases=up down"},
			{object{"rope_parameters": removed, "rotary_pct": 0.5, "rotary_emb_base": 10000}, "rope=default 8 0.1 0.001"},
			{object{"rope_parameters": removed, "rotary_emb_base": 1e6}, "rope=default 4 0.001 0.001"},
			{object{"rotary_emb_base": 1e6}, "!rotary_emb_base: 1e+06 contradicts"},
			{object{"rope_parameters": removed, "rope_theta": 1e6}, "!rope_theta: 1000000 is not supported, only 10000"},
			{object{"rope_parameters": removed, "partial_rotary_factor": 0.5}, "!partial_rotary_factor: 0.5 is not supported, only 0.25"},
			{object{"head_dim": 32}, "!head_dim: 32 is not hidden_size / num_attention_heads"},
		},
		"helium": {
			{object{"rms_norm_eps": removed}, "eps=1e-08"},
			{object{"head_dim": removed}, "attention=4/2 of 128, 0, 0 slopes, temperature false; rope=default 128 0.866 0.0001155"},
			{object{"attention_bias": true}, "biases=q k v"},
			{object{"mlp_bias": true}, "biases=gate up down"},
			{object{"rope_parameters": removed}, "rope=default 16 0.2371 4.217e-05"},
		},
		"granitemoeshared": {
			{object{"shared_intermediate_size": 40}, "shared=40"},
			{object{"shared_intermediate_size": 0}, "shared="},
			{object{"shared_intermediate_size": removed}, "shared="},
			{object{"embedding_multiplier": removed}, "embedding=0"},
			{object{"logits_scaling": 2}, "logits=0.5"},
			{object{"residual_multiplier": 1}, "scales=0 0"},
			{object{"attention_multiplier": removed}, "attention=4/2 of 8, 1, 0 slopes, temperature false"},
			{object{"num_experts_per_tok": 5}, "!num_experts_per_tok: 5 of 4"},
			{object{"num_experts_per_tok": removed, "num_local_experts": 3}, "!wrong shape: model.layers.0.block_sparse_moe.input_linear.weight"},
			{object{"mlp_bias": true}, "!mlp_bias: unknown to family granitemoeshared"},
		},
		"hyperclovax": {
			{object{"use_post_norm": false}, "behind="},
			{object{"logits_scaling": 4}, "logits=4"},
			{object{"logits_scaling": removed}, "logits=0"},
			{object{"embedding_multiplier": removed}, "embedding=0"},
			{object{"residual_multiplier": removed}, "scales=0 0"},
			{object{"attention_multiplier": nil}, "attention=4/2 of 16, 0, 0 slopes, temperature false"},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"mlp_bias": true}, "biases=gate up down"},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_hyperclovax.HyperCLOVAXForCausalLM"}}, ""},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_hyperclovax.OtherForCausalLM"}}, "!auto_map.AutoModelForCausalLM"},
		},
		"internlm3": {
			{object{"attention_bias": true}, "biases=q k v"},
			{object{"qkv_bias": true, "attention_bias": removed}, "biases=q k v"},
			{object{"bias": true, "mlp_bias": removed}, "biases=o gate up down"},
			{object{"bias": true}, "!bias: true contradicts mlp_bias"},
			{object{"rope_scaling": object{"rope_type": "dynamic", "factor": 6}, "rope_parameters": removed}, "rope=dynamic 16 0.3162 0.0003162"},
			{object{"auto_map": object{"AutoModel": "modeling_internlm3.InternLM3Model"}}, ""},
			{object{"head_dim": removed}, "attention=4/2 of 128, 0, 0 slopes, temperature false; rope=default 128 0.866 0.0001155"},
		},
		"iquestcoder": {
			{object{"rms_norm_eps": removed}, "eps=1e-05"},
			{object{"head_dim": removed}, "attention=4/2 of 128, 0, 0 slopes, temperature false; rope=default 128 0.8146 2.455e-06"},
			{object{"head_dim": nil}, "attention=4/2 of 8, 0, 0 slopes, temperature false; rope=default 8 0.03761 5.318e-05"},
			{object{"attention_bias": removed}, "biases=gate up down"},
			{object{"mlp_bias": false}, "biases=q k v o"},
			{object{"clip_qkv": nil, "use_sliding_window": false, "sliding_window": 8}, ""},
			{object{"clip_qkv": 8}, "!clip_qkv: 8"},
			{object{"use_sliding_window": true}, "!use_sliding_window: true"},
			{object{"loop_num": 2}, "!loop_num: 2 is not supported, only 1"},
			{object{"loop_window_size": 64}, "!loop_window_size: 64"},
			{object{"architectures": []string{"IQuestLoopCoderForCausalLM"}},
				`!architectures: "IQuestLoopCoderForCausalLM" is not supported for model_type iquestcoder`},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_iquestcoder.IQuestCoderForCausalLM"}}, ""},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_x.OtherForCausalLM"}}, "!auto_map.AutoModelForCausalLM"},
		},
		"llama4_text": {
			{object{"attention_chunk_size": 32}, "windows=32 32 32 0"},
			{object{"attention_chunk_size": 0}, "!attention_chunk_size: 0"},
			{object{"layer_types": kinds("cfff")}, "windows=16 0 0 0"},
			{object{"layer_types": kinds("sfff")}, `!layer_types: "sliding_attention"`},
			{object{"no_rope_layers": []int{1, 0, 1, 1}}, "turns=true false true true"},
			{object{"no_rope_layers": []int{1}}, "!no_rope_layers: 1 entries for 4 layers"},
			{object{"no_rope_layers": []int{}, "layer_types": removed, "no_rope_layer_interval": 2}, "turns=true false true false; windows=16 0 16 0"},
			{object{"attn_temperature_tuning": false}, "temperature="},
			{object{"attn_temperature_tuning": 4}, ""},
			{object{"attn_scale": 0.2}, "temperature={8 0.2 1}"},
			{object{"floor_scale": 16}, "temperature={16 0.1 1}"},
			{object{"use_qk_norm": false}, "qnorm="},
			{object{"num_experts_per_tok": 2}, "!num_experts_per_tok: 2"},
			{object{"moe_layers": []int{3}}, "blocks=AtML AtML AtML AtEx"},
			{object{"moe_layers": removed, "interleave_moe_layer_step": 4}, "blocks=AtML AtML AtML AtEx"},
			{object{"intermediate_size_mlp": 112}, "mlp=112 silu"},
		},
		"mimo": {
			{object{"attention_bias": false}, "!attention_bias: false is not supported, only true"},
			{object{"num_nextn_predict_layers": removed}, ""},
			{object{"rope_theta": 300}, "!rope_theta: 300 contradicts"},
			{object{"tie_word_embeddings": false}, "tied=false"},
			{object{"rms_norm_eps": removed}, "!rms_norm_eps: missing"},
			{object{"use_mrope": true}, "!use_mrope: true is not supported"},
		},
		"llama4_text-dense": {
			{object{"moe_layers": removed}, "!interleave_moe_layer_step: 0, and there is no moe_layers"},
			{object{"num_experts_per_tok": 1}, ""},
			{object{"moe_layers": []int{1}}, "!num_experts_per_tok: 0 is not a positive number"},
			{object{"intermediate_size_mlp": 96}, "mlp=96 silu"},
			{object{"cache_implementation": "hybrid"}, ""},
			{object{"attn_temperature_tuning": true}, ""},
			{object{"attn_temperature_tuning": true, "no_rope_layers": []int{1, 0}},
				"temperature={8192 0.1 1}; turns=true false"},
		},
		"minicpm3": {
			{object{"scale_emb": 2}, "embedding=2"},
			{object{"scale_depth": 3}, "scales=1.732 1.732"},
			{object{"scale_depth": nil}, "scales=0 0"},
			{object{"dim_model_base": nil}, "logits=0"},
			{object{"dim_model_base": 32}, "logits=0.5"},
			{object{"q_lora_rank": nil}, "attention=4 of 16+8, 16, ranks 0 24, 0.2041"},
			{object{"v_head_dim": 12}, "attention=4 of 16+8, 12, ranks 32 24, 0.2041"},
			{object{"qk_rope_head_dim": 4}, "attention=4 of 16+4, 16, ranks 32 24, 0.2236; rope=default 4 0.01 0.01"},
			{object{"num_key_value_heads": 2}, "!num_key_value_heads: 2"},
			{object{"num_experts": 8}, "!num_experts: 8"},
		},
		"minimax_m2": {
			{object{"rotary_dim": 8}, ""},
			{object{"rotary_dim": 4}, "!rotary_dim: contradicts"},
			{rope(object{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}), "rope=default 4 0.01 0.01"},
			{object{"num_experts_per_tok": 1}, "experts=1 of 4, sigmoid, true, 0, 0/0"},
			{object{"scoring_func": "softmax"}, `!scoring_func: "softmax"`},
			{object{"use_routing_bias": false}, "!use_routing_bias: false"},
			{object{"use_qk_norm": false}, "!use_qk_norm: false"},
			{object{"shared_intermediate_size": 64}, "!shared_intermediate_size: 64"},
			{object{"attn_type_list": []int{1, 0, 1}}, "!attn_type_list: 0 of layer 1"},
			{object{"sliding_window": 16}, "!sliding_window: 16"},
		},
		"ministral3": {
			{object{"sliding_window": nil}, "windows=0 0"},
			{object{"sliding_window": removed}, "windows=0 0"},
			{object{"sliding_window": 8}, "windows=8 8"},
			{object{"rope_parameters": removed}, "rope=yarn 16 0.1778 3.515e-07; temperature={16384 0.1 0}"},
			{rope(object{"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.2, "original_max_position_embeddings": 32}),
				"rope=default 16 0.3162 0.0003162; temperature={32 0.2 0}"},
			{rope(object{"rope_type": "default", "rope_theta": 1e6, "llama_4_scaling_beta": 0, "original_max_position_embeddings": 32}),
				"attention=4/2 of 16, 0, 0 slopes, temperature false; rope=default 16 0.1778 5.623e-06; temperature="},
			{theta(1e4), "!rope_parameters.llama_4_scaling_beta: missing"},
			{object{"head_dim": nil}, "!head_dim: null, which transformers 5.23.0 does not take"},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
			{object{"layer_types": kinds("ff")}, "!layer_types: unknown to family ministral3"},
		},
		"mixtral": {
			{object{"sliding_window": 16}, "windows=16 16 16"},
			{object{"sliding_window": 0}, "!sliding_window: 0"},
			{object{"num_experts_per_tok": 1}, "experts=1 of 4, softmax, true, 0, 0/0"},
			{object{"num_experts_per_tok": 5}, "!num_experts_per_tok: 5 of 4"},
			{object{"num_local_experts": 3}, "experts=2 of 3, softmax, true, 0, 0/0"},
			{object{"num_local_experts": 5}, "!missing: model.layers.0.block_sparse_moe.experts.4.w1.weight"},
			{object{"intermediate_size": 96}, "!wrong shape: model.layers.0.block_sparse_moe.experts.0.w1.weight"},
			{object{"rope_parameters": removed}, "rope=default 16 0.1778 5.623e-06"},
			{object{"rms_norm_eps": removed}, "eps=1e-05"},
		},
		"nemotron": {
			{object{"norm_eps": 1e-3}, "eps=0.001"},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"mlp_bias": true}, "biases=up down"},
			{rope(object{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1}), "rope=default 16 0.3162 0.0003162"},
			{theta(1e4), ""},
			{object{"rope_percent": 0.25}, "!rope_percent: 0.25 is not supported, only 0.5"},
		},
		"olmo": {
			{object{"clip_qkv": 8}, "clip=8"},
			{object{"clip_qkv": nil}, ""},
			{object{"clip_qkv": 0}, "!clip_qkv: 0 is not between"},
			{object{"clip_qkv": "8"}, `!clip_qkv: "8" is not a finite number`},
			{object{"rms_norm_eps": 1e-3}, ""},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
			{theta(1e6), "rope=default 16 0.1778 5.623e-06"},
			{object{"num_key_value_heads": removed}, "attention=4/4 of 16, 0, 0 slopes, temperature false"},
		},
		"opt": {
			{object{"ffn_dim": 64}, "mlp=64 relu"},
			{object{"enable_bias": false}, "biases="},
			{object{"activation_function": "gelu"}, "mlp=48 gelu"},
			{object{"activation_function": "elu"}, `!activation_function: "elu" is not supported`},
			{object{"max_position_embeddings": 64}, "learned=66 from 2; positions=64"},
			{object{"do_layer_norm_before": false}, "!do_layer_norm_before: false is not supported, only true"},
			{object{"_remove_final_layer_norm": true}, "!_remove_final_layer_norm: true is not supported, only false"},
			{object{"layer_norm_elementwise_affine": false}, "!layer_norm_elementwise_affine: false is not supported"},
			{object{"word_embed_proj_dim": 16}, "!word_embed_proj_dim: 16 is not supported, only 32"},
			{object{"word_embed_proj_dim": removed}, ""},
			{object{"tie_word_embeddings": false}, "tied=false"},
		},
		"olmoe": {
			{object{"clip_qkv": 8}, "clip=8"},
			{object{"clip_qkv": -8}, "!clip_qkv: -8 is not between"},
			{object{"norm_topk_prob": true}, "experts=2 of 4, softmax, true, 0, 0/0"},
			{object{"num_experts_per_tok": 3}, "experts=3 of 4, softmax, false, 0, 0/0"},
			{object{"num_local_experts": 3}, "!num_local_experts: 3 contradicts num_experts 4"},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"head_dim": 32}, "attention=4/2 of 32, 0, 0 slopes, temperature false; qnorm=128 false; rope=default 32 0.5623 0.0001778"},
		},
		"phi": {
			{object{"layer_norm_eps": 1e-3}, "eps=0.001"},
			{object{"hidden_act": "gelu"}, "mlp=160 gelu"},
			{object{"hidden_act": "silu"}, `!hidden_act: "silu"`},
			{object{"qk_layernorm": true}, "!qk_layernorm: true"},
			{object{"rope_parameters": removed}, ""},
			{object{"rope_parameters": removed, "partial_rotary_factor": 0.25}, "rope=default 4 0.01 0.01"},
			{object{"rope_parameters": removed, "partial_rotary_factor": 0.4}, "rope=default 6 0.04642 0.002154"},
			{object{"rope_parameters": removed, "partial_rotary_factor": 0.2}, "!partial_rotary_factor: 3 rotated elements"},
			{object{"auto_map": object{"AutoConfig": "configuration_phi.PhiConfig", "AutoTokenizer": []any{"x.Y", nil}}}, ""},
		},
		"phimoe": {
			{object{"router_jitter_noise": 0.01}, "experts=2 of 4, sparsemixer within 0.02, false, 0, 0/0"},
			{object{"router_jitter_noise": removed}, "experts=2 of 4, sparsemixer within 0.02, false, 0, 0/0"},
			{object{"num_experts_per_tok": 1}, "!num_experts_per_tok: 1 is not supported, only 2"},
			{object{"lm_head_bias": false}, "headbias=false"},
			{object{"attention_bias": false}, "biases="},
			{object{"sliding_window": 16}, "windows=16 16"},
			{object{"sliding_window": 512}, ""},
			{object{"input_jitter_noise": 0.5, "hidden_dropout": 0.5}, ""},
			{object{"original_max_position_embeddings": 64}, "!original_max_position_embeddings: 64 is not supported, only 128"},
			{phimoeRope(object{"short_mscale": 1.2, "long_mscale": 1.5}), "!rope_parameters.long_mscale: 1.5 is not supported, only that of short_mscale, 1.2"},
			{phimoeRope(object{"long_mscale": 1.5}), "!rope_parameters.short_mscale: missing"},
			{object{"rope_parameters": object{"rope_type": "yarn", "factor": 4}}, `!rope_parameters.rope_type: "yarn" is not supported (known: default, longrope)`},
			{object{"rope_parameters": removed}, "rope=default 8 0.03162 3.162e-05"},
		},
		"qwen2_moe": {
			{object{"norm_topk_prob": true}, "experts=2 of 4, softmax, true, 0, 0/0"},
			{object{"mlp_only_layers": []int{1}}, "blocks=AtEx AtML AtEx; mlp=160 silu"},
			{object{"decoder_sparse_step": 2}, "blocks=AtML AtEx AtML; mlp=160 silu"},
			{object{"shared_expert_intermediate_size": 64}, "shared=64"},
			{object{"qkv_bias": false}, "biases="},
			{object{"use_sliding_window": true, "sliding_window": 16, "layer_types": removed}, "windows=16 0 16"},
			{object{"use_sliding_window": true, "sliding_window": 16, "layer_types": kinds("ssf")}, "windows=16 16 0"},
			{object{"use_sliding_window": true, "layer_types": removed}, "!sliding_window: 0"},
			{object{"layer_types": kinds("sff")}, "!sliding_window: none, but layer 0 slides"},
		},
		"seed_oss": {
			{object{"attention_bias": removed}, ""},
			{object{"attention_bias": false}, "biases="},
			{object{"attention_out_bias": true}, "biases=q k v o"},
			{object{"mlp_bias": true}, "biases=q k v gate up down"},
			{object{"head_dim": removed}, "attention=4/2 of 128, 0, 0 slopes, temperature false; rope=default 128 0.866 0.0001155"},
			{object{"head_dim": nil}, ""},
			{object{"rms_norm_eps": 1e-3}, "eps=0.001"},
		},
		"solar_open": {
			{object{"attention_bias": removed}, "biases="},
			{object{"first_k_dense_replace": 0, "use_qk_norm": false, "intermediate_size": 99}, ""},
			{object{"first_k_dense_replace": 1}, "!first_k_dense_replace: 1"},
			{object{"use_qk_norm": true}, "!use_qk_norm: true"},
			{object{"n_shared_experts": 2}, "shared=16"},
			{object{"n_group": 3, "topk_group": 2}, "experts=2 of 6, sigmoid, true, 1.5, 2/3"},
			{object{"norm_topk_prob": false}, "experts=2 of 6, sigmoid, false, 1.5, 0/0"},
			{object{"routed_scaling_factor": removed}, "experts=2 of 6, sigmoid, true, 0, 0/0"},
			{object{"rope_parameters": removed}, "rope=default 16 0.1778 5.623e-06"},
			{half, "!rope_parameters.partial_rotary_factor: 0.5"},
			{rope(object{"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 1}), "rope=default 16 0.1778 5.623e-06"},
			{object{"rms_norm_eps": removed}, "eps=1e-05"},
		},
		"stablelm": {
			{object{"layer_norm_eps": 1e-3}, "eps=0.001"},
			{object{"use_qkv_bias": false}, "biases="},
			{object{"use_parallel_residual": true}, "blocks=At|ML At|ML At|ML"},
			{object{"qk_layernorm": true}, "qnorm=64 false in 4"},
			{object{"rope_parameters": removed}, ""},
			{object{"rope_parameters": removed, "rope_pct": 0.5}, "!rope_pct: 0.5 is not supported, only 0.25"},
			{half, "rope=default 8 0.1 0.001"},
		},
		"starcoder2": {
			{object{"norm_epsilon": 1e-3}, "eps=0.001"},
			{object{"sliding_window": nil}, "windows=0 0 0"},
			{object{"sliding_window": 32}, "windows=32 32 32"},
			{object{"sliding_window": 0}, "!sliding_window: 0"},
			{object{"use_bias": false}, "biases="},
			{object{"hidden_act": "gelu"}, "mlp=160 gelu"},
			{object{"norm_type": "rms_norm"}, `!norm_type: "rms_norm"`},
			{object{"tie_word_embeddings": false}, "tied=false"},
		},
		"youtu": {
			{object{"q_lora_rank": nil}, "attention=4 of 8+8, 8, ranks 0 16, 0.25"},
			{object{"v_head_dim": 12}, "attention=4 of 8+8, 12, ranks 24 16, 0.25"},
			{object{"rope_parameters": removed}, "rope=default 8 0.1 0.001"},
			{object{"tie_word_embeddings": removed}, ""},
			{object{"tie_word_embeddings": false}, "tied=false"},
			{object{"attention_bias": true}, "biases=q_down kv_down k_rope o"},
			{object{"mlp_bias": true}, "!mlp_bias: true"},
			{object{"embedding_initializer_range": 1}, ""},
			{object{"n_routed_experts": 4}, "!n_routed_experts: unknown to family youtu"},
			{object{"num_key_value_heads": 2}, "!num_key_value_heads: 2"},
		},
	}
}

// TestDescribeHubChanges does the same with published files of families that transformers does not have.
func TestDescribeHubChanges(t *testing.T) {
	type object = map[string]any
	for _, tt := range []struct {
		base, ignore string
		changes      []change
	}{
		{base: "MiniCPM-2B-sft-bf16", changes: []change{
			{object{"scale_emb": 1}, "embedding=0"},
			{object{"scale_emb": removed}, "embedding=0"},
			{object{"scale_depth": removed}, "scales=0.1581 0.1581"},
			{object{"scale_depth": 2.8}, "scales=0.4427 0.4427"},
			{object{"dim_model_base": 512}, "logits=0.2222"},
			{object{"tie_word_embeddings": false}, "tied=false"},
			{object{"attention_bias": true}, "biases=q k v o"},
			{object{"num_experts": 8}, "!num_experts: 8"},
			{object{"sparse_config": object{"kernel_size": 32}}, "!sparse_config: an object"},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_minicpm.MiniCPMMoEForCausalLM"}}, "!auto_map.AutoModelForCausalLM"},
			{object{"architectures": []string{"MiniCPMModel"}}, `!architectures: "MiniCPMModel"`},
		}},
		{base: "internlm2_5-7b-chat", changes: []change{
			{object{"bias": removed}, "biases=q k v o"},
			{object{"rms_norm_eps": removed}, "eps=1e-06"},
			{object{"num_key_value_heads": 4}, "attention=32/4 of 128, 0, 0 slopes, temperature false"},
			{object{"rope_theta": 10000}, "rope=dynamic 128 0.866 0.0001155"},
			{object{"hidden_act": "gelu"}, `!hidden_act: "gelu"`},
			{object{"attention_bias": true}, "!attention_bias: unknown to family internlm2"},
			{object{"auto_map": object{"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}}, "!auto_map.AutoModelForCausalLM"},
		}},
		{base: "Baichuan2-7B-Chat", changes: []change{
			{object{"max_position_embeddings": removed}, "!model_max_length: with hidden_size 4096"},
			{object{"hidden_size": 5120, "num_attention_heads": 40}, "!max_position_embeddings: with hidden_size 5120"},
			{object{"tie_word_embeddings": true}, "!tie_word_embeddings: true"},
			{object{"z_loss_weight": removed}, ""},
			{object{"z_loss_weight": removed, "vocab_size": 64000}, "unit=false"},
			{object{"num_key_value_heads": 8}, ""},
			{object{"rms_norm_eps": 1e-5}, "eps=1e-05"},
			{object{"clip_qkv": 8}, "!clip_qkv: unknown to family baichuan"},
		}},
		{base: "Baichuan2-13B-Chat", changes: []change{
			{object{"num_attention_heads": 32}, "attention=32/32 of 160, 0, 32 slopes, temperature false"},
			{object{"model_max_length": 2048}, "positions=2048"},
			{object{"model_max_length": removed}, "!model_max_length: missing"},
			{object{"max_position_embeddings": 4096}, "!max_position_embeddings: with hidden_size 5120"},
			{object{"rope_theta": 1e6}, "!rope_theta: unknown to family baichuan"},
		}},
		{base: "glm-4-9b-chat", changes: []change{
			{object{"rope_ratio": removed}, "rope=default 64 0.7499 0.0001334"},
			{object{"multi_query_group_num": 4}, "attention=32/4 of 128, 0, 0 slopes, temperature false"},
			{object{"multi_query_group_num": 3}, "!num_attention_heads: 32 heads cannot share 3"},
			{object{"multi_query_attention": false}, "!multi_query_attention: false"},
			{object{"multi_query_attention": removed}, "!multi_query_attention: missing"},
			{object{"add_qkv_bias": false}, "biases="},
			{object{"add_bias_linear": true}, "biases=q k v o gate up down"},
			{object{"original_rope": false}, "!original_rope: false"},
			{object{"post_layer_norm": false}, "!post_layer_norm: false"},
			{object{"rmsnorm": false}, "!rmsnorm: false"},
			{object{"apply_residual_connection_post_layernorm": true}, "!apply_residual_connection_post_layernorm: true"},
			{object{"quantization_bit": 4}, "!quantization_bit: 4"},
			{object{"pre_seq_len": 128}, "!pre_seq_len: 128"},
			{object{"_name_or_path": "THUDM/chatglm2-6b-32k"}, "!rope_ratio: 500 is not supported in ChatGLM 2"},
			{object{"layernorm_epsilon": removed}, "eps=1e-05"},
			{object{"vision_config": object{}}, "!vision_config: unknown to family chatglm"},
		}},
	} {
		config, err := os.ReadFile(filepath.Join("testdata", "hub", tt.base+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var ignore []string
		if tt.ignore != "" {
			ignore = append(ignore, tt.ignore)
		}
		testChanges(t, tt.base, checkpoint{config: config}, tt.changes, ignore...)
	}
}

// phimoeRope changes the multipliers of cosine and sine.
func phimoeRope(mscales map[string]any) map[string]any {
	rope := map[string]any{
		"rope_type": "longrope", "short_factor": []int{1, 1, 1, 1}, "long_factor": []int{2, 2, 2, 2},
		"original_max_position_embeddings": 128,
	}
	maps.Copy(rope, mscales)
	return map[string]any{"rope_parameters": rope}
}

func testChanges(t *testing.T, base string, ck checkpoint, changes []change, ignore ...string) {
	d, err := describeKeys(t, ck.config, ck, ignore...)
	if err != nil {
		t.Fatal(base, err)
	}
	before := traits(d)
	for _, c := range changes {
		t.Run(base+" "+fmt.Sprint(c.keys), func(t *testing.T) {
			d, err := describeKeys(t, edit(t, ck.config, c.keys), ck, ignore...)
			if refusal, ok := strings.CutPrefix(c.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), refusal) {
					t.Fatalf("error %v, want %s", err, refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			after, names := traits(d), maps.Clone(before)
			maps.Copy(names, after)
			var changed []string
			for _, name := range slices.Sorted(maps.Keys(names)) {
				if before[name] != after[name] {
					changed = append(changed, name+"="+after[name])
				}
			}
			if got := strings.Join(changed, "; "); got != c.want {
				t.Errorf("changes %q, want %q", got, c.want)
			}
		})
	}
}
