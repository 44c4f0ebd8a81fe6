package arch

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestDescribeMutations(t *testing.T) {
	rope := func(pairs ...any) map[string]any {
		m := map[string]any{"rope_type": "llama3", "rope_theta": 5e5, "factor": 8, "low_freq_factor": 1,
			"high_freq_factor": 4, "original_max_position_embeddings": 64}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
			if pairs[i+1] == removed {
				delete(m, pairs[i].(string))
			}
		}
		return map[string]any{"rope_parameters": m}
	}
	bad, no := tensor.ErrCorrupt, tensor.ErrUnsupported
	type object = map[string]any
	for _, tt := range []struct {
		name    string
		base    string
		changes object
		kind    error
		want    string // after "config.json: "
	}{
		{"no model type", "llama", object{"model_type": removed}, bad, `model_type: missing`},
		{"null model type", "llama", object{"model_type": nil}, bad, `model_type: null is not allowed`},
		{"empty model type", "llama", object{"model_type": ""}, no, `model_type: "" is not supported`},
		{"model type a number", "llama", object{"model_type": 3}, bad, `model_type: 3 is not a string`},
		{"relative", "qwen3-tied", object{"model_type": "qwen4"}, no,
			`model_type: "qwen4" is not supported; the closest family is qwen3, which has all of its parts`},
		{"architectures a string", "llama", object{"architectures": "LlamaForCausalLM"}, bad,
			`architectures: "LlamaForCausalLM" is not a list of strings; architectures: 0 entries, want one`},
		{"empty architectures", "llama", object{"architectures": []any{}}, no, `architectures: 0 entries, want one`},
		{"two architectures", "llama", object{"architectures": []any{"LlamaForCausalLM", "LlamaForCausalLM"}}, no, `architectures: 2 entries, want one`},
		{"foreign architecture", "llama", object{"architectures": []any{"MistralForCausalLM"}}, no,
			`architectures: "MistralForCausalLM" is not supported for model_type llama (known: LlamaForCausalLM)`},
		{"classifier", "qwen2-tied", object{"architectures": []any{"Qwen2ForSequenceClassification"}}, no,
			`architectures: "Qwen2ForSequenceClassification" is not supported for model_type qwen2 (known: Qwen2ForCausalLM)`},

		{"no hidden size", "llama", object{"hidden_size": removed}, bad, `hidden_size: missing`},
		{"null hidden size", "llama", object{"hidden_size": nil}, bad, `hidden_size: null is not allowed`},
		{"fraction", "llama", object{"hidden_size": 64.5}, bad, `hidden_size: 64.5 is not an integer`},
		{"string for a number", "llama", object{"hidden_size": "64"}, bad, `hidden_size: "64" is not an integer`},
		{"huge number", "llama", object{"hidden_size": json.Number("99999999999999999999")}, bad, `hidden_size: 99999999999999999999 is out of range`},
		{"zero heads", "llama", object{"num_attention_heads": 0}, bad, `num_attention_heads: 0 is not a positive number`},
		{"negative layers", "llama", object{"num_hidden_layers": -1}, bad, `num_hidden_layers: -1 is not a positive number`},
		{"many layers", "llama", object{"num_hidden_layers": 1000000000}, no, `num_hidden_layers: 1000000000 is more than 4096`},
		{"large table", "llama", object{"vocab_size": 1 << 24, "hidden_size": 1 << 20, "head_dim": 16}, no,
			`vocab_size: a matrix of 16777216 x 1048576 elements is too large`},
		{"heads and key-value heads", "llama", object{"num_key_value_heads": 3}, bad, `num_attention_heads: 4 heads cannot share 3 key-value heads`},
		{"more key-value heads", "llama", object{"num_key_value_heads": 8}, bad, `num_attention_heads: 4 heads cannot share 8 key-value heads`},
		{"odd head", "llama", object{"head_dim": 15}, no, `head_dim: 15 is odd, and rotation needs pairs`},
		{"no head_dim", "llama", object{"head_dim": removed, "hidden_size": 66}, bad,
			`head_dim: missing, and hidden_size 66 is not divisible by num_attention_heads 4`},
		{"no eps", "qwen3-tied", object{"rms_norm_eps": removed}, bad, `rms_norm_eps: missing`},
		{"zero eps", "qwen3-tied", object{"rms_norm_eps": 0}, bad, `rms_norm_eps: 0 is not between 1e-30 and 1`},
		{"eps a float tag", "qwen3-tied", object{"rms_norm_eps": object{"__float__": "NaN"}}, bad, `rms_norm_eps: NaN is not a finite number`},
		{"activation", "llama", object{"hidden_act": "gelu"}, no, `hidden_act: "gelu" is not supported, only "silu"`},
		{"null bias", "llama", object{"attention_bias": nil}, bad, `attention_bias: null is not true or false`},
		{"tied a number", "llama", object{"tie_word_embeddings": 1}, bad, `tie_word_embeddings: 1 is not true or false`},

		{"quantized", "qwen3-tied", object{"quantization_config": object{"quant_method": "gptq"}}, no,
			`quantization_config: an object is not supported: the weights are quantized already`},
		{"own code", "llama", object{"auto_map": object{"AutoModel": "m.M"}}, no, `auto_map: an object is not supported: the checkpoint brings its own model code`},
		{"windows", "llama", object{"use_sliding_window": true}, no, `use_sliding_window: true is not supported, only false`},
		{"interleaved", "llama", object{"rope_interleaved": true}, no, `rope_interleaved: true is not supported, only false`},
		{"unknown key", "qwen2-tied", object{"clip_qkv": 8}, no, `clip_qkv: unknown to family qwen2`},
		{"key of another family", "qwen2-tied", object{"mlp_bias": false}, no, `mlp_bias: unknown to family qwen2`},
		{"window keys in llama", "llama", object{"sliding_window": 16}, no, `sliding_window: unknown to family llama`},
		{"zero window", "qwen3-tied", object{"use_sliding_window": true, "sliding_window": 0}, bad, `sliding_window: 0 is not a positive number`},
		{"window that is none", "qwen3-tied", object{"use_sliding_window": true, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}}, bad,
			`sliding_window: none, but layer 1 slides`},
		{"sliding layer, windows off", "qwen3-tied", object{"layer_types": []any{"full_attention", "sliding_attention", "full_attention"}, "sliding_window": 16}, bad,
			`sliding_window: none, but layer 1 slides`},
		{"layer types", "qwen3-tied", object{"layer_types": []any{"full_attention", "linear_attention", "full_attention"}}, no,
			`layer_types: "linear_attention" of layer 1 is not supported, only "full_attention" or "sliding_attention"`},
		{"too few layer types", "qwen3-tied", object{"layer_types": []any{"full_attention"}}, bad, `layer_types: 1 entries for 3 layers`},
		{"layer types a string", "qwen3-tied", object{"layer_types": "full_attention"}, bad, `layer_types: "full_attention" is not a list of strings`},
		{"layer types of numbers", "qwen3-tied", object{"layer_types": []any{1, 2, 3}}, bad, `layer_types: 1 in the list is not a string`},
		{"dtype twice", "llama", object{"torch_dtype": "float16"}, bad, `torch_dtype: "float16" contradicts dtype "bfloat16"`},
		{"control characters", "llama", object{"rope_parameters": object{"a\x1b[31mb": 1}}, no, `"rope_parameters.a\x1b[31mb": unknown key`},

		{"dynamic, other keys", "llama", object{"rope_parameters": object{"rope_type": "dynamic", "factor": 2, "beta_fast": 32}}, no,
			`rope_parameters.beta_fast: unknown key`},
		{"dynamic without factor", "llama", object{"rope_parameters": object{"rope_type": "dynamic"}}, bad, `rope_parameters.factor: missing`},
		{"proportional", "llama3-rope", rope("rope_type", "proportional"), no,
			`rope_parameters.rope_type: "proportional" is not supported (known: default, linear, llama3, longrope, yarn)`},
		{"longrope without factors", "llama", object{"rope_parameters": removed, "rope_scaling": object{"type": "su"}}, bad,
			`rope_scaling.short_factor: missing; rope_scaling.long_factor: missing`},
		{"longrope, too few factors", "llama", object{"rope_parameters": object{"rope_type": "longrope", "original_max_position_embeddings": 64,
			"short_factor": []any{1, 2}, "long_factor": []any{1, 1, 1, 1, 1, 1, 1, 1}}}, bad, `rope_parameters.short_factor: 2 entries for 8 pairs`},
		{"longrope, too many factors", "llama", object{"rope_parameters": object{"rope_type": "longrope", "original_max_position_embeddings": 64,
			"short_factor": []any{1, 1, 1, 1, 1, 1, 1, 1}, "long_factor": []any{1, 1, 1, 1, 1, 1, 1, 1, 1}}}, bad, `rope_parameters.long_factor: 9 entries for 8 pairs`},
		{"longrope, zero factor", "llama", object{"rope_parameters": object{"rope_type": "longrope", "original_max_position_embeddings": 64,
			"short_factor": []any{1, 1, 1, 0, 1, 1, 1, 1}, "long_factor": []any{1, 1, 1, 1, 1, 1, 1, 1}}}, bad,
			`rope_parameters.short_factor: entry 3: 0 is not between 1e-06 and 1e+06`},
		{"yarn without factor", "llama", object{"rope_parameters": object{"rope_type": "yarn"}}, bad, `rope_parameters.factor: missing`},
		{"yarn, turns", "llama", object{"rope_parameters": object{"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}}, bad,
			`rope_parameters.beta_fast: 1 is less than beta_slow 2`},
		{"yarn, base", "llama", object{"rope_parameters": object{"rope_type": "yarn", "factor": 4, "rope_theta": 1}}, bad,
			`rope_theta: 1 gives yarn no range to interpolate`},
		{"yarn, truncate", "llama", object{"rope_parameters": object{"rope_type": "yarn", "factor": 4, "truncate": 1}}, bad,
			`rope_parameters.truncate: 1 is not true or false`},
		{"alpha of another family", "llama", object{"rope_parameters": object{"rope_type": "dynamic", "alpha": 1000, "factor": 1}}, no,
			`rope_parameters.alpha: unknown key`},
		{"unknown rope key", "llama3-rope", rope("mscale", 1), no, `rope_parameters.mscale: unknown key`},
		{"rope by layer type", "llama", object{"rope_parameters": object{"full_attention": object{"rope_type": "default"}}}, no,
			`rope_parameters.full_attention: unknown key`},
		{"factor without type", "llama", object{"rope_parameters": object{"rope_theta": 1e4, "factor": 2}}, no, `rope_parameters.factor: unknown key`},
		{"no factor", "llama3-rope", rope("factor", removed), bad, `rope_parameters.factor: missing`},
		{"small factor", "llama3-rope", rope("factor", 0.5), bad, `rope_parameters.factor: 0.5 is not between 1 and 1e+06`},
		{"no original length", "llama3-rope", rope("original_max_position_embeddings", removed), bad,
			`rope_parameters.original_max_position_embeddings: missing`},
		{"bounds the wrong way round", "llama3-rope", rope("high_freq_factor", 0.5), bad, `rope_parameters.high_freq_factor: 0.5 is less than low_freq_factor 1`},
		{"zero theta", "llama3-rope", rope("rope_theta", 0), bad, `rope_parameters.rope_theta: 0 is not between 1 and 1e+15`},
		{"partial", "llama", object{"partial_rotary_factor": 0.5}, no, `partial_rotary_factor: 0.5 is not supported, only 1`},
		{"partial inside", "llama3-rope", rope("partial_rotary_factor", 0.25), no, `rope_parameters.partial_rotary_factor: 0.25 is not supported, only 1`},
		{"two thetas", "llama3-rope", object{"rope_theta": 1e4}, bad, `rope_theta: 10000 contradicts the rope_theta 500000 of the rope parameters`},
		{"two scalings", "llama3-rope", object{"rope_scaling": object{"type": "linear", "factor": 8}}, bad, `rope_scaling: contradicts rope_parameters`},
		{"two types", "llama", object{"rope_parameters": removed, "rope_scaling": object{"type": "linear", "rope_type": "llama3", "factor": 4}}, bad,
			`rope_scaling.type: "linear" contradicts rope_type "llama3"; rope_scaling.low_freq_factor: missing; ` +
				`rope_scaling.high_freq_factor: missing; rope_scaling.original_max_position_embeddings: missing`},
		{"rope a string", "llama", object{"rope_parameters": "default"}, bad, `rope_parameters: "default" is not an object`},

		{"all at once", "qwen3-tied", object{"vocab_size": removed, "hidden_act": "relu", "head_dim": 31, "clip_qkv": 1, "use_mrope": true}, no,
			`vocab_size: missing; hidden_act: "relu" is not supported, only "silu"; head_dim: 31 is odd, and rotation needs pairs; ` +
				`clip_qkv: unknown to family qwen3; use_mrope: true is not supported, only false`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ck := loadCheckpoint(t, filepath.Join("testdata", tt.base))
			wantError(t, edit(t, ck.config, tt.changes), ck.tensors, Options{}, tt.kind, "config.json: "+tt.want)
		})
	}
}
