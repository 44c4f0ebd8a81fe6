//go:build transformers

package transformerstest

import "maps"

// windowFamilies have layers that see the last positions alone.
var windowFamilies = map[string]family{
	"mistral": {
		honours: oneOf(ropes()[:6], each("sliding_window", 1, 2, 17, 95, nil), []object{
			{"sliding_window": removed},
			{"head_dim": 24},
			{"head_dim": removed, "num_attention_heads": 2},
			{"rms_norm_eps": 0.1},
			{"num_key_value_heads": 1},
		}),
		refuses: oneOf(badRopes, bad("sliding_window: 0 is not", 0), bad(`hidden_act: "gelu"`, "gelu"), bad("attention_bias: unknown", true)),
		same:    []object{{"hidden_act": removed, "tie_word_embeddings": removed}, {"layer_types": kinds("sss")}},
		shapes:  with(plain, object{"sliding_window": 1}, object{"sliding_window": 40}, object{"sliding_window": 600}),
	},
	"ministral": {
		honours: oneOf(ropes()[:3], each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("ffss")},
			{"layer_types": removed},
			{"layer_types": nil, "sliding_window": 5},
			{"head_dim": 24},
			{"rms_norm_eps": 0.1},
		}),
		refuses: oneOf(badRopes, bad("sliding_window: 0 is not", 0), bad("layer_types: 2 entries", kinds("sf")),
			bad("layer_types: \"chunked_attention\"", kinds("sscf"))),
		shapes: with(plain, object{"layer_types": kinds("s"), "sliding_window": 7}, object{"layer_types": kinds("fs")},
			object{"layer_types": kinds("sfsss"), "sliding_window": 600}),
	},
	"cohere2": {
		honours: oneOf(ropes(), each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("fsff")},
			{"layer_types": kinds("ssss")},
			{"layer_types": removed, "sliding_window_pattern": 2},
			{"layer_types": removed, "sliding_window_pattern": 1},
			{"sliding_window": removed},
			{"logit_scale": removed},
			{"layer_norm_eps": 0.1},
			{"attention_bias": true},
		}),
		refuses: oneOf(badRopes, bad("sliding_window: null", nil), bad("layer_types: 3 entries", kinds("ssf")), bad(`hidden_act: "gelu"`, "gelu"), []refusal{
			{"rotary_pct: 0.5 is not supported, only 1", object{"rotary_pct": 0.5}},
			{"partial_rotary_factor: 0.5 is not supported", object{"rope_parameters": removed, "partial_rotary_factor": 0.5}},
			{"layer_switch: 2 contradicts", object{"layer_types": removed, "layer_switch": 2}},
			{"use_parallel_block: false", object{"use_parallel_block": false}},
		}),
		same: []object{{"layer_types": removed}, {"rotary_pct": float("1.0"), "layer_switch": 4}, {"layer_types": nil, "sliding_window_pattern": 4}},
		shapes: with(divided, object{"layer_types": kinds("s"), "head_dim": removed}, object{"layer_types": kinds("fs"), "head_dim": removed},
			object{"layer_types": kinds("sfsss"), "head_dim": removed, "sliding_window": 600, "intermediate_size": 60}),
	},
	"exaone4": {
		honours: oneOf(ropes()[:6], each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("fsfs")},
			{"layer_types": kinds("ssss")},
			{"sliding_window": nil, "layer_types": kinds("ffff")},
			{"layer_types": removed, "sliding_window_pattern": 2},
			{"sliding_window": removed},
			{"rms_norm_eps": 0.1},
			{"head_dim": 24},
		}),
		refuses: oneOf(badRopes, bad("sliding_window: none, but layer 0 slides", nil), bad("attention_bias: unknown", true), []refusal{
			{`sliding_window_pattern: "LLLG"`, object{"layer_types": removed, "sliding_window_pattern": "LLLG"}},
			{`layer_types: 3 entries`, object{"layer_types": kinds("ssf")}},
		}),
		same: []object{{"layer_types": removed}, {"sliding_window_pattern": "LLLG"}, {"layer_types": nil, "sliding_window_pattern": 4}},
		shapes: with(plain, object{"layer_types": kinds("s")}, object{"layer_types": kinds("fs")},
			object{"layer_types": kinds("sfsss"), "sliding_window": 600}),
	},
	"gemma2": {
		honours: oneOf(ropes()[:6], each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("fsf")},
			{"layer_types": kinds("sss")},
			{"sliding_window": removed},
			{"query_pre_attn_scalar": 7},
			{"query_pre_attn_scalar": removed},
			{"attn_logit_softcapping": nil},
			{"attn_logit_softcapping": 0.5},
			{"final_logit_softcapping": nil},
			{"final_logit_softcapping": 2.5},
			{"attn_logit_softcapping": 1.5, "final_logit_softcapping": removed},
			{"rms_norm_eps": 0.1},
			{"attention_bias": true},
			{"head_dim": removed},
		}),
		refuses: oneOf(badRopes, bad(`hidden_activation: "gelu"`, "gelu"), bad("use_bidirectional_attention: true", true),
			bad("sliding_window: none, but layer 0 slides", nil), bad("attn_logit_softcapping: 0.0 is not", float("0.0"))),
		same: []object{{"layer_types": removed}, {"hidden_activation": removed}, {"sliding_window_size": 16, "cache_implementation": "hybrid"}},
		shapes: with(plain, object{"layer_types": kinds("s"), "attn_logit_softcapping": 0.5}, object{"layer_types": kinds("fs")},
			object{"layer_types": kinds("ssfsf"), "sliding_window": 600, "attn_logit_softcapping": nil}),
	},
	"gemma3_text": {
		honours: oneOf(each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("fsfsfsf")},
			{"layer_types": kinds("sssssss")},
			{"layer_types": removed, "sliding_window_pattern": 3, "_sliding_window_pattern": removed},
			{"layer_types": nil, "sliding_window_pattern": 1, "_sliding_window_pattern": removed},
			{"sliding_window": removed},
			{"query_pre_attn_scalar": 7},
			{"query_pre_attn_scalar": removed},
			{"final_logit_softcapping": 2.5},
			{"rope_parameters.full_attention.rope_theta": 300},
			{"rope_parameters.sliding_attention.rope_theta": 300},
			{"rope_parameters.full_attention": object{"rope_type": "linear", "factor": 8, "rope_theta": 300}},
			{"rope_parameters.full_attention": removed, "rope_theta": 300},
			{"rope_parameters.sliding_attention": merged(object{"rope_type": "llama3", "rope_theta": 300}, llama3)},
			{"rope_parameters.sliding_attention": merged(object{"rope_type": "yarn", "rope_theta": 300}, yarnScaled)},
			{"rope_parameters": removed, "rope_theta": 300, "rope_local_base_freq": 40},
			{"rope_parameters": removed, "rope_theta": 300, "rope_scaling": object{"rope_type": "linear", "factor": 4}},
			{"rms_norm_eps": 0.1},
			{"attention_bias": true},
			{"head_dim": 24},
		}),
		refuses: []refusal{
			{`hidden_activation: "gelu"`, object{"hidden_activation": "gelu"}},
			{`model_type gemma3_text is an encoder, and the checkpoint has no modules.json`, object{"use_bidirectional_attention": true}},
			{`rope_scaling.type: is not supported without rope_type`, object{"rope_parameters": removed, "rope_scaling": object{"type": "linear", "factor": 4}}},
			{`rope_parameters.full_attention.truncate: false`, object{"rope_parameters.full_attention": merged(object{"rope_type": "yarn", "rope_theta": 300}, yarn)}},
			{`rope_parameters.truncate: false`, object{"rope_parameters.truncate": false, "rope_parameters.sliding_attention": merged(object{"rope_type": "yarn", "rope_theta": 300}, yarnScaled)}},
			{`rope_parameters: has neither`, now("default", 300)},
			{`sliding_window: none, but layer 0 slides`, object{"sliding_window": nil}},
		},
		same: []object{
			{"layer_types": removed}, {"rope_parameters": removed, "rope_theta": 1e6, "rope_local_base_freq": 10000},
			{"rope_parameters.sliding_attention": removed}, {"rope_parameters": removed}, {"layer_types": nil, "sliding_window_pattern": 6},
		},
		shapes: with(plain, object{"layer_types": kinds("s")}, object{"layer_types": kinds("fs")},
			object{"layer_types": kinds("ssfsf"), "sliding_window": 600}),
	},
	"gemma4_text": {
		packages: deepBound,
		honours: oneOf(each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("sff"), "per_layer_config": removed, "global_head_dim": 16, "num_global_key_value_heads": 1},
			{"layer_types": kinds("fff"), "per_layer_config": removed, "global_head_dim": 16, "num_global_key_value_heads": 1},
			{"layer_types": removed, "per_layer_config": removed, "global_head_dim": 16},
			{"per_layer_config": removed, "global_head_dim": 24, "num_global_key_value_heads": 2},
			{"per_layer_config": removed, "global_head_dim": 24, "num_global_key_value_heads": 1, "attention_k_eq_v": false},
			{"per_layer_config.0.num_key_value_heads": 2, "per_layer_config.2.num_key_value_heads": 2},
			{"per_layer_config.1": object{"head_dim": 12}},
			{"per_layer_config": object{}},
			{"attention_k_eq_v": false},
			{"attention_k_eq_v": removed},
			{"attention_bias": true},
			{"final_logit_softcapping": 2.5},
			{"final_logit_softcapping": nil},
			{"sliding_window": removed},
			{"rope_parameters.full_attention.partial_rotary_factor": 0.5},
			{"rope_parameters.full_attention.partial_rotary_factor": 0.4},
			{"rope_parameters.full_attention.partial_rotary_factor": removed},
			{"rope_parameters.full_attention.rope_theta": 300},
			{"rope_parameters.full_attention.factor": 4},
			{"rope_parameters.full_attention": object{"rope_type": "default", "rope_theta": 300}},
			{"rope_parameters.full_attention": object{"rope_type": "linear", "factor": 8, "rope_theta": 300}},
			{"rope_parameters.sliding_attention.rope_theta": 300},
			{"rope_parameters.sliding_attention": merged(object{"rope_type": "llama3", "rope_theta": 300}, llama3)},
			{"enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 20},
			{"enable_moe_block": true, "num_experts": 3, "top_k_experts": 3, "moe_intermediate_size": 33, "attention_k_eq_v": false},
			{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320},
			{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320, "num_kv_shared_layers": 1},
			{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320, "num_kv_shared_layers": 1, "use_double_wide_mlp": true},
			{"hidden_size_per_layer_input": removed, "vocab_size_per_layer_input": 320},
			{"rms_norm_eps": 0.1},
			{"head_dim": 24},
		}),
		refuses: oneOf(bad(`hidden_activation: "gelu"`, "gelu"), bad(`use_bidirectional_attention: "all"`, "all"),
			bad("num_kv_shared_layers: 1 is not supported without hidden_size_per_layer_input", 1), bad("sliding_window: none, but layer 1 slides", nil), []refusal{
				{`vocab_size_per_layer_input: 262144 is not supported, only the 320`, object{"hidden_size_per_layer_input": 8}},
				{`num_kv_shared_layers: layer 1 has no layer of its kind before layer 1`, object{
					"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320, "num_kv_shared_layers": 2}},
				{`rope_parameters.full_attention: missing`, object{"rope_parameters.full_attention": removed}},
				{`rope_parameters.full_attention.rope_theta: missing`, object{"rope_parameters.full_attention.rope_theta": removed}},
				{`rope_parameters.sliding_attention.rope_type: "axial"`, object{"rope_parameters.sliding_attention.rope_type": "axial"}},
				{`rope_parameters.full_attention.partial_rotary_factor: 0.25 is not supported`, object{"rope_parameters.full_attention.rope_type": "default"}},
				{`global_head_dim: is not supported together with per_layer_config`, object{"global_head_dim": 24}},
				{`per_layer_config: layer 2 has 1 heads of 24, others of its kind 1 of 16`, object{"per_layer_config.2.head_dim": 24}},
				{`per_layer_config.0.intermediate_size: unknown key`, object{"per_layer_config.0.intermediate_size": 24}},
				{`top_k_experts: 5 of 4 experts`, object{"enable_moe_block": true, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 20}},
				{`num_experts: null`, object{"enable_moe_block": true, "top_k_experts": 1, "moe_intermediate_size": 20}},
			}),
		same: []object{
			{"rope_parameters": removed}, {"use_bidirectional_attention": "vision"}, {"use_double_wide_mlp": true}, {"hidden_activation": removed},
			{"per_layer_config": removed, "global_head_dim": 16, "num_global_key_value_heads": 1}, {"num_experts": 7, "vocab_size_per_layer_input": 3},
			{"layer_types": kinds("fss")},
		},
		shapes: []object{
			{"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "hidden_size": 48, "num_hidden_layers": 1,
				"layer_types": kinds("f"), "vocab_size": 323, "per_layer_config": removed, "global_head_dim": 14,
				"num_global_key_value_heads": 2},
			{"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 80, "hidden_size": 72, "intermediate_size": 100,
				"num_hidden_layers": 2, "layer_types": kinds("sf"), "per_layer_config": object{}, "attention_k_eq_v": false},
			{"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 96, "num_hidden_layers": 7,
				"layer_types": removed, "vocab_size": 333, "per_layer_config": removed, "global_head_dim": 32,
				"enable_moe_block": true, "num_experts": 5, "top_k_experts": 3, "moe_intermediate_size": 33, "sliding_window": 600},
			{"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 24, "hidden_size": 40, "num_hidden_layers": 3,
				"layer_types": kinds("sff"), "per_layer_config": removed, "global_head_dim": 32, "attention_k_eq_v": false, "vocab_size": 330,
				"hidden_size_per_layer_input": 50, "vocab_size_per_layer_input": 330, "num_kv_shared_layers": 1, "use_double_wide_mlp": true},
		},
	},
	"cwm": {
		honours: oneOf(ropes()[:5], each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("sfs")},
			{"layer_types": kinds("sss")},
			{"layer_types": kinds("fff")},
			{"rope_parameters": removed},
			{"mlp_bias": false},
			{"mlp_bias": removed},
			{"rms_norm_eps": 0.1},
			{"head_dim": 24, "num_key_value_heads": 1},
		}),
		refuses: oneOf(badRopes, bad(`hidden_act: "gelu"`, "gelu"), bad("sliding_window: 0 is not", 0), bad("attention_bias: true", true),
			bad("sliding_window: none, but layer 1 slides", nil), bad(`layer_types: "chunked_attention"`, kinds("sfc"))),
		same: []object{{"layer_types": removed}, {"layer_types": nil}, {"attention_bias": false}},
		shapes: with(divided, object{"layer_types": kinds("s"), "head_dim": 10}, object{"layer_types": kinds("fs"), "head_dim": 80},
			object{"layer_types": kinds("sfsss"), "sliding_window": 600, "head_dim": 64}),
	},
	"ministral3": {
		honours: oneOf(warm(ropes()[:5]), each("sliding_window", 1, 17, 95, nil), []object{
			{"rope_parameters.llama_4_scaling_beta": 0.7},
			{"rope_parameters.llama_4_scaling_beta": 0},
			{"rope_parameters.original_max_position_embeddings": 40},
			{"rope_parameters.factor": 4},
			{"rope_parameters": removed},
			{"rope_parameters.mscale_all_dim": 0.5},
			{"rms_norm_eps": 0.1},
			{"head_dim": 24},
			{"num_key_value_heads": 1},
		}),
		refuses: []refusal{
			{`rope_parameters.rope_type: "proportional" is not supported`, warm([]object{now("proportional", 1e4, object{"factor": 4})})[0]},
			{`rope_parameters.llama_4_scaling_beta: missing`, object{"rope_parameters.llama_4_scaling_beta": removed}},
			{`rope_parameters.original_max_position_embeddings: missing`, object{"rope_parameters.original_max_position_embeddings": removed}},
			{`hidden_act: "gelu"`, object{"hidden_act": "gelu"}},
			{`sliding_window: 0 is not`, object{"sliding_window": 0}},
			{`attention_bias: unknown`, object{"attention_bias": true}},
		},
		same:   []object{{"rope_parameters.max_position_embeddings": 512}, {"rope_parameters.beta_fast": removed, "rope_parameters.beta_slow": removed}},
		shapes: with(plain, object{}, object{"rope_parameters.original_max_position_embeddings": 7}, object{"sliding_window": 600}),
	},
	"olmo3": {
		honours: oneOf(each("sliding_window", 1, 33, 95), []object{
			{"layer_types": kinds("fsff")},
			{"layer_types": kinds("ssss")},
			{"sliding_window": removed},
			{"rope_parameters.full_attention.rope_theta": 300},
			{"rope_parameters.sliding_attention": object{"rope_type": "linear", "factor": 4, "rope_theta": 300}},
			{"rope_parameters": removed, "rope_scaling": merged(object{"rope_type": "llama3"}, llama3)},
			{"rope_parameters": removed, "rope_scaling": merged(object{"rope_type": "yarn"}, yarnScaled)},
			{"rms_norm_eps": 0.1},
			{"attention_bias": true},
			{"head_dim": 24},
		}),
		refuses: []refusal{
			{`rope_theta: 300 is not supported`, object{"rope_parameters": removed, "rope_theta": 300}},
			{`rope_scaling.type: is not supported without rope_type`, object{"rope_parameters": removed, "rope_scaling": object{"type": "linear", "factor": 4}}},
			{`rope_scaling.truncate: false`, object{"rope_parameters": removed, "rope_scaling": merged(object{"rope_type": "yarn"}, yarn)}},
			{`hidden_act: "gelu"`, object{"hidden_act": "gelu"}},
			{`sliding_window: none, but layer 0 slides`, object{"sliding_window": nil}},
		},
		same: []object{{"layer_types": removed}, {"layer_types": nil}, {"rope_parameters.full_attention": removed}},
		shapes: with(plain, object{"layer_types": kinds("s")}, object{"layer_types": kinds("fs")},
			object{"layer_types": kinds("sfsss"), "sliding_window": 600}),
	},
	"phi3": {
		honours: oneOf(each("sliding_window", 1, 33, 95, nil), []object{
			{"rope_parameters.rope_theta": 300},
			before(300, nil),
			before(300, nil, object{"partial_rotary_factor": 0.75}),
			{"rope_parameters.partial_rotary_factor": 0.5},
			before(300, longrope(8, "longrope"), object{"original_max_position_embeddings": 32}),
			before(300, longrope(6, "yarn"), object{"original_max_position_embeddings": 64, "partial_rotary_factor": 0.75}),
			before(300, longrope(8, "longrope"), object{"original_max_position_embeddings": 200}),
			before(300, longrope(8, "longrope"), object{"original_max_position_embeddings": 95}),
			{"original_max_position_embeddings": 24, "rope_parameters": merged(longrope(8, ""),
				object{"rope_type": "longrope", "rope_theta": 300, "attention_factor": 1.3})},
			{"original_max_position_embeddings": 24, "rope_parameters": merged(longrope(8, ""), object{"rope_type": "longrope", "rope_theta": 300, "factor": 9.5})},
			{"rms_norm_eps": 0.1},
			{"num_key_value_heads": 1},
		}),
		refuses: []refusal{
			{`rope_parameters.rope_type: "linear"`, now("linear", 1e4, object{"factor": 4})},
			{`hidden_act: "gelu"`, object{"hidden_act": "gelu"}},
			{`sliding_window: 0 is not`, object{"sliding_window": 0}},
			{`rope_scaling.short_factor: 6 entries for 8 pairs`, before(300, longrope(6, "longrope"), object{"original_max_position_embeddings": 32})},
			{`lm_head.weight differs`, object{"tie_word_embeddings": true}},
		},
		same:   []object{{"embd_pdrop": 0.5, "resid_pdrop": 0.5}, before(10000, nil), {"original_max_position_embeddings": 24}},
		shapes: with(divided, object{"sliding_window": 7}, object{"sliding_window": nil}, object{"intermediate_size": 60}),
	},
	"qwen2": {
		base: "qwen2-untied",
		honours: oneOf(ropes(), []object{
			{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": removed},
			{"use_sliding_window": true, "sliding_window": 1, "max_window_layers": 0, "layer_types": nil},
			{"use_sliding_window": true, "sliding_window": 33, "layer_types": kinds("sfs")},
			{"rms_norm_eps": 0.1},
			{"head_dim": 24},
		}),
		refuses: oneOf(badRopes, bad(`hidden_act: "gelu"`, "gelu"), bad("attention_bias: unknown", false), bad("layer_types: 2 entries", kinds("ff")), []refusal{
			{"sliding_window: none, but layer 0 slides", object{"layer_types": kinds("sff")}},
		}),
		same: []object{
			{"sliding_window": 16, "max_window_layers": 0, "layer_types": removed}, {"use_sliding_window": removed, "layer_types": removed},
			{"use_sliding_window": true, "sliding_window": nil, "layer_types": removed}, {"use_sliding_window": true, "layer_types": removed},
			{"use_sliding_window": true, "sliding_window": 96, "max_window_layers": 0, "layer_types": removed},
		},
		shapes: with(plain, object{"layer_types": kinds("f")}, object{"layer_types": removed, "use_sliding_window": true,
			"sliding_window": 20, "max_window_layers": 1},
			object{"layer_types": kinds("fsffs"), "use_sliding_window": true, "sliding_window": 20}),
	},
	"qwen3": {
		base: "qwen3-untied",
		honours: oneOf(ropes(), []object{
			{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": removed},
			{"use_sliding_window": true, "sliding_window": 33, "layer_types": kinds("sfs")},
			{"attention_bias": true},
			{"rms_norm_eps": 0.1},
			{"head_dim": removed},
			{"num_key_value_heads": 1},
		}),
		refuses: oneOf(badRopes, bad(`hidden_act: "gelu"`, "gelu"), bad("layer_types: 2 entries", kinds("ff"))),
		same:    []object{{"sliding_window": 16, "max_window_layers": 0, "layer_types": removed}, {"attention_bias": removed}},
		shapes: with(plain, object{"layer_types": kinds("f")}, object{"layer_types": removed, "use_sliding_window": true,
			"sliding_window": 20, "max_window_layers": 1},
			object{"layer_types": kinds("fsffs"), "use_sliding_window": true, "sliding_window": 20}),
	},
	"smollm3": {
		honours: oneOf(ropes()[:6], []object{
			{"no_rope_layers": []int{0, 1, 1, 0}},
			{"no_rope_layers": []int{1, 1, 1, 1}},
			{"no_rope_layers": removed, "no_rope_layer_interval": 2},
			{"no_rope_layers": nil, "no_rope_layer_interval": 1},
			{"use_sliding_window": true, "sliding_window": 16, "layer_types": removed},
			{"use_sliding_window": true, "sliding_window": 5, "layer_types": kinds("sffs")},
			{"use_sliding_window": true, "sliding_window": 5, "layer_types": nil, "no_rope_layers": []int{0, 0, 1, 1}},
			{"attention_bias": true},
			{"mlp_bias": true},
			{"rms_norm_eps": 0.1},
			{"rope_parameters": removed},
		}),
		refuses: oneOf(badRopes, bad("no_rope_layers: 3 entries", []int{1, 1, 0}), bad(`hidden_act: "gelu"`, "gelu"), []refusal{
			{"sliding_window: none, but layer 0 slides", object{"layer_types": kinds("sfff")}},
		}),
		same: []object{
			{"no_rope_layers": removed}, {"layer_types": removed, "sliding_window": 16}, {"use_sliding_window": true, "layer_types": removed, "sliding_window": nil},
		},
		shapes: with(plain, object{"layer_types": removed, "no_rope_layers": []int{0}}, object{"layer_types": removed, "no_rope_layers": removed},
			object{"layer_types": kinds("fsffs"), "no_rope_layers": []int{1, 0, 1, 0, 1}, "use_sliding_window": true, "sliding_window": 20}),
	},
	"starcoder2": {
		honours: oneOf(ropes()[:6], each("sliding_window", 1, 33, 95, nil), []object{
			{"use_bias": false},
			{"norm_epsilon": 0.1},
			{"hidden_act": "gelu"},
			{"head_dim": 24, "num_key_value_heads": 4},
		}),
		refuses: oneOf(badRopes, bad("sliding_window: 0 is not", 0), bad(`hidden_act: "silu"`, "silu"), bad(`norm_type: "rms_norm"`, "rms_norm")),
		same:    []object{{"use_bias": removed, "norm_epsilon": removed, "hidden_act": removed}, {"rms_norm_eps": 0.1, "embedding_dropout": 0.5}},
		shapes:  with(plain, object{"sliding_window": 1}, object{"sliding_window": 40, "use_bias": false}, object{"sliding_window": 600}),
	},
}

// longrope has factors for so many pairs.
func longrope(pairs int, kind string) object {
	short, long := make([]float64, pairs), make([]float64, pairs)
	for i := range short {
		short[i], long[i] = 1+0.05*float64(i), 1+0.6*float64(i)
	}
	o := object{"short_factor": short, "long_factor": long}
	if kind != "" {
		o["type"] = kind
	}
	return o
}

// warm adds the keys of an attention temperature to rotary ones.
func warm(list []object) []object {
	out := make([]object, len(list))
	for i, change := range list {
		out[i] = maps.Clone(change)
		out[i]["rope_parameters"] = merged(object{"original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.3}, change["rope_parameters"].(object))
	}
	return out
}
