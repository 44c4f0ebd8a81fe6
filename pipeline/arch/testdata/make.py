"""Makes the checkpoints of this directory, with logits that transformers computes from them.

    python make.py [NAME ...]           makes them again; what it would make the same is left as it is
    python make.py --check [NAME ...]   makes them elsewhere, and fails where they differ

Every weight, gain and bias is random, so that one that is lost or misplaced shows, and rounded to bfloat16. NAME/golden.safetensors
has the logits in float32 (logits_K) of two texts (ids_K): 24 tokens, and 96, which is more than the windows and the lengths before
rotary scaling. Needs what the Makefile calls TRANSFORMERS and TORCH; `make fixtures` installs it and runs this.

To add one: a line in CHECKPOINTS, in VISION, FASTVLM or MINICPMV if it reads pictures, in SOUND or LFM2_AUDIO if it reads sound, or in TWINS where transformers has no class; keep it under 250 KB, with the options of SMALL.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zlib

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import fastvlm
import lfm2audio
import minicpmv

HERE = pathlib.Path(__file__).resolve().parent

# What a config of a new checkpoint says, unless its line says otherwise.
COMMON = dict(vocab_size=320, max_position_embeddings=512, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2, pad_token_id=0)
SMALL = dict(COMMON, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
BASE = dict(COMMON, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)

# Differences in logits that another CPU may cause: 4e-5 have been seen behind recurrent layers, which add up what they differ by.
TOLERANCE = 1e-4


def rope(**options):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **options}}


YARN = dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=64)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
MULTIPLIERS = dict(embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, attention_multiplier=0.0625)
MAMBA = dict(mamba_n_heads=8, mamba_n_groups=1, mamba_d_state=16, mamba_d_head=16, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=32)
DELTA = dict(head_dim=16, num_hidden_layers=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4)
LATENT = dict(kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16, num_key_value_heads=4)
SLIM_LATENT = dict(q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4)
GEMMA4 = dict(
    head_dim=8, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=16, hidden_size_per_layer_input=0,
    final_logit_softcapping=5.0, tie_word_embeddings=True)
EDGE = dict(
    GEMMA4, attention_k_eq_v=False, num_global_key_value_heads=None, hidden_size_per_layer_input=16, vocab_size_per_layer_input=320,
    num_kv_shared_layers=3, use_double_wide_mlp=True)
SLIDING, FULL = "sliding_attention", "full_attention"

# By name: the class without its ending, the options of its config over BASE (a key that is ... is left out), and what the seed is
# made of where that is not the name.
CHECKPOINTS = {
    "apertus": ("Apertus", rope(**LLAMA3)),
    "arcee": ("Arcee", rope()),
    "axk1": ("AXK1", dict(
        SMALL, **SLIM_LATENT, tie_word_embeddings=True, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2, n_shared_experts=1,
        moe_intermediate_size=16, mlp_layer_types=["dense", "sparse"], **rope(**YARN, mscale=1.0, mscale_all_dim=1.0))),
    "bamba": ("Bamba", dict(num_hidden_layers=4, attn_layer_indices=[2], attn_rotary_emb=8, **MAMBA, **rope())),
    "bitnet": ("BitNet", rope()),
    "bloom": ("Bloom", dict(n_head=4, n_layer=3, layer_norm_epsilon=1e-5)),
    "cohere": ("Cohere", dict(logit_scale=0.0625, use_qk_norm=False, **rope())),
    "cohere-norms": ("Cohere", dict(SMALL, logit_scale=0.8333333333333334, use_qk_norm=True, **rope(rope_theta=75e6))),
    "cohere2": ("Cohere2", dict(head_dim=16, sliding_window=16, num_hidden_layers=4, logit_scale=0.25, layer_types=[SLIDING] * 3 + [FULL], **rope())),
    "cwm": ("Cwm", dict(
        SMALL, head_dim=16, intermediate_size=32, sliding_window=16, num_hidden_layers=3, mlp_bias=True,
        tie_word_embeddings=True, eos_token_id=[2], **rope(**dict(LLAMA3, rope_theta=1e6, factor=16.0)))),
    "deepseek_v2": ("DeepseekV2", dict(
        LATENT, q_lora_rank=None, n_routed_experts=8, num_experts_per_tok=3, n_group=1, topk_group=1, topk_method="greedy", n_shared_experts=2,
        first_k_dense_replace=1, moe_intermediate_size=48, **rope(**YARN, mscale=0.707, mscale_all_dim=0.707)), "deepseek-v2"),
    "deepseek_v3": ("DeepseekV3", dict(
        LATENT, q_lora_rank=32, n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1, n_shared_experts=1,
        first_k_dense_replace=1, moe_intermediate_size=48, **rope()), "deepseek-v3"),
    "dots1": ("Dots1", dict(
        head_dim=16, n_routed_experts=8, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1, first_k_dense_replace=1,
        moe_intermediate_size=48, routed_scaling_factor=2.5, norm_topk_prob=True, sliding_window=None, **rope())),
    "ernie4_5": ("Ernie4_5", dict(head_dim=16, use_bias=False, tie_word_embeddings=True, **rope(rope_theta=5e5)), "ernie4-5"),
    "ernie4_5_moe": ("Ernie4_5_Moe", dict(
        head_dim=16, moe_num_experts=8, moe_k=2, moe_num_shared_experts=1, moe_intermediate_size=48, moe_layer_start_index=1,
        moe_layer_end_index=2, moe_layer_interval=1, **rope()), "ernie-moe"),
    "exaone4": ("Exaone4", dict(
        head_dim=16, sliding_window=16, sliding_window_pattern=4, num_hidden_layers=4, layer_types=[SLIDING] * 3 + [FULL], **rope())),
    "falcon_h1": ("FalconH1", dict(
        MAMBA, mamba_d_ssm=128, attention_in_multiplier=0.7, attention_out_multiplier=0.8, key_multiplier=0.6, embedding_multiplier=3.0,
        lm_head_multiplier=0.5, mlp_multipliers=[0.9, 0.7], ssm_in_multiplier=1.2, ssm_out_multiplier=0.6,
        ssm_multipliers=[0.9, 0.8, 1.1, 0.7, 1.3], head_dim=16, **rope()), "falconh1"),
    "gemma": ("Gemma", dict(head_dim=16, **rope())),
    "gemma2": ("Gemma2", dict(
        head_dim=16, sliding_window=16, query_pre_attn_scalar=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **rope())),
    "gemma3_text": ("Gemma3", dict(
        head_dim=16, sliding_window=16, query_pre_attn_scalar=24, num_hidden_layers=7, rope_parameters={
            FULL: {"rope_type": "default", "rope_theta": 1e6}, SLIDING: {"rope_type": "default", "rope_theta": 1e4}}), "gemma3-text"),
    "gemma4_text": ("Gemma4", dict(SMALL, **GEMMA4, intermediate_size=24, num_hidden_layers=3, layer_types=[FULL, SLIDING, FULL])),
    "gemma4_text-moe": ("Gemma4", dict(
        SMALL, **GEMMA4, intermediate_size=32, layer_types=[SLIDING, FULL], enable_moe_block=True, num_experts=3, top_k_experts=2,
        moe_intermediate_size=12)),
    "gemma4_text-edge": ("Gemma4", dict(SMALL, **EDGE, intermediate_size=24, num_hidden_layers=5, layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL])),
    "gemma4_text-keys": ("Gemma4", dict(
        SMALL, **dict(EDGE, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=24, num_kv_shared_layers=2),
        intermediate_size=24, num_hidden_layers=4, layer_types=[SLIDING, FULL] * 2)),
    "gemma4_text-untied": ("Gemma4", dict(
        SMALL, **dict(EDGE, tie_word_embeddings=False, hidden_size_per_layer_input=12, num_kv_shared_layers=0, final_logit_softcapping=None),
        intermediate_size=24, layer_types=[SLIDING, FULL])),
    "glm": ("Glm", dict(head_dim=16, attention_bias=True, **rope(partial_rotary_factor=0.5))),
    "glm4": ("Glm4", dict(head_dim=16, attention_bias=True, **rope(partial_rotary_factor=0.5))),
    "glm4_moe": ("Glm4Moe", dict(
        head_dim=16, use_qk_norm=True, n_routed_experts=8, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1,
        first_k_dense_replace=1, moe_intermediate_size=48, attention_bias=True, **rope(partial_rotary_factor=0.5)), "glm4moe"),
    "gpt2": ("GPT2", dict(
        SMALL, num_attention_heads=..., num_key_value_heads=..., intermediate_size=..., rms_norm_eps=..., n_head=4, n_inner=48,
        max_position_embeddings=128)),
    "glm4_moe_lite": ("Glm4MoeLite", dict(
        SMALL, q_lora_rank=24, kv_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=16, num_attention_heads=2,
        intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16,
        mlp_layer_types=["dense", "sparse"], tie_word_embeddings=True, **rope(rope_theta=1e6))),
    "gpt_neox": ("GPTNeoX", dict(use_parallel_residual=True, **rope(partial_rotary_factor=0.25)), "gptneox"),
    "gpt_oss": ("GptOss", dict(
        head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=16, intermediate_size=64, num_hidden_layers=4,
        **rope(**dict(YARN, rope_theta=150000.0, truncate=False))), "gpt-oss"),
    "granite": ("Granite", dict(MULTIPLIERS, tie_word_embeddings=True, **rope())),
    "granitemoe": ("GraniteMoe", dict(MULTIPLIERS, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True, **rope())),
    "granitemoehybrid": ("GraniteMoeHybrid", dict(
        MAMBA, **MULTIPLIERS, num_hidden_layers=4, layer_types=["mamba", "mamba", "attention", "mamba"], num_local_experts=0,
        num_experts_per_tok=0, shared_intermediate_size=96, position_embedding_type="nope", tie_word_embeddings=True), "granitehybrid"),
    "granitemoeshared": ("GraniteMoeShared", dict(
        SMALL, **MULTIPLIERS, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=24,
        tie_word_embeddings=True, **rope())),
    "helium": ("Helium", dict(head_dim=16, **rope())),
    "hunyuan_v1_dense": ("HunYuanDenseV1", dict(
        head_dim=16, tie_word_embeddings=True, **rope(rope_type="dynamic", alpha=1000.0, factor=1.0)), "hunyuan-dense"),
    "hunyuan_v1_moe": ("HunYuanMoEV1", dict(
        head_dim=16, intermediate_size=48, num_experts=4, moe_topk=2, **rope(rope_type="dynamic", alpha=1000.0, factor=1.0)), "hunyuan-moe"),
    "hyperclovax": ("HyperCLOVAX", dict(
        SMALL, head_dim=16, embedding_multiplier=6.0, logits_scaling=0.5, residual_multiplier=0.5, attention_multiplier=0.0625,
        use_post_norm=True, tie_word_embeddings=True, **rope())),
    "lfm2": ("Lfm2", dict(
        num_hidden_layers=4, conv_L_cache=3, layer_types=["conv", "conv", FULL, "conv"], block_auto_adjust_ff_dim=False, block_ff_dim=160,
        **rope(rope_theta=1e6))),
    "lfm2_moe": ("Lfm2Moe", dict(
        num_hidden_layers=4, conv_L_cache=3, layer_types=["conv", "conv", FULL, "conv"], num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=48, num_dense_layers=1, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0,
        **rope(rope_theta=1e6)), "lfm2moe"),
    "llama": ("Llama", dict(tie_word_embeddings=False, **rope(rope_theta=5e5))),
    "llama-bias": ("Llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, **rope())),
    "llama-linear-rope": ("Llama", dict(tie_word_embeddings=True, **rope(rope_type="linear", factor=4.0))),
    "llama3-rope": ("Llama", dict(tie_word_embeddings=True, **rope(**LLAMA3))),
    "llama4_text": ("Llama4", dict(
        head_dim=16, intermediate_size=48, intermediate_size_mlp=96, num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=1, attention_chunk_size=16,
        interleave_moe_layer_step=2, no_rope_layers=[1, 1, 1, 0], attn_temperature_tuning=True, floor_scale=8, attn_scale=0.1, use_qk_norm=True,
        **rope()), "llama4"),
    "llama4_text-dense": ("Llama4", dict(
        SMALL, head_dim=16, intermediate_size_mlp=56, moe_layers=[], interleave_moe_layer_step=0, num_local_experts=0,
        num_experts_per_tok=0, attention_chunk_size=16, no_rope_layers=[1, 1], use_qk_norm=True, attn_temperature_tuning=False,
        tie_word_embeddings=True, **rope(rope_theta=1e6))),
    "minicpm3": ("MiniCPM3", dict(LATENT, q_lora_rank=32, scale_emb=12, scale_depth=1.4, dim_model_base=16, **rope())),
    "minimax_m2": ("MiniMaxM2", dict(
        head_dim=16, intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, **rope(partial_rotary_factor=0.5)), "minimaxm2"),
    "ministral": ("Ministral", dict(head_dim=16, sliding_window=16, num_hidden_layers=4, layer_types=[SLIDING, FULL] * 2, **rope())),
    "ministral3": ("Ministral3", dict(SMALL, head_dim=16, sliding_window=40, tie_word_embeddings=True, **rope(
        rope_type="yarn", rope_theta=1e6, factor=16.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    "mistral": ("Mistral", dict(head_dim=16, sliding_window=16, tie_word_embeddings=False, **rope(rope_theta=1e6)), "mistral-sliding"),
    "mixtral": ("Mixtral", dict(intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **rope())),
    "nemotron": ("Nemotron", rope(partial_rotary_factor=0.5)),
    "olmo": ("Olmo", dict(clip_qkv=None, **rope())),
    "olmo-clip": ("Olmo", dict(SMALL, intermediate_size=48, clip_qkv=0.5, **rope())),
    "olmo2": ("Olmo2", dict(tie_word_embeddings=False, **rope(rope_theta=5e5))),
    "olmo3": ("Olmo3", dict(sliding_window=16, num_hidden_layers=4, layer_types=[SLIDING] * 3 + [FULL], **rope(**YARN))),
    "olmoe": ("Olmoe", dict(intermediate_size=48, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=None, **rope())),
    "opt": ("OPT", dict(
        SMALL, num_key_value_heads=..., intermediate_size=..., rms_norm_eps=..., ffn_dim=48, max_position_embeddings=128)),
    "olmoe-clip": ("Olmoe", dict(
        SMALL, intermediate_size=24, tie_word_embeddings=True, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=0.7, **rope())),
    "phi": ("Phi", rope(partial_rotary_factor=0.5)),
    "phi3": ("Phi3", dict(tie_word_embeddings=False, sliding_window=32, **rope())),
    "phi3-longlen": ("Phi3", dict(tie_word_embeddings=True, original_max_position_embeddings=64, **rope(
        rope_type="longrope", short_factor=[1.0 + 0.05 * i for i in range(8)], long_factor=[1.0 + 0.6 * i for i in range(8)],
        original_max_position_embeddings=64)), "phi-longlen"),
    "phi3-longrope": ("Phi3", dict(tie_word_embeddings=True, original_max_position_embeddings=64, **rope(
        rope_type="longrope", partial_rotary_factor=0.75, short_factor=[1.0 + 0.05 * i for i in range(6)],
        long_factor=[1.0 + 0.6 * i for i in range(6)], original_max_position_embeddings=64))),
    "phimoe": ("Phimoe", dict(
        SMALL, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.2, attention_bias=True, lm_head_bias=True,
        **rope(rope_type="longrope", short_factor=[1.0 + 0.05 * i for i in range(4)], long_factor=[1.0 + 0.6 * i for i in range(4)],
               short_mscale=1.2, long_mscale=1.2, original_max_position_embeddings=128))),
    "qwen2-slide": ("Qwen2", dict(use_sliding_window=True, sliding_window=16, max_window_layers=1, **rope())),
    "qwen2-tied": ("Qwen2", dict(tie_word_embeddings=True, **rope(rope_theta=1e6))),
    "qwen2-untied": ("Qwen2", dict(tie_word_embeddings=False, **rope(rope_theta=1e6))),
    "qwen2_moe": ("Qwen2Moe", dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=96, norm_topk_prob=False,
        **rope()), "qwen2-moe"),
    "qwen3-tied": ("Qwen3", dict(head_dim=32, tie_word_embeddings=True, **rope(rope_theta=1e6))),
    "qwen3-untied": ("Qwen3", dict(head_dim=16, tie_word_embeddings=False, **rope(rope_theta=1e6))),
    "qwen3_5_moe_text": ("Qwen3_5Moe", dict(
        DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=48,
        **rope(rope_theta=1e7, partial_rotary_factor=0.25)), "qwen35moe"),
    "qwen3_5_text": ("Qwen3_5", dict(DELTA, tie_word_embeddings=True, **rope(rope_theta=1e7, partial_rotary_factor=0.25)), "qwen3-5-text"),
    "qwen3_moe": ("Qwen3Moe", dict(
        head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True, mlp_only_layers=[0],
        decoder_sparse_step=1, tie_word_embeddings=False, **rope(rope_theta=1e6)), "qwen3-moe"),
    "qwen3_next": ("Qwen3Next", dict(
        DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=48, mlp_only_layers=[],
        **rope(rope_theta=1e7, partial_rotary_factor=0.25)), "qwen3-next"),
    "seed_oss": ("SeedOss", dict(head_dim=16, attention_bias=True, **rope()), "seedoss"),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], tie_word_embeddings=True, **rope(rope_theta=5e6))),
    "solar_open": ("SolarOpen", dict(
        SMALL, head_dim=16, tie_word_embeddings=True, attention_bias=True, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
        moe_intermediate_size=8, routed_scaling_factor=1.5, **rope(**dict(YARN, rope_theta=1e6, factor=2.0)))),
    "stablelm": ("StableLm", dict(use_qkv_bias=True, use_parallel_residual=False, qk_layernorm=False, **rope(partial_rotary_factor=0.25))),
    "stablelm-norms": ("StableLm", dict(
        SMALL, intermediate_size=48, use_qkv_bias=False, use_parallel_residual=True, qk_layernorm=True, **rope(partial_rotary_factor=0.5))),
    "starcoder2": ("Starcoder2", dict(sliding_window=16, use_bias=True, **rope())),
    # Without a token for padding: its class clears that token's row of the table when it loads weights.
    "youtu": ("Youtu", dict(
        SMALL, **SLIM_LATENT, tie_word_embeddings=True, pad_token_id=None, **rope(rope_theta=16e5))),
}


# Those that compute something else where the second text comes token by token (logits_decode).
STEPWISE = {"phi3-longlen", "phi3-longrope"}


# Models whose code is in their repositories, as another family computes them: by name, a line as in CHECKPOINTS, and a function
# that turns the config and the tensors of that family into those of the twin. The logits are the other family's.
def bailing_moe(config, tensors):
    """Ling from Qwen2-MoE, whose shared experts have a gate: a gate without weights halves what they give."""
    out = {}
    for name, t in tensors.items():
        if "q_proj" in name:
            name, t = name.replace("q_proj", "query_key_value"), torch.cat([tensors[name.replace("q_proj", x + "_proj")] for x in "qkv"])
        elif "k_proj" in name or "v_proj" in name or "shared_expert_gate" in name:
            continue
        elif "shared_expert.down_proj" in name:
            t = t * 0.5
        for old, new in (("embed_tokens", "word_embeddings"), ("self_attn.", "attention."), ("o_proj", "dense"), ("shared_expert.", "shared_experts.")):
            name = name.replace(old, new)
        out[name] = t
    keys = ("bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings", "moe_intermediate_size",
            "norm_topk_prob", "num_attention_heads", "num_experts", "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads", "pad_token_id",
            "rms_norm_eps", "tie_word_embeddings", "vocab_size")
    return {k: config[k] for k in keys} | {
        "architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "first_k_dense_replace": 1, "num_shared_experts": 2,
        "norm_head": False, "rope_theta": 10000.0, "torch_dtype": "bfloat16", "use_bias": False, "use_qkv_bias": True}, out


def exaone(config, tensors):
    keys = ("bos_token_id", "eos_token_id", "head_dim", "hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads",
            "num_key_value_heads", "pad_token_id", "tie_word_embeddings", "vocab_size")
    scaling = dict(config["rope_parameters"])
    out = {k: config[k] for k in keys} | {
        "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "activation_function": "silu", "layer_norm_epsilon": config["rms_norm_eps"],
        "num_layers": config["num_hidden_layers"], "rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling, "torch_dtype": "bfloat16"}
    names = (("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"), ("model.layers", "transformer.h"),
             ("self_attn.", "attn.attention."), ("o_proj", "out_proj"), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
             ("gate_proj", "c_fc_0"), ("up_proj", "c_fc_1"), ("down_proj", "c_proj"))
    return out, renamed(tensors, names)


def mimo(config, tensors):
    """MiMo from Qwen2, with a layer that guesses one token more."""
    draft = {f"model.mtp_layers.0.{x}_layernorm.weight": tensors["model.norm.weight"] for x in ("token", "hidden", "final")}
    draft["model.mtp_layers.0.input_proj.weight"] = torch.cat([tensors["model.layers.0.self_attn.o_proj.weight"]] * 2, 1)
    draft |= {k.replace("layers.0", "mtp_layers.0"): v.clone() for k, v in tensors.items() if k.startswith("model.layers.0.")}
    keys = [k for k in config if k not in ("layer_types", "max_window_layers", "sliding_window", "use_sliding_window")]
    return {k: config[k] for k in keys} | {
        "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "attention_bias": True, "num_nextn_predict_layers": 1}, tensors | draft


def renamed(tensors, names):
    """The tensors with parts of their names replaced."""
    out = {}
    for name, t in tensors.items():
        for old, new in names:
            name = name.replace(old, new)
        out[name] = t
    return out


def internlm3(config, tensors):
    return {k: v for k, v in config.items() if k != "pretraining_tp"} | {"model_type": "internlm3"}, tensors


def iquestcoder(config, tensors):
    config = {k: v for k, v in config.items() if k != "pretraining_tp"}
    return config | {"model_type": "iquestcoder", "architectures": ["IQuestCoderForCausalLM"]}, tensors


TWINS = {
    "bailing_moe": ("Qwen2Moe", dict(
        SMALL, intermediate_size=32, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=16, shared_expert_intermediate_size=32, norm_topk_prob=True,
        mlp_only_layers=[0], **rope()), bailing_moe),
    "exaone": ("Llama", dict(SMALL, tie_word_embeddings=True, **rope(**LLAMA3)), exaone),
    "internlm3": ("Llama", dict(head_dim=16, **rope()), internlm3),
    "mimo": ("Qwen2", dict(SMALL, tie_word_embeddings=True, **rope(rope_theta=640000.0)), mimo),
    "iquestcoder": ("Llama", dict(
        SMALL, head_dim=16, intermediate_size=40, attention_bias=True, mlp_bias=True, **rope(rope_theta=5e5)), iquestcoder),
}


# Models that read pictures: by name, the class, the options of its text model over SMALL with its type, those of its vision
# transformer, those of the whole, and what preprocessor_config.json says, if there is one. pictures.safetensors has a prompt with two
# pictures and twelve tokens after it, then a second prompt with a third picture: ids, the rows of the pictures, and logits.
PICTURE_TOKENS = ["<image>", "<img>", "</img>", "<IMG_CONTEXT>"]
QWEN_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TILE_TOKENS = ["<fake_token_around_image>", "<image>", "<global-img>"] + [f"<row_{i}_col_{j}>" for i in (1, 2, 3) for j in (1, 2, 3)]
TILES = ("<image>", "<fake_token_around_image>", "<fake_token_around_image>")
GLM_TOKENS = ["<|begin_of_image|>", "<|end_of_image|>", "<|image|>"]
GEMMA_TOKENS = ["<start_of_image>", "<end_of_image>", "<image_soft_token>"]
GEMMA4_TOKENS = ["<|image|>", "<|image>", "<image|>"]
LFM_TOKENS = ["<image>", "<|image_start|>", "<|image_end|>"]
LFM = ("<image>", "<|image_start|>", "<|image_end|>")
GEMMA = ("<image_soft_token>", "<start_of_image>", "<end_of_image>")
GEMMA4_MARKS = ("<|image|>", "<|image>", "<image|>")
QWEN2_VL = dict(depth=2, embed_dim=24, num_heads=2, mlp_ratio=2, patch_size=14, hidden_size=32)
QWEN2_5_VL = dict(depth=3, hidden_size=24, intermediate_size=20, num_heads=2, patch_size=14, out_hidden_size=32, window_size=56, fullatt_block_indexes=[1])
GLM_OCR = dict(depth=2, hidden_size=24, intermediate_size=20, num_heads=2, patch_size=14, out_hidden_size=32)
DELTA_SMALL = dict(DELTA, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
QWEN3_VL = dict(
    depth=4, hidden_size=24, intermediate_size=20, num_heads=2, patch_size=16, out_hidden_size=32, num_position_embeddings=25, deepstack_visual_indexes=[0, 1, 2])
MOE_SMALL = dict(tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
QWEN3_5 = dict(depth=2, hidden_size=24, intermediate_size=20, num_heads=2, patch_size=16, out_hidden_size=32, num_position_embeddings=25)
DELTA_MOE = dict(DELTA_SMALL, tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=24)
LLAVA, INTERNVL = ("<image>", None, None), ("<IMG_CONTEXT>", "<img>", "</img>")
QWEN = ("<|image_pad|>", "<|vision_start|>", "<|vision_end|>")
GLM = ("<|image|>", "<|begin_of_image|>", "<|end_of_image|>")
CLIP = dict(model_type="clip_vision_model", hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3, image_size=56, patch_size=14, projection_dim=24)
VIT = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, norm_type="layer_norm", use_qk_norm=False, image_size=[48, 48], patch_size=[8, 8])
SIGLIP = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8)
LFM2 = dict(model_type="lfm2", num_hidden_layers=3, norm_eps=1e-5, conv_L_cache=3, block_auto_adjust_ff_dim=False)
GEMMA4_VISION = dict(
    hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=12, position_embedding_size=900,
    standardize=True)
SIGLIP2 = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, num_patches=36, patch_size=16, vision_use_head=False)


def tiled(size, **more):
    return dict(size={"longest_edge": 3 * size}, max_image_size={"longest_edge": size}, **more)


VISION = {
    "llava": ("Llava", LLAVA, dict(model_type="llama", head_dim=8, **rope()), CLIP, {}, dict(
        do_center_crop=True, do_normalize=True, do_rescale=True, do_resize=True, image_mean=[0.45, 0.5, 0.4], image_std=[0.25, 0.3, 0.28],
        rescale_factor=1 / 255, size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})),
    "llava-mistral": ("Llava", LLAVA, dict(model_type="mistral", head_dim=8, sliding_window=16, **rope(rope_theta=1e6)), dict(
        CLIP, hidden_size=40, num_attention_heads=2, image_size=48, patch_size=16, hidden_act="gelu", layer_norm_eps=1e-3), dict(
        vision_feature_layer=2, projector_hidden_act="silu"), None),
    "llava-siglip": ("Llava", LLAVA, dict(model_type="qwen2", tie_word_embeddings=True, **rope(rope_theta=1e6)), dict(
        model_type="siglip_vision_model", hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, image_size=50, patch_size=12), dict(
        vision_feature_layer=-1, vision_feature_select_strategy="full", multimodal_projector_bias=False, tie_word_embeddings=True), None),
    "internvl": ("InternVL", INTERNVL, dict(model_type="qwen2", **rope(rope_theta=1e6)), dict(VIT, attention_bias=True), {}, None),
    "internvl-llama": ("InternVL", INTERNVL, dict(model_type="llama", head_dim=8, **rope(**LLAMA3)), dict(
        VIT, hidden_size=32, num_attention_heads=4, use_absolute_position_embeddings=False, hidden_act="gelu_pytorch_tanh"), dict(
        vision_feature_layer=-2, downsample_ratio=1.0, projector_hidden_act="gelu_pytorch_tanh"), dict(
        do_normalize=True, image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5])),
    "qwen2_vl": ("Qwen2VL", QWEN, dict(**rope(rope_theta=1e6, mrope_section=[1, 1, 2])), QWEN2_VL, {}, None),
    "qwen2_vl-tied": ("Qwen2VL", QWEN, dict(num_attention_heads=2, tie_word_embeddings=True, **rope(mrope_section=[2, 3, 3])), dict(
        QWEN2_VL, embed_dim=40, mlp_ratio=1, depth=1, hidden_act="gelu"), dict(tie_word_embeddings=True), dict(
        do_normalize=True, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], min_pixels=784, max_pixels=100000)),
    "qwen2_vl-heads": ("Qwen2VL", QWEN, dict(
        hidden_size=48, num_attention_heads=3, num_key_value_heads=3, **rope(rope_theta=1e5, mrope_section=[4, 1, 3])), dict(
            QWEN2_VL, depth=3, embed_dim=60, num_heads=5, hidden_size=48, hidden_act="gelu_pytorch_tanh"), {}, None),
    "qwen2_5_vl": ("Qwen2_5_VL", QWEN, dict(**rope(rope_theta=1e6, mrope_section=[1, 1, 2])), QWEN2_5_VL, {}, None),
    "qwen2_5_vl-tied": ("Qwen2_5_VL", QWEN, dict(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True, **rope(mrope_section=[2, 3, 3])), dict(
        QWEN2_5_VL, hidden_size=40, num_heads=5, window_size=112, fullatt_block_indexes=[0, 2], hidden_act="gelu_pytorch_tanh"), dict(
        tie_word_embeddings=True), dict(do_normalize=True, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], min_pixels=784, max_pixels=100000)),
    "qwen2_5_vl-squares": ("Qwen2_5_VL", QWEN, dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=3, **rope(rope_theta=1e5, mrope_section=[4, 1, 3])), dict(
        QWEN2_5_VL, depth=2, hidden_size=16, num_heads=1, out_hidden_size=48, window_size=90, fullatt_block_indexes=[]), {}, None),
    "glm_ocr": ("GlmOcr", GLM, dict(**rope(mrope_section=[1, 1, 2])), GLM_OCR, {}, None),
    "glm_ocr-tied": ("GlmOcr", GLM, dict(num_attention_heads=2, num_key_value_heads=1, **rope(
        partial_rotary_factor=0.5, rope_theta=1e6, mrope_section=[2, 1, 1])), dict(
        GLM_OCR, hidden_size=40, num_heads=5, attention_bias=False, rms_norm_eps=1e-3, hidden_act="gelu"), dict(tie_word_embeddings=True), dict(
        do_normalize=True, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], min_pixels=784, max_pixels=100000)),
    "glm_ocr-heads": ("GlmOcr", GLM, dict(hidden_size=48, head_dim=8, num_attention_heads=3, num_key_value_heads=3, **rope(mrope_section=[0, 3, 1])), dict(
        GLM_OCR, depth=1, hidden_size=16, num_heads=1, out_hidden_size=48), {}, None),
    "gemma3": ("Gemma3", GEMMA, dict(head_dim=8, sliding_window=16, query_pre_attn_scalar=24, num_hidden_layers=3, layer_types=[SLIDING, FULL, SLIDING]), dict(
        SIGLIP, model_type="siglip_vision_model", image_size=48, vision_use_head=False), dict(mm_tokens_per_image=9, tie_word_embeddings=True), None),
    "gemma3-window": ("Gemma3", GEMMA, dict(
        hidden_size=48, head_dim=16, num_attention_heads=2, num_key_value_heads=1, sliding_window=6, num_hidden_layers=2, layer_types=[FULL, SLIDING]), dict(
        SIGLIP, model_type="siglip_vision_model", hidden_size=36, num_attention_heads=3, num_hidden_layers=1, vision_use_head=False, layer_norm_eps=1e-4), dict(
        mm_tokens_per_image=16, tie_word_embeddings=True), dict(image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], resample=3)),
    "gemma3-untied": ("Gemma3", GEMMA, dict(head_dim=12, sliding_window=24, num_hidden_layers=2, layer_types=[SLIDING, SLIDING], tie_word_embeddings=False), dict(
        SIGLIP, model_type="siglip_vision_model", hidden_size=40, num_attention_heads=5, image_size=50, vision_use_head=False), dict(
        mm_tokens_per_image=4, tie_word_embeddings=False), None),
    "gemma4": ("Gemma4", GEMMA4_MARKS, dict(
        GEMMA4, intermediate_size=24, layer_types=[SLIDING, FULL], use_bidirectional_attention="vision"), GEMMA4_VISION, dict(
        tie_word_embeddings=True), dict(do_normalize=False, image_mean=[0.0] * 3, image_std=[1.0] * 3, max_soft_tokens=280, patch_size=16, resample=3)),
    "gemma4-moe": ("Gemma4", GEMMA4_MARKS, dict(
        GEMMA4, intermediate_size=32, sliding_window=6, layer_types=[SLIDING, FULL], enable_moe_block=True, num_experts=3, top_k_experts=2,
        moe_intermediate_size=12, use_bidirectional_attention="vision"), dict(
        GEMMA4_VISION, hidden_size=20, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1, head_dim=8, position_embedding_size=840,
        standardize=False, rms_norm_eps=1e-3, rope_parameters=dict(rope_type="axial", rope_theta=50.0)), dict(tie_word_embeddings=True), None),
    "gemma4-causal": ("Gemma4", GEMMA4_MARKS, dict(
        GEMMA4, hidden_size=48, attention_k_eq_v=False, num_global_key_value_heads=..., layer_types=[SLIDING, FULL], tie_word_embeddings=False), dict(
        GEMMA4_VISION, num_attention_heads=3, num_key_value_heads=3, head_dim=8, hidden_activation="gelu"), {}, dict(
        image_processor=dict(do_normalize=False, max_soft_tokens=70))),
    "gemma4-edge": ("Gemma4", GEMMA4_MARKS, dict(
        dict(EDGE, num_kv_shared_layers=1, vocab_size_per_layer_input=323), intermediate_size=24, num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL],
        pad_token_id=3), dict(
        GEMMA4_VISION, num_hidden_layers=1, position_embedding_size=840, standardize=False, use_clipped_linears=True), dict(tie_word_embeddings=True), None),
    "smolvlm": ("SmolVLM", TILES, dict(model_type="llama", head_dim=8, **rope()), SIGLIP, {}, tiled(
        32, do_normalize=True, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4])),
    "smolvlm-tied": ("SmolVLM", TILES, dict(model_type="llama", tie_word_embeddings=True, num_attention_heads=2, **rope(rope_theta=1e5)), dict(
        SIGLIP, hidden_size=36, num_attention_heads=3, num_hidden_layers=1, image_size=50, hidden_act="gelu", layer_norm_eps=1e-3), dict(
        scale_factor=3, tie_word_embeddings=True), tiled(50)),
    "smolvlm-large": ("SmolVLM", TILES, dict(model_type="llama", head_dim=16, num_attention_heads=2, num_key_value_heads=1, **rope(**LLAMA3)), dict(
        SIGLIP, num_attention_heads=4, num_hidden_layers=3, image_size=24, patch_size=6), dict(scale_factor=4), tiled(24, resample=3)),
    "idefics3": ("Idefics3", TILES, dict(model_type="llama", head_dim=8, **rope(rope_theta=5e5)), SIGLIP, {}, tiled(32)),
    "idefics3-tied": ("Idefics3", TILES, dict(model_type="llama", tie_word_embeddings=True, **rope()), dict(
        SIGLIP, hidden_size=40, intermediate_size=24, num_attention_heads=5, image_size=28, patch_size=14, hidden_act="quick_gelu"), dict(
        scale_factor=1, tie_word_embeddings=True), tiled(28)),
    "idefics3-cells": ("Idefics3", TILES, dict(model_type="llama", head_dim=12, attention_bias=True, **rope(**LLAMA3)), dict(
        SIGLIP, num_hidden_layers=1, image_size=48), dict(scale_factor=3), tiled(48)),
    "lfm2_vl": ("Lfm2Vl", LFM, dict(LFM2, layer_types=["conv", FULL, "conv"], **rope(rope_theta=1e6)), SIGLIP2, dict(projector_hidden_size=40), dict(
        do_pad=True, do_image_splitting=True, downsample_factor=2, encoder_patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3, max_image_tokens=256,
        min_image_tokens=64, resample=2, size={"height": 512, "width": 512}, tile_size=512)),
    "lfm2_vl-tied": ("Lfm2Vl", LFM, dict(
        LFM2, tie_word_embeddings=True, conv_bias=True, conv_L_cache=4, num_attention_heads=2, num_key_value_heads=1, layer_types=[FULL, "conv", FULL],
        **rope(rope_theta=1e5)), dict(SIGLIP2, hidden_size=40, num_attention_heads=5, num_patches=16, hidden_act="gelu"), dict(
        projector_hidden_size=24, projector_bias=False, projector_use_layernorm=False, projector_hidden_act="silu", tie_word_embeddings=True), dict(
        image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], max_image_tokens=100)),
    "lfm2_vl-head": ("Lfm2Vl", LFM, dict(
        LFM2, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, layer_types=["conv", FULL], **rope(rope_theta=1e4)), dict(
        SIGLIP2, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_patches=81, vision_use_head=True, layer_norm_eps=1e-3), dict(
        projector_hidden_size=64), None),
    "qwen3_vl": ("Qwen3VL", QWEN, dict(head_dim=16, num_hidden_layers=4, **rope(rope_theta=5e6, mrope_section=[4, 2, 2])), QWEN3_VL, {}, dict(
        image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=16, size=dict(shortest_edge=65536, longest_edge=16777216))),
    "qwen3_vl-tied": ("Qwen3VL", QWEN, dict(
        head_dim=24, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True, **rope(mrope_section=[4, 4, 4])), dict(
        QWEN3_VL, hidden_size=40, num_heads=5, num_position_embeddings=16, hidden_act="gelu", deepstack_visual_indexes=[0, 2, 3]), dict(
        tie_word_embeddings=True), None),
    "qwen3_vl-corners": ("Qwen3VL", QWEN, dict(hidden_size=48, head_dim=16, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, attention_bias=True,
        **rope(rope_theta=1e6, mrope_section=[2, 3, 3])), dict(
        QWEN3_VL, depth=3, hidden_size=16, num_heads=1, out_hidden_size=48, num_position_embeddings=4), {}, None),
    "qwen3_vl_moe": ("Qwen3VLMoe", QWEN, dict(MOE_SMALL, head_dim=16, num_hidden_layers=3, **rope(rope_theta=5e6, mrope_section=[4, 2, 2])), QWEN3_VL, {}, None),
    "qwen3_vl_moe-tied": ("Qwen3VLMoe", QWEN, dict(
        head_dim=8, num_hidden_layers=4, num_experts=3, num_experts_per_tok=1, moe_intermediate_size=24, tie_word_embeddings=True, mlp_only_layers=[1],
        **rope(mrope_section=[2, 1, 1])), dict(
        QWEN3_VL, depth=3, hidden_size=16, num_heads=2, num_position_embeddings=16), dict(tie_word_embeddings=True), None),
    "qwen3_vl_moe-corners": ("Qwen3VLMoe", QWEN, dict(
        MOE_SMALL, hidden_size=48, head_dim=16, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, num_experts=5, num_experts_per_tok=3,
        **rope(rope_theta=1e6, mrope_section=[2, 3, 3])), dict(QWEN3_VL, depth=3, hidden_size=16, num_heads=1, out_hidden_size=48, num_position_embeddings=4), {}, None),
    "qwen3_5": ("Qwen3_5", QWEN, dict(DELTA_SMALL, **rope(partial_rotary_factor=0.5, mrope_section=[2, 1, 1])), QWEN3_5, {}, dict(
        image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=16, size=dict(shortest_edge=65536, longest_edge=16777216))),
    "qwen3_5-tied": ("Qwen3_5", QWEN, dict(
        DELTA_SMALL, tie_word_embeddings=True, head_dim=24, num_attention_heads=2, num_key_value_heads=1, linear_num_value_heads=2, layer_types=["full_attention", "linear_attention"],
        **rope(partial_rotary_factor=0.5, rope_theta=1e6, mrope_section=[2, 2, 2])), dict(
        QWEN3_5, hidden_size=40, num_heads=5, num_position_embeddings=16, hidden_act="gelu"), dict(tie_word_embeddings=True), None),
    "qwen3_5-corners": ("Qwen3_5", QWEN, dict(
        DELTA_SMALL, hidden_size=48, head_dim=16, num_attention_heads=3, num_key_value_heads=3, linear_num_key_heads=4,
        layer_types=["full_attention", "linear_attention"], **rope(partial_rotary_factor=1.0, mrope_section=[3, 3, 2])), dict(
        QWEN3_5, depth=1, hidden_size=16, num_heads=1, out_hidden_size=48, num_position_embeddings=4), {}, None),
    "qwen3_5_moe": ("Qwen3_5Moe", QWEN, dict(
        DELTA_MOE, **rope(partial_rotary_factor=0.5, mrope_section=[2, 1, 1])), QWEN3_5, {}, dict(
        image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=16, size=dict(shortest_edge=65536, longest_edge=16777216))),
    "qwen3_5_moe-tied": ("Qwen3_5Moe", QWEN, dict(
        DELTA_MOE, tie_word_embeddings=True, head_dim=24, num_attention_heads=2, num_key_value_heads=1, linear_num_value_heads=2, num_experts=3,
        num_experts_per_tok=1, layer_types=["full_attention", "linear_attention"], **rope(partial_rotary_factor=0.5, rope_theta=1e6, mrope_section=[2, 2, 2])), dict(
        QWEN3_5, hidden_size=40, num_heads=5, num_position_embeddings=16, hidden_act="gelu"), dict(tie_word_embeddings=True), None),
    "qwen3_5_moe-corners": ("Qwen3_5Moe", QWEN, dict(
        DELTA_MOE, hidden_size=48, head_dim=16, num_attention_heads=3, num_key_value_heads=3, linear_num_key_heads=4, num_experts=5, num_experts_per_tok=3,
        shared_expert_intermediate_size=40, layer_types=["full_attention", "linear_attention"], **rope(partial_rotary_factor=1.0, mrope_section=[3, 3, 2])), dict(
        QWEN3_5, depth=1, hidden_size=16, num_heads=1, out_hidden_size=48, num_position_embeddings=4), {}, None),
    "internvl-qwen3": ("InternVL", INTERNVL, dict(model_type="qwen3", head_dim=16, tie_word_embeddings=True, **rope(rope_theta=1e6)), dict(
        VIT, norm_type="rms_norm", use_qk_norm=True, use_mean_pooling=False, image_size=[64, 64], layer_norm_eps=1e-5), dict(
        downsample_ratio=0.25, tie_word_embeddings=True), None),
}


# Models that read sound: by name, the class, the options of its text model over SMALL with its type, those of its audio transformer, those
# of its vision transformer if it reads pictures too, the lengths of the clips in samples, and how many samples at their ends are silent. The library reads what is after a clip
# as silence, the engine as a mirror image; without silence at the end the last row differs. sounds.safetensors has a prompt with two clips and twelve tokens after it, then a
# second prompt with a third clip: ids, the clips in 16 bits, the features that the engine computes of them (features_N), rows and logits
# from those, and logits from the features of the library (library).
SOUND_TOKENS = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
OMNI = ("<|IMAGE|>", "<|vision_bos|>", "<|vision_eos|>")
WHISPER = dict(d_model=24, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=40)
SOUND = {
    "qwen2_audio": ("Qwen2Audio", dict(model_type="qwen2", **rope(rope_theta=1e6)), WHISPER, None, (8000, 12997, 9600), 480),
    "qwen2_audio-single": ("Qwen2Audio", dict(model_type="qwen2", num_attention_heads=2, **rope()), dict(
        WHISPER, d_model=40, encoder_layers=1, encoder_attention_heads=1, activation_function="gelu_pytorch_tanh"), None, (16000, 7040, 1120), 480),
    "qwen2_audio-wide": ("Qwen2Audio", dict(model_type="qwen2", num_key_value_heads=4, rms_norm_eps=1e-5, **rope(rope_theta=5e5)), dict(
        WHISPER, d_model=48, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=24, scale_embedding=True), None, (9762, 4800, 14400), 0),
    "qwen2_5_omni": ("Qwen2_5OmniThinker", rope(rope_theta=1e6, mrope_section=[1, 1, 2]), dict(WHISPER, output_dim=32), dict(
        QWEN2_5_VL, window_size=56), (36000, 8000, 4800), 480),
    "qwen2_5_omni_thinker": ("Qwen2_5OmniThinker", dict(num_attention_heads=2, **rope(mrope_section=[2, 3, 3])), dict(
        WHISPER, output_dim=32, n_window=12, d_model=40, encoder_layers=1, encoder_attention_heads=4), dict(
        QWEN2_5_VL, depth=2, hidden_size=40, fullatt_block_indexes=[0]), (8000, 12960, 9600), 480),
    "qwen2_5_omni_thinker-odd": ("Qwen2_5OmniThinker", dict(num_key_value_heads=4, rms_norm_eps=1e-5, **rope(rope_theta=5e5, mrope_section=[2, 1, 1])), dict(
        WHISPER, output_dim=32, n_window=7, d_model=36, encoder_layers=3, encoder_attention_heads=3, activation_function="quick_gelu"), dict(
        QWEN2_5_VL, depth=1, window_size=84, num_heads=3), (16000, 7040, 1120), 480),
    "gemma4-hearing": ("Gemma4", dict(
        dict(EDGE, num_kv_shared_layers=1), intermediate_size=24, num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL], pad_token_id=3), dict(
        hidden_size=20, num_hidden_layers=2, num_attention_heads=2, subsampling_conv_channels=[128, 4], output_proj_dims=12), dict(
        GEMMA4_VISION, num_hidden_layers=1, position_embedding_size=840, standardize=False, use_clipped_linears=True), (16000, 8104, 11360), 800),
    "gemma4-hearing-wide": ("Gemma4", dict(GEMMA4, intermediate_size=24, layer_types=[SLIDING, FULL]), dict(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=3, subsampling_conv_channels=[130, 6], output_proj_dims=20, conv_kernel_size=4,
        residual_weight=0.4, attention_chunk_size=5, attention_context_left=7, attention_context_right=3, attention_logit_cap=8.0,
        use_clipped_linears=False, rms_norm_eps=1e-3), None, (9826, 4800, 14400), 0),
    "gemma4-hearing-far": ("Gemma4", dict(
        dict(EDGE, num_kv_shared_layers=2), intermediate_size=24, num_hidden_layers=4, layer_types=[SLIDING, FULL] * 2), dict(
        hidden_size=8, num_hidden_layers=3, num_attention_heads=1, subsampling_conv_channels=[128, 3], output_proj_dims=8, conv_kernel_size=3,
        attention_chunk_size=4, attention_context_left=10), None, (12000, 1600, 1280), 800),
}
# Gemma 4 has words of its own around a clip; the prompts of the goldens have those of others.
GEMMA4_SOUND = ["<|audio|>", "<|audio>", "<audio|>"]


# FastVLM in the form of Apple's repositories: by name, the options of its Qwen2 over SMALL, the edge of a picture, blocks and channels of the stages
# of its tower, how many times as wide its MLPs are, the gain of its weights, about how large its states become, and more keys of its config. pictures.safetensors is like those of VISION; in
# place of a picture is the first id that the tokenizer does not have.
FASTVLM = {
    "llava_qwen2": (dict(), 128, (1, 1, 1, 1, 1), (8, 16, 16, 32, 64), 2, (1.7, 8), dict(image_aspect_ratio="pad")),
    "llava_qwen2-square": (dict(tie_word_embeddings=True, num_attention_heads=2, num_key_value_heads=1), 64, (2, 1, 1, 1, 1), (4, 8, 32, 32, 96), 1, (1.8, 4), dict(
        image_aspect_ratio="square")),
    "llava_qwen2-deep": (dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=3, rms_norm_eps=1e-5), 192, (1, 2, 2, 2, 2), (8, 8, 32, 32, 32), 3, (1.45, 10), dict(
        image_aspect_ratio="pad", rope_theta=1e4)),
}

# By name: the class of the text model and its options over SMALL, the version, and of the tower the width of states and of MLPs, layers, heads and the edge of
# a patch; then more keys of the config.
MINICPMV = {
    "minicpmv": ("Qwen2", dict(hidden_size=128, tie_word_embeddings=False, **rope(rope_theta=1e6)), 2.6, (16, 40, 2, 2, 28), dict(
        max_window_layers=28, sliding_window=131072, use_sliding_window=False)),
    "minicpmv-4": ("Llama", dict(hidden_size=256, num_hidden_layers=1, tie_word_embeddings=True, **rope()), 4.0, (16, 32, 3, 1, 16), dict(
        drop_vision_last_layer=True, attention_bias=False, mlp_bias=False)),
    "minicpmv-4_5": ("Qwen3", dict(hidden_size=128, head_dim=16, tie_word_embeddings=False, **rope(rope_theta=1e6)), 4.5, (24, 32, 1, 3, 14), dict(
        head_dim=16, attention_bias=False, batch_3d_resampler=True)),
}


# LFM2-Audio, of which transformers has the parts: by name, the options of its LFM2 over SMALL, those of lfm2audio.encoder, and the lengths of the
# clips. sounds.safetensors is like those of SOUND; in place of a clip is always the id 16, so the tokenizer is one whose vocabulary has no other token there.
LFM2_AUDIO = {
    "lfm2_audio": (dict(layer_types=["conv", FULL, "conv"], **rope(rope_theta=1e6)), (24, 2, 2, 6, 9, 8, 4, False), (8000, 12997, 11520)),
    "lfm2_audio-scaled": (dict(layer_types=[FULL, "conv", "conv"], num_attention_heads=2, num_key_value_heads=1, **rope(rope_theta=1e4)), (
        40, 1, 5, 6, 5, 4, 2, True), (16000, 7040, 1120)),
    "lfm2_audio-wide": (dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=3, layer_types=["conv", "conv", FULL], **rope(rope_theta=1e6)), (
        36, 1, 3, -1, 15, 8, 4, False), (9762, 4800, 14400)),
}


def classes(prefix):
    """The classes of a config and of a model, which is called after its head where the name is an old one."""
    config = getattr(transformers, prefix + "TextConfig", None) or getattr(transformers, prefix + "Config")
    return config, getattr(transformers, prefix + "ForCausalLM", None) or getattr(transformers, prefix + "LMHeadModel")


def randomise(model, rng, twin):
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            value = torch.randn(p.shape, generator=rng) * (1.2 / (p[0].numel() if "audio_tower.conv" in name else p.shape[-1]) ** 0.5)
            if "embed_tokens" in name:
                value = torch.randn(p.shape, generator=rng) * 0.15
        elif name.endswith("A_log"):
            value = torch.rand(p.shape, generator=rng) * 1.5
        elif name.endswith("bias") or "dt_bias" in name or "sinks" in name:
            value = torch.randn(p.shape, generator=rng) * 0.3
        else:  # gains of norms, about the value that the class starts from, which is 0 where it adds 1
            value = p.data.float().mean() + torch.randn(p.shape, generator=rng) * 0.2
            if "post_per_layer_input_norm" in name:  # the norm divides by little, so that it raises the rounding of what it reads
                value *= 0.4
        if twin is bailing_moe and "shared_expert_gate" in name:
            value = torch.zeros_like(p)
        p.data.copy_(value.to(torch.bfloat16).to(p.dtype))
    for name, b in model.named_buffers():
        if "e_score_correction_bias" in name:
            b.copy_((torch.randn(b.shape, generator=rng) * 0.1).to(torch.bfloat16))
        elif name.endswith(("put_min", "put_max")):  # bounds that some elements exceed
            b.copy_(((0.7 + torch.rand(b.shape, generator=rng)) * (1 if name.endswith("max") else -1)).to(torch.bfloat16))
        elif name.endswith("std_bias"):
            b.copy_((torch.randn(b.shape, generator=rng) * 0.5).to(torch.bfloat16))
        elif "layer_scalar" in name or name.endswith("std_scale"):
            b.copy_((1 + torch.randn(b.shape, generator=rng) * 0.2).to(torch.bfloat16))


def stepwise(model, ids):
    """The logits of 32 tokens, and of single ones behind them that use the keys of those."""
    out = model(input_ids=ids[:, :32], use_cache=True)
    rows = [out.logits[0]]
    for i in range(32, ids.shape[1]):
        out = model(input_ids=ids[:, i:i + 1], past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0])
    return torch.cat(rows).float().contiguous()


def picture(height, width, kind, rng):
    """A picture of [height, width, 3] bytes: smooth colours, a few flat areas with hard edges, or noise."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    if kind == 0:
        p = torch.stack([127 + 110 * torch.sin(x / (3.0 + c)) * torch.cos(y / (5.0 - c)) for c in range(3)], -1)
    elif kind == 1:
        p = torch.stack([((x > width // 3).int() * 120 + (y > height // (2 + c)).int() * 90 + 20 * c).float() for c in range(3)], -1)
    else:
        p = torch.randint(0, 256, (height, width, 3), generator=rng).float()
    return p.clamp(0, 255).to(torch.uint8)


def pictured(name, model, tok, rng):
    """The golden of a model that reads pictures."""
    _, words, *_, said = VISION.get(name) or (None, GEMMA4_MARKS if SOUND[name][0] == "Gemma4" else OMNI, None)
    pad, start, end = words
    config, said = model.config.vision_config, said or {}
    free, tiles, padded = words == LFM, words == TILES, words == GEMMA4_MARKS
    grid = free or padded or hasattr(config, "spatial_merge_size")
    size = 0 if grid else config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    mean, std = {"clip_vision_model": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen2_vl_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen3_vl_moe_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen3_vl_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen3_5_moe_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen3_5_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "glm_ocr_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen2_5_omni_vision_encoder": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 "qwen2_5_vl_vision": (transformers.image_utils.OPENAI_CLIP_MEAN, transformers.image_utils.OPENAI_CLIP_STD),
                 **dict.fromkeys(["siglip_vision_model", "siglip2_vision_model", "smolvlm_vision", "idefics3_vision"], ([0.5] * 3, [0.5] * 3)),
                 "gemma4_vision": ([0.0] * 3, [1.0] * 3)}.get(
        config.model_type, (transformers.image_utils.IMAGENET_DEFAULT_MEAN, transformers.image_utils.IMAGENET_DEFAULT_STD))
    mean, std = torch.tensor(said.get("image_mean", mean)), torch.tensor(said.get("image_std", std))
    cell = model.config.downsample_factor if free else config.pooling_kernel_size if padded else config.spatial_merge_size if grid else 0
    edge = config.patch_size * cell if grid else 0
    # Wide, high, and square.
    sizes = [(3 * edge, 5 * edge), (6 * edge, 2 * edge), (2 * edge, 2 * edge)] if grid else [(size, size)] * 3
    sizes = [(2 * edge, 4 * edge), (3 * edge, edge), (2 * edge, 2 * edge)] if padded else sizes
    sizes = [(2 * size, 3 * size), (2 * size, size), (size, size)] if tiles else sizes
    images = [picture(h, w, k, rng) for k, (h, w) in enumerate(sizes)]
    views = [cut(p, size) for p in images] if tiles else [[p] for p in images]
    pixels = [((p.float() / 255 - mean) / std).permute(2, 0, 1) for list in views for p in list]
    more = {}
    if padded:
        pixels, more = places(pixels, sizes, config.patch_size)
    elif free:
        pixels = unfolded(pixels, config.patch_size)
        more["spatial_shapes"] = torch.tensor([[h // config.patch_size, w // config.patch_size] for h, w in sizes])
        more["pixel_attention_mask"] = torch.nn.utils.rnn.pad_sequence([torch.ones(len(p), dtype=torch.int32) for p in pixels], batch_first=True)
        pixels = torch.nn.utils.rnn.pad_sequence(pixels, batch_first=True)
    elif grid:
        more["image_grid_thw"] = torch.tensor([[1, h // config.patch_size, w // config.patch_size] for h, w in sizes])
        pixels = torch.cat([patched(p, config.patch_size) for p in pixels])
    else:
        pixels = torch.stack(pixels)
    if tiles:
        pixels = pixels[None]
    seen = model.get_image_features(pixels, **more)
    rows = [r.float() for r in seen.pooler_output]
    if deep := getattr(seen, "deepstack_features", None):  # what is added after the first layers, next to the rows
        rows = [torch.cat([r, *(layer[i].float() for layer in deep)], -1) for i, r in enumerate(rows)]
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    around = ([tok.token_to_id(start)], [tok.token_to_id(end)]) if start else ([], [])
    if tiles:
        one = len(rows[0]) // sum(map(len, views))
        marks = iter([encode(framed(h // size, w // size, one)) for h, w in sizes])
    else:
        marks = iter([around[0] + [tok.token_to_id(pad)] * len(r) + around[1] for r in rows])
    parts = [["Look at this: ", " and then at ", " What is different?"], [" Now compare with ", " Is it brighter?"]]
    turns = [sum((next(marks) if i % 2 else encode(texts[i // 2]) for i in range(2 * len(texts) - 1)), []) for texts in parts]
    steps = torch.randint(3, 300, (12,), generator=rng).tolist()
    ids = torch.tensor([turns[0] + steps + turns[1]])
    if words in (GEMMA, GEMMA4_MARKS):
        rows = [r / model.config.text_config.hidden_size ** 0.5 for r in rows]  # what takes the place of rows of the table
    if words == GEMMA:
        more["token_type_ids"] = (ids == tok.token_to_id(pad)).int()
    if words == OMNI:
        more["attention_mask"] = torch.ones_like(ids)
    elif grid and not free:
        more["mm_token_type_ids"] = (ids == tok.token_to_id(pad)).int()
    logits = model(input_ids=ids, pixel_values=pixels, use_cache=False, **more).logits[0].float().contiguous()
    assert torch.isfinite(logits).all(), name
    return {"ids": ids[0], "first": torch.tensor([len(turns[0]), len(steps), len(turns[1])]), "rows": (torch.cat if grid else torch.stack)(rows).contiguous(), "logits": logits} | (
        {"sizes": torch.tensor(sizes)} if grid or tiles else {}) | {
        f"image_{k}": p.contiguous() for k, p in enumerate(images)}


def unfolded(pixels, edge):
    """The patches of pictures [3, height, width], row by row, [y, x, channel] each."""
    return [p.unfold(1, edge, edge).unfold(2, edge, edge).permute(1, 2, 3, 4, 0).flatten(2).flatten(0, 1) for p in pixels]


def places(pixels, sizes, edge):
    """The patches of pictures of Gemma 4, and the option with their columns and rows, -1 for none."""
    ids = [torch.tensor([[x, y] for y in range(h // edge) for x in range(w // edge)]) for h, w in sizes]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(unfolded(pixels, edge), batch_first=True), {"image_position_ids": pad(ids, batch_first=True, padding_value=-1)}


def cut(image, size):
    """The tiles of a picture, and the whole as the engine makes it: of two pixels the mean, of three the middle one."""
    h, w, _ = image.shape
    if (h, w) == (size, size):
        return [image]
    whole = image.float()
    for axis, n in enumerate((h // size, w // size)):
        parts = whole.unflatten(axis, (size, n)).unbind(axis + 1)
        whole = parts[n // 2] if n % 2 else torch.floor((parts[0] + parts[1]) / 2 + 0.5)
    return [t for row in image.split(size, 0) for t in row.split(size, 1)] + [whole]


def framed(rows, columns, length):
    """What the library's processor writes in place of a picture."""
    around, pads = "<fake_token_around_image>", "<image>" * length
    whole = f"{around}<global-img>{pads}{around}"
    if rows * columns == 1:
        return whole
    return "".join("".join(f"{around}<row_{i + 1}_col_{j + 1}>{pads}" for j in range(columns)) + "\n" for i in range(rows)) + "\n" + whole


def patched(pixels, edge):
    """The patches of a picture [3, height, width], each twice, in the order of cells of two by two."""
    _, h, w = pixels.shape
    x = pixels.reshape(3, h // edge // 2, 2, edge, w // edge // 2, 2, edge).permute(1, 4, 2, 5, 0, 3, 6)
    return x[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, 2, -1, -1).reshape(h * w // edge // edge, -1)


def with_words(dir, words):
    """Writes the tokenizer of all checkpoints with more words into dir, and returns it and the id of the first one."""
    tokenizer = json.loads((HERE / "llama" / "tokenizer.json").read_text())
    first = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] += [dict(tokenizer["added_tokens"][0], id=first + i, content=w) for i, w in enumerate(words)]
    (dir / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    shutil.copyfile(HERE / "llama" / "tokenizer_config.json", dir / "tokenizer_config.json")
    return Tokenizer.from_file(str(dir / "tokenizer.json")), first


def make_larger(name, dir, prefix, words, text, outer, ids, **goldens):
    """Writes all files of a checkpoint around a text model into dir; ids are the keys of tokens, goldens the functions of more files."""
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(1000003 + zlib.crc32(name.encode()))
    tok, first = with_words(dir, words)
    config = getattr(transformers, prefix + "Config")(
        text_config={**SMALL, "vocab_size": first + len(words), **text},
        **{**{k: tok.token_to_id(w) for k, w in ids.items()}, "tie_word_embeddings": False, **outer})
    config._attn_implementation = "eager"
    model = getattr(transformers, prefix + "ForConditionalGeneration")(config).float().eval()
    model.set_attn_implementation("eager")
    randomise(model, rng, None)
    golden = {}
    with torch.no_grad():
        for k, length in enumerate((24, 96)):
            ids = torch.randint(3, first, (length,), generator=rng)
            golden[f"ids_{k}"], golden[f"logits_{k}"] = ids, model(input_ids=ids[None], use_cache=False).logits[0].float().contiguous()
        more = {stem: f(name, model, tok, rng) for stem, f in goldens.items()}
    model.to(torch.bfloat16).save_pretrained(dir, max_shard_size="1GB")
    (dir / "generation_config.json").unlink(missing_ok=True)
    written = dict(json.loads((dir / "config.json").read_text()), dtype="bfloat16")
    (dir / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    for stem, tensors in ("golden", golden), *more.items():
        save_file(tensors, dir / f"{stem}.safetensors", metadata={"transformers": transformers.__version__, "seed": "1"})
    for path in dir.iterdir():
        path.chmod(0o644)


def clip(samples, silent, rng):
    """A clip in 16 bits at 16 kHz: tones that rise and fall, and noise, which end abruptly."""
    t = torch.arange(samples) / 16000.0
    x = torch.randn(samples, generator=rng) * 0.01
    for _ in range(6):
        a, f, bend, phase = torch.rand(4, generator=rng).tolist()
        x += (0.03 + 0.1 * a) * torch.sin(6.2831853 * ((100 + 3000 * f) * t + (bend - 0.5) * 800 * t * t + phase))
    x[samples - silent:] = 0
    return (x.clamp(-1, 1) * 32767).round().to(torch.int16)


def heard(dir, k, wave, kind="whisper"):
    """What the engine computes of a clip, [128, frames], for an audio_type: as recorded, or if the clip is another one, by .venv/mnn-3.6.1."""
    path = dir / "sounds.safetensors"
    if path.exists():
        with safe_open(path, "pt") as f:
            if f"wave_{k}" in f.keys() and torch.equal(f.get_tensor(f"wave_{k}"), wave):
                return f.get_tensor(f"features_{k}")
    python = HERE.parents[2] / ".venv" / "mnn-3.6.1" / "bin" / "python"
    out = subprocess.run([python, HERE / "heard.py", kind], input=wave.numpy().tobytes(), stdout=subprocess.PIPE, check=True).stdout
    return torch.frombuffer(bytearray(out), dtype=torch.float32).reshape(128, -1)


def listened(features, universal):
    """What the library's encoder takes for features of the engine, [128, frames] each: features, a mask, and the numbers of rows."""
    frames = [f.shape[1] for f in features]
    if universal:  # the engine has a frame fewer than the library; what is after a clip a mask hides
        padded = torch.nn.utils.rnn.pad_sequence([torch.cat([f, f[:, -1:]], 1).T for f in features], batch_first=True)
        return padded, torch.stack([torch.arange(padded.shape[1]) <= n for n in frames]), [(n + 4) // 4 for n in frames]
    # The library reads 30 s. After the clip it has silence, which a mask hides, except from the convolutions at the clip's end.
    padded = torch.stack([torch.nn.functional.pad(f, (0, 3000 - f.shape[1]), value=max(-1.5, f.max().item() - 2)) for f in features])
    return padded, torch.stack([(torch.arange(3000) < n).long() for n in frames]), [((n + 1) // 2) // 2 for n in frames]


def sounded(name, model, tok, rng):
    """The golden of a model that reads sound."""
    waves = [clip(n, SOUND[name][5], rng) for n in SOUND[name][4]]
    universal = SOUND[name][0] == "Gemma4"
    features = [heard(HERE / name, k, w, "usm" if universal else "whisper") for k, w in enumerate(waves)]
    padded, mask, counts = listened(features, universal)
    samples = [w.numpy() / 32768 for w in waves]
    if universal:
        own = transformers.Gemma4AudioFeatureExtractor()(samples, return_tensors="pt")
        own = own.input_features, own.input_features_mask
    else:
        own = transformers.WhisperFeatureExtractor(feature_size=128)(
            samples, sampling_rate=16000, return_tensors="pt", return_attention_mask=True, padding="max_length")
        own = own.input_features, own.attention_mask
    pad = tok.token_to_id((GEMMA4_SOUND if universal else SOUND_TOKENS)[0])
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    marks = iter([[pad] * n for n in counts])
    bos, eos = SOUND_TOKENS[1:]
    parts = [["Hear this: " + bos, eos + " and then this: " + bos, eos + " What is different?"], [" Now compare with " + bos, eos + " Is it louder?"]]
    turns = [sum((next(marks) if i % 2 else encode(texts[i // 2]) for i in range(2 * len(texts) - 1)), []) for texts in parts]
    steps = torch.randint(3, 300, (12,), generator=rng).tolist()
    ids = torch.tensor([turns[0] + steps + turns[1]])
    rows = []
    hook = model.model.language_model.register_forward_pre_hook(
        lambda m, a, k: rows.append(k["inputs_embeds"][0][ids[0] == pad].float().contiguous()), with_kwargs=True)
    run = lambda x, m: model(
        input_ids=ids, attention_mask=torch.ones_like(ids), input_features=x, use_cache=False,
        **{"input_features_mask" if universal else "feature_attention_mask": m}).logits[0].float().contiguous()
    logits, library = run(padded, mask), run(*own)
    hook.remove()
    if universal:
        rows[0] /= model.config.text_config.hidden_size ** 0.5  # what takes the place of rows of the table
    assert torch.isfinite(logits).all() and torch.isfinite(library).all(), name
    return {"ids": ids[0], "first": torch.tensor([len(turns[0]), len(steps), len(turns[1])]), "rows": rows[0], "logits": logits, "library": library} | {
        f"wave_{k}": w for k, w in enumerate(waves)} | {f"features_{k}": f.contiguous() for k, f in enumerate(features)}


def mixed(seen, heard, model, tok):
    """What the model says of a prompt with the first two pictures and clips of other goldens, one after the other."""
    universal = model.config.model_type == "gemma4"
    patch = model.config.vision_config.patch_size
    images, sizes = [seen[f"image_{k}"] for k in range(2)], seen["sizes"][:2]
    if universal:
        edge = 3 * patch
        pixels, more = places([p.float().permute(2, 0, 1) / 255 for p in images], sizes.tolist(), patch)
    else:
        edge = 2 * patch
        mean, std = torch.tensor(transformers.image_utils.OPENAI_CLIP_MEAN), torch.tensor(transformers.image_utils.OPENAI_CLIP_STD)
        pixels = torch.cat([patched(((p.float() / 255 - mean) / std).permute(2, 0, 1), patch) for p in images])
        more = dict(image_grid_thw=torch.tensor([[1, h // patch, w // patch] for h, w in sizes.tolist()]))
    padded, mask, counts = listened([heard[f"features_{k}"] for k in range(2)], universal)
    more["input_features_mask" if universal else "feature_attention_mask"] = mask
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    pad, start, end = ([tok.token_to_id(w)] for w in (GEMMA4_MARKS if universal else OMNI))
    sights = iter([start + pad * int(h * w // edge ** 2) + end for h, w in sizes])
    sounds = iter([[tok.token_to_id((GEMMA4_SOUND if universal else SOUND_TOKENS)[0])] * n for n in counts])
    bos, eos = SOUND_TOKENS[1:]
    ids = torch.tensor([sum((encode(x) if isinstance(x, str) else next(x) for x in (
        "See ", sights, " hear " + bos, sounds, eos, sights, " and " + bos, sounds, eos + ", which?")), [])])
    logits = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, input_features=padded, use_cache=False, **more).logits[0]
    assert torch.isfinite(logits).all()
    return {"ids_0": ids[0], "logits_0": logits.float().contiguous()}


def make_vision(name, dir):
    """Writes all files of a checkpoint that reads pictures into dir."""
    prefix, marks, text, vision, outer, said = VISION[name]
    words = {QWEN: QWEN_TOKENS, GLM: GLM_TOKENS, TILES: TILE_TOKENS, GEMMA: GEMMA_TOKENS, GEMMA4_MARKS: GEMMA4_TOKENS, LFM: LFM_TOKENS}.get(marks, PICTURE_TOKENS)
    pad = "image_token_index" if prefix in ("Llava", "Gemma3") else "image_token_id"
    if said:
        (dir / "preprocessor_config.json").write_text(json.dumps(said, indent=2) + "\n")
    ids = {pad: marks[0]}
    if marks == GEMMA4_MARKS:
        ids |= {"boi_token_id": marks[1], "eoi_token_id": marks[2]}
    text = {k: v for k, v in text.items() if v is not ...}
    make_larger(name, dir, prefix, words, text, dict(vision_config=dict(vision), **outer), ids, pictures=pictured)


def make_sound(name, dir):
    """Writes all files of a checkpoint that reads sound into dir."""
    prefix, text, audio, vision, *_ = SOUND[name]
    words, ids, outer, files = SOUND_TOKENS, {"audio_token_index": SOUND_TOKENS[0]}, dict(audio_config=dict(audio)), dict(sounds=sounded)
    if prefix == "Gemma4":
        words = GEMMA4_SOUND + SOUND_TOKENS[1:] + GEMMA4_TOKENS
        ids = dict(zip(["audio_token_id", "boa_token_id", "eoa_token_index"], GEMMA4_SOUND)) | dict(
            zip(["image_token_id", "boi_token_id", "eoi_token_id"], GEMMA4_MARKS))
        outer |= dict(vision_config=None, tie_word_embeddings=True)
        text = {k: v for k, v in text.items() if v is not ...}
        if "hidden_size_per_layer_input" in text:
            text["vocab_size_per_layer_input"] = 320 + len(words)
    elif vision:
        words = words + [*OMNI, "<|VIDEO|>"]
        ids |= {"image_token_index": OMNI[0], "vision_start_token_id": OMNI[1], "vision_end_token_id": OMNI[2], "video_token_index": "<|VIDEO|>",
                "audio_start_token_id": words[1], "audio_end_token_id": words[2]}
    if vision:
        outer["vision_config"], made = dict(vision), {}

        def keep(f):
            def run(*args):
                made[f] = f(*args)
                return made[f]
            return run
        files = dict(sounds=keep(sounded), pictures=keep(pictured), mixed=lambda name, model, tok, rng: mixed(made[pictured], made[sounded], model, tok))
    make_larger(name, dir, prefix, words, text, outer, ids, **files)
    if name == "qwen2_5_omni":
        speaking(dir)


def speaking(dir):
    """Makes a checkpoint of Qwen2.5-Omni of a thinker."""
    tensors, config = load_file(dir / "model.safetensors"), json.loads((dir / "config.json").read_text())
    tensors = {"thinker." + k: v for k, v in tensors.items()} | {
        "talker.model.embed_tokens.weight": torch.ones(8, 4), "token2wav.code2wav_dit_model.proj_out.weight": torch.ones(4, 4)}
    save_file(tensors, dir / "model.safetensors", metadata={"format": "pt"})
    whole = dict(
        architectures=["Qwen2_5OmniModel"], dtype="bfloat16", enable_audio_output=True, enable_talker=True, model_type="qwen2_5_omni",
        talker_config=dict(model_type="qwen2_5_omni_talker", vocab_size=8, hidden_size=4), thinker_config=config, token2wav_config=dict(dit_config={}))
    (dir / "config.json").write_text(json.dumps(whole, indent=2) + "\n")
    (dir / "model.safetensors").chmod(0o644)


def make_fastvlm(name, dir):
    """Writes all files of a checkpoint of FastVLM into dir."""
    text, edge, blocks, channels, ratio, (gain, size), more = FASTVLM[name]
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(1000003 + zlib.crc32(name.encode()))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(HERE / "llama" / file, dir / file)
    tok = Tokenizer.from_file(str(dir / "tokenizer.json"))
    pad = tok.get_vocab_size()
    theta = more.get("rope_theta", 1e6)
    config = transformers.Qwen2Config(**{**SMALL, "vocab_size": pad + 4, "tie_word_embeddings": False, **text, **rope(rope_theta=theta)})
    model = transformers.Qwen2ForCausalLM(config).float().eval()
    model.set_attn_implementation("eager")
    randomise(model, rng, None)
    tower = fastvlm.tensors(blocks, channels, ratio, gain, rng)
    width, seen = config.hidden_size, 2 * channels[-1]
    joiner = {}
    for layer, n, scale in (("0", seen, 1.2 / size), ("2", width, 0.4)):
        joiner[layer + ".weight"] = (torch.randn(width, n, generator=rng) * (scale / n ** 0.5)).to(torch.bfloat16)
        joiner[layer + ".bias"] = (torch.randn(width, generator=rng) * 0.1).to(torch.bfloat16)
    floats = {k: v.float() for k, v in tower.items()}

    def rows(image):
        x = fastvlm.features(floats, (image.float() / 255).permute(2, 0, 1)[None])[0]
        x = torch.nn.functional.linear(x, joiner["0.weight"].float(), joiner["0.bias"].float())
        return torch.nn.functional.linear(torch.nn.functional.gelu(x), joiner["2.weight"].float(), joiner["2.bias"].float())

    golden = {}
    with torch.no_grad():
        for k, length in enumerate((24, 96)):
            ids = torch.randint(3, pad, (length,), generator=rng)
            golden[f"ids_{k}"], golden[f"logits_{k}"] = ids, model(input_ids=ids[None], use_cache=False).logits[0].float().contiguous()
        images = [picture(edge, edge, k, rng) for k in range(3)]
        seen = [rows(p) for p in images]
        encode = lambda text: tok.encode(text, add_special_tokens=False).ids
        place = [pad] * len(seen[0])
        first = encode("Look at this: ") + place + encode(" and then at ") + place + encode(" What is different?")
        second = encode(" Now compare with ") + place + encode(" Is it brighter?")
        steps = torch.randint(3, 300, (12,), generator=rng).tolist()
        ids = torch.tensor(first + steps + second)
        h = model.get_input_embeddings()(ids)
        h[ids == pad] = torch.cat(seen)
        logits = model(inputs_embeds=h[None], use_cache=False).logits[0].float().contiguous()
    assert torch.isfinite(logits).all(), name
    pictures = {"ids": ids, "first": torch.tensor([len(first), len(steps), len(second)]), "rows": torch.stack(seen).contiguous(), "logits": logits}
    pictures |= {f"image_{k}": p for k, p in enumerate(images)}
    parts = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items() if not (config.tie_word_embeddings and k == "lm_head.weight")}
    parts |= {"model.vision_tower.vision_tower.model." + k: v for k, v in tower.items()} | {"model.mm_projector." + k: v for k, v in joiner.items()}
    save_file(parts, dir / "model.safetensors", metadata={"format": "pt"})
    keys = ("attention_dropout", "bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range", "intermediate_size", "max_position_embeddings",
            "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "use_cache", "use_sliding_window", "vocab_size")
    written = {k: getattr(config, k) for k in keys} | dict(
        architectures=["LlavaQwen2ForCausalLM"], freeze_mm_mlp_adapter=False, image_grid_pinpoints=None, max_window_layers=24, mm_hidden_size=2 * channels[-1],
        mm_patch_merge_type="flat", mm_projector_lr=None, mm_projector_type="mlp2x_gelu", mm_use_im_patch_token=False, mm_use_im_start_end=False,
        mm_vision_select_feature="patch", mm_vision_select_layer=-2, mm_vision_tower=f"mobileclip_l_{edge}", model_type="llava_qwen2", rope_theta=theta,
        sliding_window=32768, tokenizer_model_max_length=8192, tokenizer_padding_side="right", torch_dtype="bfloat16", tune_mm_mlp_adapter=False,
        unfreeze_mm_vision_tower=True, use_mm_proj=True) | more
    (dir / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    for stem, values in ("golden", golden), ("pictures", pictures):
        save_file(values, dir / f"{stem}.safetensors", metadata={"transformers": transformers.__version__, "seed": "1"})
    for file in dir.iterdir():
        file.chmod(0o644)


def make_lfm2_audio(name, dir):
    """Writes all files of a checkpoint of LFM2-Audio into dir."""
    text, audio, lengths = LFM2_AUDIO[name]
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(1000003 + zlib.crc32(name.encode()))
    tokenizer, pad = json.loads((HERE / "llama" / "tokenizer.json").read_text()), 16
    vocab, words = tokenizer["model"]["vocab"], ["<|reserved_6|>", *SOUND_TOKENS[1:]]
    first = len(vocab)
    moved = next(t for t, i in vocab.items() if i == pad)
    vocab[moved], vocab[words[0]] = first, pad
    tokenizer["added_tokens"] += [dict(tokenizer["added_tokens"][0], id=i, content=w) for w, i in zip(words, (pad, first + 1, first + 2))]
    (dir / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    shutil.copyfile(HERE / "llama" / "tokenizer_config.json", dir / "tokenizer_config.json")
    tok = Tokenizer.from_file(str(dir / "tokenizer.json"))
    config = transformers.Lfm2Config(**{**SMALL, **LFM2, "vocab_size": first + 3, "tie_word_embeddings": True, **text})
    config._attn_implementation = "eager"
    model = transformers.Lfm2ForCausalLM(config).float().eval()
    randomise(model, rng, None)
    ear, said = lfm2audio.encoder(*audio)
    joiner = lfm2audio.adapter(audio[0], config.hidden_size)
    for part in (ear, joiner):
        lfm2audio.randomise(part, rng)
    draw = lambda n, end: torch.randint(pad + 1, end, (n,), generator=rng)
    golden = {}
    with torch.no_grad():
        for k, length in enumerate((24, 96)):
            ids = draw(length, first)
            golden[f"ids_{k}"], golden[f"logits_{k}"] = ids, model(input_ids=ids[None], use_cache=False).logits[0].float().contiguous()
        waves = [clip(n, 0, rng) for n in lengths]
        features = [heard(HERE / name, k, w, "conformer") for k, w in enumerate(waves)]
        rows = torch.cat([lfm2audio.rows(ear, joiner, f) for f in features])
        own = torch.cat([lfm2audio.rows(ear, joiner, lfm2audio.library(w.float() / 32768)) for w in waves])
        encode = lambda text: tok.encode(text, add_special_tokens=False).ids
        marks = iter([[pad] * len(lfm2audio.rows(ear, joiner, f)) for f in features])
        bos, eos = SOUND_TOKENS[1:]
        parts = [["Hear this: " + bos, eos + " and then this: " + bos, eos + " What is different?"], [" Now compare with " + bos, eos + " Is it louder?"]]
        turns = [sum((next(marks) if i % 2 else encode(texts[i // 2]) for i in range(2 * len(texts) - 1)), []) for texts in parts]
        steps = draw(12, 300).tolist()
        ids = torch.tensor(turns[0] + steps + turns[1])

        def run(rows):
            h = model.get_input_embeddings()(ids)
            h[ids == pad] = rows
            return model(inputs_embeds=h[None], use_cache=False).logits[0].float().contiguous()
        logits, library = run(rows), run(own)
    assert torch.isfinite(logits).all() and torch.isfinite(library).all(), name
    sounds = {"ids": ids, "first": torch.tensor([len(turns[0]), len(steps), len(turns[1])]), "rows": rows.contiguous(), "logits": logits, "library": library} | {
        f"wave_{k}": w for k, w in enumerate(waves)} | {f"features_{k}": f.contiguous() for k, f in enumerate(features)}
    tensors = {k.replace("model.", "lfm.", 1): v for k, v in model.state_dict().items() if k != "lm_head.weight"} | lfm2audio.tensors(ear, joiner) | {
        "audio_embedding.embedding.weight": torch.ones(8, 4), "depthformer.layers.0.operator.qkv_proj.weight": torch.ones(4, 4), "depth_linear.weight": torch.ones(4, 4),
        "depth_embeddings.0.embedding.weight": torch.ones(8, 4), "codebook_offsets": torch.arange(2) * 8, "audio_loss_weights": torch.ones(2)}
    save_file({k: (v.to(torch.bfloat16) if v.is_floating_point() else v).contiguous() for k, v in tensors.items()}, dir / "model.safetensors", metadata={"format": "pt"})
    model.to(torch.bfloat16).save_pretrained(dir / "lfm")
    lfm = json.loads((dir / "lfm" / "config.json").read_text())
    shutil.rmtree(dir / "lfm")
    lfm.pop("transformers_version")
    (dir / "config.json").write_text(json.dumps(dict(
        architectures=["Lfm2AudioForConditionalGeneration"], codebooks=2, tie_audio_embeddings=False, semantic_codebook_factor=100, codebook_weight="log",
        interleaved_n_text=6, interleaved_n_audio=12, preprocessor=dict(
            sample_rate=16000, normalize="per_feature", window_size=0.025, window_stride=0.01, window="hann", features=128, n_fft=512, log=True,
            frame_splicing=1, dither=1e-5, pad_to=0, pad_value=0.0),
        encoder=said, lfm=lfm, depthformer=dict(layers=1, dim=4, tie=True)), indent=2) + "\n")
    for stem, values in ("golden", golden), ("sounds", sounds):
        save_file(values, dir / f"{stem}.safetensors", metadata={"transformers": transformers.__version__, "seed": "1"})
    for file in dir.iterdir():
        file.chmod(0o644)


def make_minicpmv(name, dir):
    """Writes all files of a checkpoint of MiniCPM-V into dir."""
    prefix, text, version, (hidden, inner, layers, heads, patch), more = MINICPMV[name]
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(1000003 + zlib.crc32(name.encode()))
    tok, first = with_words(dir, minicpmv.WORDS)
    config = getattr(transformers, prefix + "Config")(**{**SMALL, "vocab_size": tok.get_vocab_size(), "max_position_embeddings": 1024, **text})
    model = getattr(transformers, prefix + "ForCausalLM")(config).float().eval()
    model.set_attn_implementation("eager")
    randomise(model, rng, None)
    tower = minicpmv.tensors(hidden, inner, layers, patch, config.hidden_size, rng)
    floats, used = {k: v.float() for k, v in tower.items()}, layers - bool(more.get("drop_vision_last_layer"))
    golden, numbers = {}, iter(range(3))
    with torch.no_grad():
        for k, length in enumerate((24, 96)):
            ids = torch.randint(3, first, (length,), generator=rng)
            golden[f"ids_{k}"], golden[f"logits_{k}"] = ids, model(input_ids=ids[None], use_cache=False).logits[0].float().contiguous()
        sizes = [(112, 224), (224, 112), (112, 112)]  # two slices side by side, two one above the other, one
        images = [picture(h, w, k, rng) // 64 * 64 for k, (h, w) in enumerate(sizes)]
        views = [minicpmv.views(p, patch) for p in images]
        rows = [torch.cat([minicpmv.rows(floats, v / 127.5 - 1, patch, used, heads) for v in list]) for list in views]
        encode = lambda text: tok.encode(text, add_special_tokens=False).ids
        places = iter([minicpmv.seen(tok, next(numbers), len(list)) for list in views])
        start = encode("Look at this: ") + next(places) + encode(" and then at ") + next(places) + encode(" What is different?")
        second = encode(" Now compare with ") + next(places) + encode(" Is it brighter?")
        steps = torch.randint(3, 300, (12,), generator=rng).tolist()
        ids = torch.tensor(start + steps + second)
        h = model.get_input_embeddings()(ids)
        h[ids == tok.token_to_id(minicpmv.WORDS[0])] = torch.cat(rows)
        logits = model(inputs_embeds=h[None], use_cache=False).logits[0].float().contiguous()
    assert torch.isfinite(logits).all(), name
    pictures = {"ids": ids, "first": torch.tensor([len(start), len(steps), len(second)]), "sizes": torch.tensor(sizes), "rows": torch.cat(rows), "logits": logits}
    pictures |= {f"image_{k}": p for k, p in enumerate(images)}
    parts = {"llm." + k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items() if not (config.tie_word_embeddings and k == "lm_head.weight")}
    save_file(parts | tower, dir / "model.safetensors", metadata={"format": "pt"})
    keys = ("attention_dropout", "bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range", "intermediate_size", "max_position_embeddings",
            "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "use_cache", "vocab_size")
    written = {k: getattr(config, k) for k in keys} | dict(
        architectures=["MiniCPMV"], auto_map={"AutoConfig": "configuration_minicpm.MiniCPMVConfig", "AutoModel": "modeling_minicpmv.MiniCPMV"},
        batch_vision_input=True, drop_vision_last_layer=False, image_size=448, model_type="minicpmv", patch_size=patch, query_num=minicpmv.ROWS,
        rope_theta=text["rope_parameters"]["rope_theta"], slice_config=dict(max_slice_nums=minicpmv.MOST, model_type="minicpmv", patch_size=patch),
        slice_mode=True, torch_dtype="bfloat16", use_image_id=True, version=version, vision_config=dict(
            hidden_size=hidden, image_size=minicpmv.SIDE * patch, intermediate_size=inner, model_type="siglip", num_attention_heads=heads, num_hidden_layers=layers,
            patch_size=patch)) | more
    (dir / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    (dir / "preprocessor_config.json").write_text(json.dumps(dict(
        image_feature_size=minicpmv.ROWS, max_slice_nums=minicpmv.MOST, norm_mean=[0.5] * 3, norm_std=[0.5] * 3, patch_size=patch, scale_resolution=minicpmv.AREA,
        slice_mode=True, use_image_id=True, version=version), indent=2) + "\n")
    for stem, values in ("golden", golden), ("pictures", pictures):
        save_file(values, dir / f"{stem}.safetensors", metadata={"transformers": transformers.__version__, "seed": "1"})
    for file in dir.iterdir():
        file.chmod(0o644)


def make(name, dir):
    """Writes all files of a checkpoint into dir."""
    if name in LFM2_AUDIO:
        return make_lfm2_audio(name, dir)
    if name in MINICPMV:
        return make_minicpmv(name, dir)
    if name in FASTVLM:
        return make_fastvlm(name, dir)
    if name in VISION:
        return make_vision(name, dir)
    if name in SOUND:
        return make_sound(name, dir)
    prefix, options, *rest = CHECKPOINTS.get(name) or TWINS[name]
    twin = rest[0] if name in TWINS else None
    seed = rest[0] if rest and not twin else name
    options = {k: v for k, v in {**BASE, **options}.items() if v is not ...}
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(1000003 + zlib.crc32(seed.encode()))
    config_class, model_class = classes(prefix)
    config = config_class(**options)
    config._attn_implementation = "eager"
    model = model_class(config).float().eval()
    randomise(model, rng, twin)
    golden = {}
    with torch.no_grad():
        for k, length in enumerate((24, 96)):
            ids = torch.randint(3, config.vocab_size, (length,), generator=rng)
            logits = model(input_ids=ids[None], use_cache=False).logits[0].float().contiguous()
            assert torch.isfinite(logits).all(), name
            golden[f"ids_{k}"], golden[f"logits_{k}"] = ids, logits
        if name in STEPWISE:
            golden["logits_decode"] = stepwise(model, ids[None])
    model.to(torch.bfloat16).save_pretrained(dir, max_shard_size="1GB")
    (dir / "generation_config.json").unlink(missing_ok=True)
    written = dict(json.loads((dir / "config.json").read_text()), dtype="bfloat16")
    if twin:
        tensors = load_file(dir / "model.safetensors")
        written, tensors = twin(written, tensors)
        save_file({k: v.clone().contiguous() for k, v in tensors.items()}, dir / "model.safetensors", metadata={"format": "pt"})
    (dir / "config.json").write_text(json.dumps(written, indent=2, sort_keys=bool(twin)) + "\n")
    save_file(golden, dir / "golden.safetensors", metadata={"transformers": transformers.__version__, "seed": "1"})
    # One tokenizer for all: byte-level BPE with 320 tokens.
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(HERE / "llama" / file, dir / file)
    for file in dir.iterdir():
        file.chmod(0o644)


def content(path):
    """What a file says: a config without the version that wrote it, tensors that are compared by value, or bytes."""
    if path.name == "config.json":
        config = json.loads(path.read_text())
        config.pop("transformers_version", None)
        return config
    return path.read_bytes()


# Cases of a Go test that lie in the directory of their checkpoint. Nothing here makes them.
CHANGES = "changes.txt"


def differences(new, old):
    """What differs between two directories of a checkpoint, as lines."""
    lines = []
    for file in sorted({p.name for d in (new, old) if d.is_dir() for p in d.iterdir()} - {CHANGES}):
        a, b = new / file, old / file
        if not (a.exists() and b.exists()):
            lines.append(f"{file}: {'missing' if a.exists() else 'not made'}")
        elif file not in ("golden.safetensors", "pictures.safetensors", "sounds.safetensors", "mixed.safetensors"):
            if content(a) != content(b):
                lines.append(f"{file}: differs")
        else:
            with safe_open(a, "pt") as x, safe_open(b, "pt") as y:
                if sorted(x.keys()) != sorted(y.keys()):
                    lines.append(f"{file}: other tensors")
                    continue
                for key in sorted(x.keys()):
                    p, q = x.get_tensor(key), y.get_tensor(key)
                    if p.shape != q.shape or p.dtype != q.dtype:
                        lines.append(f"{file}: {key} has another shape")
                    elif not (worst := (p.float() - q.float()).abs().max().item()) <= TOLERANCE:
                        lines.append(f"{file}: {key} differs by {worst:.3g}")
    return lines


def main():
    args = argparse.ArgumentParser()
    args.add_argument("names", nargs="*", metavar="NAME")
    args.add_argument("--check", action="store_true", help="write nothing; fail where a checkpoint differs")
    args = args.parse_args()
    everything = sorted(CHECKPOINTS.keys() | TWINS.keys() | VISION.keys() | FASTVLM.keys() | MINICPMV.keys() | SOUND.keys() | LFM2_AUDIO.keys())
    if unknown := [n for n in args.names if n not in everything]:
        sys.exit(f"no such checkpoint: {', '.join(unknown)} (there are: {', '.join(everything)})")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for name in args.names or everything:
        with tempfile.TemporaryDirectory() as tmp:
            new = pathlib.Path(tmp) / name
            new.mkdir()
            make(name, new)
            lines = differences(new, HERE / name)
            if lines and not args.check:
                if (HERE / name / CHANGES).exists():
                    shutil.copyfile(HERE / name / CHANGES, new / CHANGES)
                shutil.rmtree(HERE / name, ignore_errors=True)
                shutil.copytree(new, HERE / name)
            print(name, "; ".join(lines) or "as it is", sep=": ", flush=True)
            failed += bool(lines)
    if not args.names:
        for stray in sorted(p.parent.name for p in HERE.glob("*/golden.safetensors") if p.parent.name not in everything):
            print(f"{stray}: no line in make.py makes it")
            failed += 1
    if failed and args.check:
        sys.exit(f"{failed} checkpoints differ")


if __name__ == "__main__":
    main()
