//go:build transformers

package transformerstest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// multimodalFamilies are models of which the text part is described. Texts alone are run.
var multimodalFamilies = map[string]family{
	"gemma3": {
		config: seeing("gemma3_text", "gemma3_text", object{
			"model_type": "gemma3", "architectures": []string{"Gemma3ForConditionalGeneration"}, "tie_word_embeddings": true,
			"vision_config":       merged(tower, object{"model_type": "siglip_vision_model", "image_size": 16, "patch_size": 4}),
			"mm_tokens_per_image": 4, "image_token_index": 310, "boi_token_index": 311, "eoi_token_index": 312,
		}),
		honours: inner("text_config", slices.DeleteFunc(slices.Clone(windowFamilies["gemma3_text"].honours), capped)),
		refuses: []refusal{
			{`text_config.use_bidirectional_attention: true`, object{"text_config.use_bidirectional_attention": true}},
			{`text_config.hidden_activation: "gelu"`, object{"text_config.hidden_activation": "gelu"}},
			{`text_config.final_logit_softcapping: 2.5 is not supported`, object{"text_config.final_logit_softcapping": 2.5}},
			{`text_config.model_type: "gemma2" is not supported`, object{"text_config.model_type": "gemma2"}},
			{`text_config.rope_scaling.type: is not supported without rope_type`, object{"text_config.rope_parameters": removed, "text_config.rope_scaling": object{"type": "linear", "factor": 4}}},
		},
		shapes: inner("text_config", with(windowFamilies["gemma3_text"].shapes, object{"vocab_size": 325})), // with the words of pictures
	},
	"gemma4": {
		config: seeing("gemma4_text", "gemma4_text", object{
			"model_type": "gemma4", "architectures": []string{"Gemma4ForConditionalGeneration"}, "tie_word_embeddings": true,
			"vision_config": merged(tower, object{"model_type": "gemma4_vision", "head_dim": 16, "num_key_value_heads": 2,
				"position_embedding_size": 850, "patch_size": 16}),
			"image_token_id": 310, "boi_token_id": 311, "eoi_token_id": 312, "video_token_id": 313, "audio_token_id": 314,
		}),
		honours: append(inner("text_config", windowFamilies["gemma4_text"].honours[:12]), object{"vision_config.use_clipped_linears": true}),
		refuses: []refusal{
			{`text_config.use_bidirectional_attention: "all"`, object{"text_config.use_bidirectional_attention": "all"}},
			{`text_config.hidden_activation: "gelu"`, object{"text_config.hidden_activation": "gelu"}},
			{`text_config.vocab_size_per_layer_input: 262144`, object{"text_config.hidden_size_per_layer_input": 8}},
			{`vision_config.pooling_kernel_size: 2 is not supported`, object{"vision_config.pooling_kernel_size": 2}},
		},
		same:     []object{{"vision_config.max_position_embeddings": 64}},
		shapes:   inner("text_config", windowFamilies["gemma4_text"].shapes),
		since:    "3.6", // which has a branch for the tower
		packages: deepBound,
	},
	"glm_ocr": {
		config: seeing("glm4", "glm_ocr_text", object{
			"model_type": "glm_ocr", "architectures": []string{"GlmOcrForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":  merged(qwenTower, object{"patch_size": 14}),
			"image_token_id": 310, "video_token_id": 311, "image_start_token_id": 312, "image_end_token_id": 313,
		}, "attention_bias"),
		honours: inner("text_config", []object{
			{"rope_parameters.rope_theta": 300},
			{"rope_parameters": object{"rope_type": "linear", "factor": 4, "rope_theta": 300, "mrope_section": []int{2, 3, 3}}},
			{"rope_parameters.partial_rotary_factor": 0.25, "rope_parameters.mrope_section": []int{1, 1, 0}},
			{"head_dim": 24, "num_key_value_heads": 1, "rope_parameters.mrope_section": []int{2, 2, 2}},
			{"rms_norm_eps": removed},
			{"rms_norm_eps": 0.1},
		}),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`mrope_section [4 5 6] does not add up`, object{"text_config.rope_parameters.mrope_section": []int{4, 5, 6}}},
			{`vision_config.spatial_merge_size: 1 is not supported`, object{"vision_config.spatial_merge_size": 1}},
		},
		shapes: []object{
			{"text_config.num_attention_heads": 6, "text_config.num_key_value_heads": 3, "text_config.head_dim": 10, "text_config.hidden_size": 60,
				"vision_config.out_hidden_size": 60, "text_config.num_hidden_layers": 1, "text_config.vocab_size": 325,
				"text_config.rope_parameters.partial_rotary_factor": 1.0, "text_config.rope_parameters.mrope_section": []int{2, 2, 1}},
			{"text_config.num_attention_heads": 3, "text_config.num_key_value_heads": 1, "text_config.head_dim": 80, "text_config.num_hidden_layers": 2,
				"text_config.rope_parameters.mrope_section": []int{10, 5, 5}},
			{"vision_config.depth": 2, "vision_config.hidden_size": 48, "vision_config.num_heads": 3, "vision_config.intermediate_size": 33,
				"vision_config.attention_bias": false},
		},
	},
	"idefics3": idefics3("idefics3", "Idefics3ForConditionalGeneration", object{"rms_norm_eps": 0.1}),
	"smolvlm":  idefics3("smolvlm", "SmolVLMForConditionalGeneration", object{"rms_norm_eps": 0.01}),
	"internvl": {
		config: seeing("qwen2-untied", "qwen2", object{
			"model_type": "internvl", "architectures": []string{"InternVLForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config": merged(tower, object{
				"model_type": "internvl_vision", "image_size": []int{32, 32}, "patch_size": []int{8, 8}, "norm_type": "layer_norm", "use_qk_norm": false,
			}),
			"image_token_id": 310,
		}),
		honours: inner("text_config", oneOf(ropes()[:6], []object{
			{"rms_norm_eps": 0.1}, {"num_key_value_heads": 1}, {"num_attention_heads": 2}, {"intermediate_size": 33},
			{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": removed},
			{"model_type": "llama", "layer_types": removed, "use_sliding_window": removed, "max_window_layers": removed, "sliding_window": removed},
		})),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.model_type: "gemma2" is not supported`, object{"text_config.model_type": "gemma2"}},
			{`vision_config.norm_type: "group_norm"`, object{"vision_config.norm_type": "group_norm"}},
			{`downsample_ratio: 0.3 is not one divided`, object{"downsample_ratio": 0.3}},
		},
		shapes: inner("text_config", with(divided, object{"layer_types": removed, "vocab_size": 325})),
	},
	"llava": {
		config: seeing("llama", "llama", object{
			"model_type": "llava", "architectures": []string{"LlavaForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":     merged(tower, object{"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8, "projection_dim": 32}),
			"image_token_index": 310, "projector_hidden_act": "gelu", "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
		}),
		honours: inner("text_config", oneOf(ropes(), []object{
			{"rms_norm_eps": 0.1}, {"attention_bias": true}, {"mlp_bias": true}, {"head_dim": 24}, {"num_key_value_heads": 1},
			{"model_type": "mistral", "attention_bias": removed, "mlp_bias": removed, "pretraining_tp": removed, "sliding_window": 16},
		})),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.model_type: "gemma2" is not supported`, object{"text_config.model_type": "gemma2"}},
			{`vision_config.model_type: "pixtral" is not supported`, object{"vision_config.model_type": "pixtral"}},
			{`vision_feature_layer: a list is not an integer`, object{"vision_feature_layer": []int{-2, -1}}},
		},
		shapes: inner("text_config", with(plain, object{"vocab_size": 325})),
	},
	"lfm2_vl": {
		config: seeing("lfm2", "lfm2", object{
			"model_type": "lfm2_vl", "architectures": []string{"Lfm2VlForConditionalGeneration"}, "tie_word_embeddings": true,
			"vision_config":  merged(tower, object{"model_type": "siglip2_vision_model", "num_patches": 16, "patch_size": 16, "vision_use_head": false}),
			"image_token_id": 310, "downsample_factor": 2, "projector_hidden_size": 40,
		}),
		honours: inner("text_config", oneOf(ropes()[:6], []object{
			{"conv_L_cache": 2}, {"conv_bias": true}, {"norm_eps": 0.1}, {"num_attention_heads": 2, "num_key_value_heads": 1},
			{"block_auto_adjust_ff_dim": true, "block_multiple_of": 32},
		})),
		refuses: []refusal{
			{`text_config.model_type: "lfm2_moe" is not supported`, object{"text_config.model_type": "lfm2_moe"}},
			{`vision_config.num_patches: 17 is not a square`, object{"vision_config.num_patches": 17}},
			{`vision_config.patch_size: 14 pixels are not supported`, object{"vision_config.patch_size": 14}},
			{`downsample_factor: 4 is not supported`, object{"downsample_factor": 4}},
		},
		same: []object{{"text_config.tie_word_embeddings": false}, {"vision_feature_layer": -1, "do_image_splitting": false}},
		shapes: inner("text_config", with(plain, object{"layer_types": kinds("v"), "vocab_size": 325}, object{"layer_types": kinds("fv")},
			object{"layer_types": kinds("vvfvf")})),
	},
	"llama4": {
		config: seeing("llama4_text", "llama4_text", object{
			"model_type": "llama4", "architectures": []string{"Llama4ForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config": merged(tower, object{
				"model_type": "llama4_vision_model", "image_size": 16, "patch_size": 4, "vision_output_dim": 64, "projector_input_dim": 64,
				"projector_output_dim": 64, "intermediate_size": 128,
			}),
			"image_token_index": 310,
		}),
		honours: inner("text_config", expertFamilies["llama4_text"].honours[3:22]),
		refuses: []refusal{
			{`text_config.num_experts_per_tok: 2 is not supported`, object{"text_config.num_experts_per_tok": 2}},
			{`text_config.rope_parameters.rope_type: "proportional"`, object{"text_config.rope_parameters": object{"rope_type": "proportional", "factor": 4}}},
		},
		shapes: inner("text_config", expertFamilies["llama4_text"].shapes),
	},
	"mistral3": {
		config: seeing("mistral", "mistral", object{
			"model_type": "mistral3", "architectures": []string{"Mistral3ForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":     merged(tower, object{"model_type": "pixtral", "image_size": 16, "patch_size": 4, "head_dim": 16}),
			"image_token_index": 310, "spatial_merge_size": 2, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
		}),
		honours: inner("text_config", oneOf(ropes()[:6], windowFamilies["mistral"].honours[6:], []object{
			merged(object{"model_type": "ministral3"}, warm([]object{now("yarn", 500, yarnScaled)})[0]),
		})),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.model_type: "llama" is not supported`, object{"text_config.model_type": "llama"}},
			{`tie_word_embeddings: true`, object{"tie_word_embeddings": true}},
		},
		shapes: inner("text_config", windowFamilies["mistral"].shapes),
	},
	"qwen2_5_omni_thinker": {
		config: seeing("qwen2-untied", "qwen2_5_omni_text", object{
			"model_type": "qwen2_5_omni_thinker", "architectures": []string{"Qwen2_5OmniThinkerForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":     merged(qwenTower, object{"patch_size": 14, "fullatt_block_indexes": []int{0}}),
			"audio_config":      object{"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "output_dim": 64},
			"audio_token_index": 310, "image_token_index": 311, "video_token_index": 312, "vision_start_token_id": 313, "vision_end_token_id": 314,
		}),
		honours: inner("text_config", slices.DeleteFunc(slices.Clone(qwenText), slides)),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`audio_config.num_mel_bins: 80`, object{"audio_config.num_mel_bins": 80}},
			{`audio_config.output_dim: 32 is not the 64`, object{"audio_config.output_dim": 32}},
			{`vision_config.spatial_merge_size: 1 is not supported`, object{"vision_config.spatial_merge_size": 1}},
		},
		shapes: []object{
			{"text_config.num_attention_heads": 6, "text_config.num_key_value_heads": 3, "text_config.hidden_size": 60, "vision_config.out_hidden_size": 60,
				"audio_config.output_dim": 60, "text_config.num_hidden_layers": 1, "text_config.vocab_size": 330, "text_config.layer_types": removed,
				"text_config.rope_parameters.mrope_section": []int{2, 2, 1}},
			{"text_config.intermediate_size": 100, "text_config.num_key_value_heads": 4},
			{"audio_config.d_model": 24, "audio_config.encoder_layers": 2, "audio_config.encoder_attention_heads": 3, "audio_config.n_window": 9},
		},
	},
	"qwen2_audio": {
		config: seeing("qwen2-untied", "qwen2", object{
			"model_type": "qwen2_audio", "architectures": []string{"Qwen2AudioForConditionalGeneration"},
			"audio_config":      object{"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16},
			"audio_token_index": 310,
		}, "tie_word_embeddings"),
		honours: inner("text_config", oneOf(ropes()[:6], []object{
			{"rms_norm_eps": 0.1}, {"num_key_value_heads": 1}, {"num_attention_heads": 2}, {"intermediate_size": 33},
			{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": removed},
		})),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.model_type: "gemma2" is not supported`, object{"text_config.model_type": "gemma2"}},
			{`audio_config.num_mel_bins: 80`, object{"audio_config.num_mel_bins": 80}},
			{`tie_word_embeddings: true`, object{"tie_word_embeddings": true}},
		},
		shapes: append(inner("text_config", with(divided, object{"layer_types": removed, "vocab_size": 330})), object{
			"audio_config.d_model": 24, "audio_config.encoder_layers": 2, "audio_config.encoder_attention_heads": 3,
		}),
	},
	"qwen2_vl": {
		config: seeing("qwen2-untied", "qwen2_vl_text", object{
			"model_type": "qwen2_vl", "architectures": []string{"Qwen2VLForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":  object{"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 1},
			"image_token_id": 310, "video_token_id": 311, "vision_start_token_id": 312, "vision_end_token_id": 313,
		}),
		honours: inner("text_config", oneOf(slices.DeleteFunc(slices.Clone(qwenText), slides), []object{
			{"rope_parameters": removed, "rope_theta": 300, "rope_scaling": object{"type": "mrope", "mrope_section": []int{2, 3, 3}}},
			{"rope_parameters": object{"rope_type": "linear", "factor": 4, "rope_theta": 300, "mrope_section": []int{2, 3, 3}}},
		})),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.attention_bias: unknown`, object{"text_config.attention_bias": false}},
			{`text_config.use_sliding_window: windows together`, object{
				"text_config.use_sliding_window": true, "text_config.sliding_window": 16, "text_config.max_window_layers": 1, "text_config.layer_types": removed}},
			{`mrope_section [4 5 6] does not add up`, object{"text_config.rope_parameters.mrope_section": []int{4, 5, 6}}},
			{`vision_config.spatial_merge_size: 1 is not supported`, object{"vision_config.spatial_merge_size": 1}},
		},
		same: []object{
			{"text_config.sliding_window": 16, "text_config.max_window_layers": 0}, {"text_config.rope_parameters.rope_type": removed},
			{"vision_config.rope_parameters": object{"rope_theta": 1e4}},
		},
		shapes: []object{
			{"text_config.num_attention_heads": 6, "text_config.num_key_value_heads": 3, "text_config.hidden_size": 60, "vision_config.hidden_size": 60,
				"text_config.num_hidden_layers": 1, "text_config.vocab_size": 325, "text_config.layer_types": removed,
				"text_config.rope_parameters.mrope_section": []int{2, 2, 1}},
			{"text_config.num_attention_heads": 3, "text_config.num_key_value_heads": 1, "text_config.hidden_size": 240, "vision_config.hidden_size": 240,
				"text_config.num_hidden_layers": 2, "text_config.layer_types": removed, "text_config.rope_parameters.mrope_section": []int{20, 10, 10}},
			{"vision_config.depth": 2, "vision_config.embed_dim": 48, "vision_config.num_heads": 3, "vision_config.mlp_ratio": 2},
		},
	},
	"qwen2_5_vl": {
		config: flat(seeing("qwen2-untied", "qwen2_5_vl_text", object{
			"model_type": "qwen2_5_vl", "architectures": []string{"Qwen2_5_VLForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":  merged(qwenTower, object{"patch_size": 14, "fullatt_block_indexes": []int{0}}),
			"image_token_id": 310, "video_token_id": 311, "vision_start_token_id": 312, "vision_end_token_id": 313,
		})),
		honours: oneOf(slices.DeleteFunc(slices.Clone(qwenText), slides), []object{
			{"rope_parameters": removed, "rope_theta": 300, "rope_scaling": object{"type": "mrope", "mrope_section": []int{2, 3, 3}}},
		}),
		refuses: []refusal{
			{`hidden_act: "gelu"`, object{"hidden_act": "gelu"}},
			{`use_sliding_window: windows together`, object{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": removed}},
			{`vision_config.window_size: is less than a cell`, object{"vision_config.window_size": 20}},
		},
		same: []object{
			{"sliding_window": 16, "max_window_layers": 0}, {"rope_parameters.rope_type": removed},
			{"vision_config.window_size": 56, "vision_config.fullatt_block_indexes": []int{}},
		},
		shapes: []object{
			{"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 60, "vision_config.out_hidden_size": 60, "num_hidden_layers": 1,
				"vocab_size": 325, "layer_types": removed, "rope_parameters.mrope_section": []int{2, 2, 1}},
			{"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 240, "vision_config.out_hidden_size": 240, "num_hidden_layers": 2,
				"layer_types": removed, "rope_parameters.mrope_section": []int{20, 10, 10}},
			{"vision_config.depth": 2, "vision_config.hidden_size": 48, "vision_config.num_heads": 3, "vision_config.intermediate_size": 33},
		},
	},
	"qwen3_vl": {
		config: seeing("qwen3-untied", "qwen3_vl_text", object{
			"model_type": "qwen3_vl", "architectures": []string{"Qwen3VLForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":  merged(qwenTower, object{"patch_size": 16, "depth": 3, "deepstack_visual_indexes": []int{0, 1, 2}, "num_position_embeddings": 16}),
			"image_token_id": 310, "video_token_id": 311, "vision_start_token_id": 312, "vision_end_token_id": 313,
		}, "layer_types", "sliding_window", "use_sliding_window", "max_window_layers"),
		honours: inner("text_config", oneOf(qwen3Text, each("head_dim", removed))),
		refuses: []refusal{
			{`vision_config.deepstack_visual_indexes: 2 layers instead of 3`, object{"vision_config.deepstack_visual_indexes": []int{0, 1}}},
			{`vision_config.num_position_embeddings: 17 is not a square`, object{"vision_config.num_position_embeddings": 17}},
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.use_sliding_window: true`, object{"text_config.use_sliding_window": true, "text_config.sliding_window": 16, "text_config.max_window_layers": 0}},
			{`text_config.layer_types`, object{"text_config.use_sliding_window": true, "text_config.sliding_window": 16, "text_config.layer_types": kinds("sfs")}},
		},
		same:   []object{{"text_config.rope_parameters.mrope_interleaved": true}},
		shapes: seen(plain),
	},
	"qwen3_vl_moe": {
		config: seeing("qwen3_moe", "qwen3_vl_moe_text", object{
			"model_type": "qwen3_vl_moe", "architectures": []string{"Qwen3VLMoeForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":  merged(qwenTower, object{"patch_size": 16, "depth": 3, "deepstack_visual_indexes": []int{0, 1, 2}, "num_position_embeddings": 16}),
			"image_token_id": 310, "video_token_id": 311, "vision_start_token_id": 312, "vision_end_token_id": 313,
		}, "sliding_window", "use_sliding_window"),
		honours: inner("text_config", oneOf(qwen3Text, []object{
			{"num_experts_per_tok": 1},
			{"num_local_experts": 6},
			{"mlp_only_layers": []int{}},
			{"decoder_sparse_step": 2},
			{"moe_intermediate_size": 20},
		})),
		refuses: []refusal{
			{`text_config.num_experts_per_tok: 9 of 8`, object{"text_config.num_experts_per_tok": 9}},
			{`text_config.norm_topk_prob: false`, object{"text_config.norm_topk_prob": false}},
			{`text_config.use_sliding_window: true`, object{"text_config.use_sliding_window": true, "text_config.sliding_window": 16}},
		},
		shapes: seen(with(plain, object{"num_local_experts": 5, "num_experts_per_tok": 3, "mlp_only_layers": []int{}},
			object{"num_local_experts": 3, "num_experts_per_tok": 1},
			object{"moe_intermediate_size": 33, "mlp_only_layers": []int{1, 3}})),
	},
	"qwen3_5": {
		config: seeing("qwen3_5_text", "qwen3_5_text", object{
			"model_type": "qwen3_5", "architectures": []string{"Qwen3_5ForConditionalGeneration"}, "tie_word_embeddings": true,
			"vision_config":  merged(qwenTower, object{"patch_size": 16, "num_position_embeddings": 16}),
			"image_token_id": 310, "video_token_id": 311, "vision_start_token_id": 312, "vision_end_token_id": 313,
		}),
		honours: inner("text_config", oneOf(ropes(0.25)[:3], qwenHybrid)),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.attn_output_gate: false`, object{"text_config.attn_output_gate": false}},
			{`vision_config.num_position_embeddings: 17 is not a square`, object{"vision_config.num_position_embeddings": 17}},
		},
		shapes: seen(qwenHybridShapes),
	},
	"qwen3_5_moe": {
		config: seeing("qwen3_5_moe_text", "qwen3_5_moe_text", object{
			"model_type": "qwen3_5_moe", "architectures": []string{"Qwen3_5MoeForConditionalGeneration"}, "tie_word_embeddings": false,
			"vision_config":  merged(qwenTower, object{"patch_size": 16, "num_position_embeddings": 16}),
			"image_token_id": 310, "video_token_id": 311, "vision_start_token_id": 312, "vision_end_token_id": 313,
		}),
		honours: inner("text_config", oneOf(qwenHybrid, []object{{"num_experts_per_tok": 1}, {"num_experts": 6}, {"shared_expert_intermediate_size": 40}})),
		refuses: []refusal{
			{`text_config.num_experts_per_tok: 5 of 4`, object{"text_config.num_experts_per_tok": 5}},
			{`text_config.norm_topk_prob: false`, object{"text_config.norm_topk_prob": false}},
		},
		shapes: seen(qwenHybridShapes),
	},
}

// Vision towers as small as they can be.
var (
	tower     = object{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
	qwenTower = object{
		"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64, "patch_size": 4,
		"spatial_merge_size": 2, "temporal_patch_size": 2,
	}
)

// qwenText are changes of the text models of Qwen2-VL and 2.5-VL.
var qwenText = []object{
	{"rope_parameters.rope_theta": 300},
	{"rms_norm_eps": 0.1},
	{"num_key_value_heads": 1},
	{"num_attention_heads": 2, "rope_parameters.mrope_section": []int{6, 5, 5}},
	{"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": removed},
	{"use_sliding_window": true, "sliding_window": 9, "layer_types": kinds("sfs")},
	{"intermediate_size": 33},
}

// qwen3Text are those of the text models of Qwen3-VL.
var qwen3Text = []object{
	{"rope_parameters.rope_theta": 300},
	{"rope_parameters": removed},
	{"rope_parameters": removed, "rope_theta": 300, "rope_scaling": object{"rope_type": "default", "mrope_section": []int{4, 2, 2}, "mrope_interleaved": true}},
	{"rms_norm_eps": 0.1},
	{"num_key_value_heads": 1},
	{"attention_bias": true},
	{"head_dim": 24},
	{"intermediate_size": 33},
}

// slides are changes that give layers a window.
func slides(change object) bool { return change["use_sliding_window"] == true }

// seen are shapes of text models of towers whose rows are as wide, with the tokens of pictures.
func seen(shapes []object) []object {
	list := inner("text_config", shapes)
	for i, x := range shapes {
		if n, ok := x["hidden_size"]; ok {
			list[i]["vision_config.out_hidden_size"] = n
		}
		if _, ok := x["vocab_size"]; ok {
			list[i]["text_config.vocab_size"] = 325 + i
		}
	}
	return list
}

// capped are changes that bound logits.
func capped(change object) bool { _, ok := change["final_logit_softcapping"]; return ok }

// idefics3 is the table of a model of the kind of Idefics3.
func idefics3(modelType, architecture string, more object) family {
	return family{
		config: seeing("llama", "llama", object{
			"model_type": modelType, "architectures": []string{architecture}, "tie_word_embeddings": false,
			"vision_config":  merged(tower, object{"model_type": modelType + "_vision", "image_size": 32, "patch_size": 8}),
			"image_token_id": 310, "scale_factor": 2,
		}),
		honours: inner("text_config", oneOf(ropes()[:6], []object{
			more, {"attention_bias": true}, {"mlp_bias": true}, {"head_dim": 24}, {"num_key_value_heads": 1},
		})),
		refuses: []refusal{
			{`text_config.hidden_act: "gelu"`, object{"text_config.hidden_act": "gelu"}},
			{`text_config.model_type: "mistral" is not supported`, object{"text_config.model_type": "mistral"}},
			{`vision_config.image_size: 19 patches in a row`, object{"vision_config.image_size": 152}},
			{`scale_factor: 4 x 4 patches do not divide`, object{"scale_factor": 3}},
		},
		shapes: inner("text_config", with(plain, object{"vocab_size": 335})), // with the words of tiles
	}
}

// flat is a config whose text keys are next to the others, as in files of Qwen2-VL and 2.5-VL.
func flat(config func(t *testing.T) object) func(t *testing.T) object {
	return func(t *testing.T) object {
		t.Helper()
		whole := config(t)
		text := whole["text_config"].(object)
		delete(text, "model_type")
		delete(whole, "text_config")
		return merged(text, whole)
	}
}

// seeing is the config of a multimodal model around a text model with the keys of a checkpoint, without some of them.
func seeing(text, modelType string, outer object, without ...string) func(t *testing.T) object {
	return func(t *testing.T) object {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "arch", "testdata", text, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		config := parse(t, b)
		for _, key := range append(without, "architectures", "dtype", "transformers_version") {
			delete(config, key)
		}
		config["model_type"] = modelType
		switch {
		case strings.HasPrefix(modelType, "qwen2_"):
			config["rope_parameters"].(object)["mrope_section"] = []int{2, 3, 3}
		case modelType == "glm_ocr_text":
			config["rope_parameters"].(object)["mrope_section"] = []int{1, 1, 2}
		}
		config["vocab_size"] = 330 // with the tokens of pictures
		whole := merged(outer, object{"text_config": config})
		// Numbers as they would be read from a file.
		if b, err = json.Marshal(whole); err != nil {
			t.Fatal(err)
		}
		return parse(t, b)
	}
}
