package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// shape is what config.json says of a model of the llama family. Embeddings are tied.
type shape struct {
	hidden, intermediate, layers, heads, kvHeads, headDim, vocab, positions int
}

var shapes = map[string]shape{
	"llama-135m": {hidden: 576, intermediate: 1536, layers: 30, heads: 9, kvHeads: 3, headDim: 64, vocab: 49152, positions: 8192},       // SmolLM2-135M
	"llama-8b":   {hidden: 4096, intermediate: 12288, layers: 36, heads: 32, kvHeads: 8, headDim: 128, vocab: 151936, positions: 40960}, // Qwen3-8B
	"llama-tiny": {hidden: 64, intermediate: 128, layers: 2, heads: 4, kvHeads: 2, headDim: 16, vocab: 512, positions: 512},
}

// mixtures are shapes of mixtures of experts, as what config.json says.
var mixtures = map[string]map[string]any{
	"qwen3-30b-a3b": qwen3Moe(48, 2048, 32, 768, 151936),
	"qwen3-235b":    qwen3Moe(94, 4096, 64, 1536, 151936), // Qwen3-235B-A22B
	"qwen3-moe-400m": with(qwen3Moe(4, 1024, 16, 512, 32000), map[string]any{ // small enough to be verified
		"num_experts": 48, "num_key_value_heads": 2, "head_dim": 64,
	}),
	// As many matrices as deepseek-1t has, each of 4096 weights.
	"qwen3-many": with(qwen3Moe(61, 64, 4, 64, 4096), map[string]any{"num_experts": 384, "num_key_value_heads": 2, "head_dim": 16}),
	"deepseek-v3": deepSeek(map[string]any{
		"n_routed_experts": 256, "num_attention_heads": 128, "num_key_value_heads": 128, "n_group": 8, "topk_group": 4,
		"first_k_dense_replace": 3, "vocab_size": 129280,
	}),
	// A terabyte in fp8: 61 layers of 384 experts.
	"deepseek-1t": deepSeek(map[string]any{
		"n_routed_experts": 384, "num_attention_heads": 64, "num_key_value_heads": 64, "n_group": 1, "topk_group": 1,
		"first_k_dense_replace": 0, "vocab_size": 163840,
	}),
	"gpt-oss-120b": {
		"architectures": []string{"GptOssForCausalLM"}, "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880,
		"intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 128,
		"num_experts_per_tok": 4, "attention_bias": true, "sliding_window": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
		"rope_theta": 150000, "rope_scaling": map[string]any{
			"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096,
		},
		"vocab_size": 201088, "tie_word_embeddings": false, "hidden_act": "silu",
		"quantization_config": map[string]any{"quant_method": "mxfp4"},
	},
}

// seeing are shapes of models that see, as what config.json says: towers around a small text model.
var seeing = map[string]map[string]any{
	"siglip-base": llava(768, 3072, 12, 448, 16),
	"siglip-tiny": llava(32, 64, 2, 32, 8),
}

// llava is a shape of LLaVA with a tower of SigLIP in heads of 64, or two.
func llava(hidden, intermediate, layers, image, patch int) map[string]any {
	text := shape{hidden: 64, intermediate: 128, layers: 2, heads: 4, kvHeads: 2, headDim: 16, vocab: 512, positions: 2048}.config()
	return map[string]any{
		"architectures": []string{"LlavaForConditionalGeneration"}, "model_type": "llava", "torch_dtype": "bfloat16", "text_config": text,
		"vision_config": map[string]any{
			"model_type": "siglip_vision_model", "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
			"num_attention_heads": max(hidden/64, 2), "image_size": image, "patch_size": patch, "hidden_act": "gelu_pytorch_tanh",
			"layer_norm_eps": 1e-6, "num_channels": 3, "vision_use_head": false,
		},
		"image_token_index": 510, "projector_hidden_act": "gelu", "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
		"tie_word_embeddings": true,
	}
}

// qwen3Moe is a shape of Qwen 3 with 128 experts.
func qwen3Moe(layers, hidden, heads, width, vocab int) map[string]any {
	return map[string]any{
		"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "num_hidden_layers": layers, "hidden_size": hidden,
		"intermediate_size": 3 * hidden, "num_attention_heads": heads, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
		"num_experts_per_tok": 8, "moe_intermediate_size": width, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []int{},
		"max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "vocab_size": vocab, "tie_word_embeddings": false,
		"hidden_act": "silu", "attention_bias": false, "use_sliding_window": false,
	}
}

// deepSeek is DeepSeek-V3 in fp8, without its draft head, but for what change says.
func deepSeek(change map[string]any) map[string]any {
	return with(map[string]any{
		"architectures": []string{"DeepseekV3ForCausalLM"}, "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
		"intermediate_size": 18432, "moe_intermediate_size": 2048, "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536,
		"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "norm_topk_prob": true,
		"routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 0,
		"max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000, "rope_scaling": map[string]any{
			"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
		},
		"tie_word_embeddings": false, "hidden_act": "silu", "attention_bias": false,
		"quantization_config": map[string]any{
			"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": []int{128, 128},
		},
	}, change)
}

func with(config, change map[string]any) map[string]any {
	maps.Copy(config, change)
	return config
}

// names lists all shapes.
func names() string {
	return strings.Join(slices.Sorted(func(yield func(string) bool) {
		for n := range maps.Keys(shapes) {
			if !yield(n) {
				return
			}
		}
		for n := range maps.Keys(mixtures) {
			if !yield(n) {
				return
			}
		}
		maps.Keys(seeing)(yield)
	}), ", ")
}

// ropeTheta and normEps are those of the llama family.
const (
	ropeTheta = 100000
	normEps   = 1e-5
)

// config is config.json of a shape of the llama family.
func (s shape) config() map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16",
		"hidden_size": s.hidden, "intermediate_size": s.intermediate, "num_hidden_layers": s.layers, "vocab_size": s.vocab,
		"num_attention_heads": s.heads, "num_key_value_heads": s.kvHeads, "head_dim": s.headDim,
		"max_position_embeddings": s.positions, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
		"hidden_act": "silu", "rms_norm_eps": normEps, "rope_theta": ropeTheta, "initializer_range": 0.02,
	}
}

// configOf is config.json of a shape, with the changes that the options name. The ids of tokens are those of the made-up tokenizer,
// unless another one is copied.
func configOf(o *options) ([]byte, error) {
	var c map[string]any
	if s, ok := shapes[o.shape]; ok {
		c = s.config()
	} else if m, ok := mixtures[o.shape]; ok {
		c = maps.Clone(m)
	} else if m, ok := seeing[o.shape]; ok {
		if o.layers != 0 || o.vocab != 0 {
			return nil, fmt.Errorf("shape %s has its own layers and tokens", o.shape)
		}
		return json.MarshalIndent(m, "", "  ")
	} else {
		return nil, fmt.Errorf("there is no shape %q, only %s", o.shape, names())
	}
	if o.layers != 0 {
		c["num_hidden_layers"] = o.layers
	}
	if o.vocab != 0 {
		c["vocab_size"] = o.vocab
	}
	if o.experts != 0 {
		if c["num_experts"] == nil {
			return nil, fmt.Errorf("%s has no num_experts", o.shape)
		}
		c["num_experts"] = o.experts
	}
	if o.floats || o.stacked {
		delete(c, "quantization_config")
	}
	if vocab := c["vocab_size"].(int); o.tokenizer == "" {
		c["bos_token_id"], c["eos_token_id"] = vocab-len(specials), vocab-1
	}
	return json.MarshalIndent(c, "", "  ")
}
