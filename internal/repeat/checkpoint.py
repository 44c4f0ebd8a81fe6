"""Writes the model of a GGUF file as a Hugging Face checkpoint: weights in F16, config.json, tokenizer and chat template.

    python checkpoint.py MODEL.gguf DIR

It reads Llama models with the tokenizer of SmolLM2, which is what docs/repeat.md needs, and rejects others. The names of
tensors and the order of the rows of query and key are those of llama.cpp's conversion from Hugging Face, reversed.
"""

import json
import pathlib
import sys

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "embed_tokens", "output_norm": "norm"}
CONTROL = 3  # gguf.TokenType.CONTROL


def name(tensor):
    """Returns the Hugging Face name of a tensor."""
    if tensor.startswith("blk."):
        _, layer, kind, suffix = tensor.split(".")
        return f"model.layers.{layer}.{LAYER[kind]}.{suffix}"
    kind, suffix = tensor.split(".")
    return f"model.{TOP[kind]}.{suffix}"


def halves(rows, heads):
    """Returns the rows of a query or key with the two halves of each rotary pair apart, as transformers has them."""
    out, inner = rows.shape
    return rows.reshape(heads, out // heads // 2, 2, inner).swapaxes(1, 2).reshape(out, inner)


def tokenizer(get):
    """Returns tokenizer.json: byte-level BPE after splitting off single digits."""
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    special = [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, t in enumerate(tokens)
        if types[i] == CONTROL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": get("tokenizer.ggml.merges"),
        },
    }


def main(source, target):
    reader = GGUFReader(source)

    def get(key):
        if key not in reader.fields:
            sys.exit(f"{source}: has no {key}")
        return reader.fields[key].contents()

    kind = get("general.architecture"), get("tokenizer.ggml.model"), get("tokenizer.ggml.pre")
    if kind != ("llama", "gpt2", "smollm"):
        sys.exit(f"{source}: architecture and tokenizer are {kind}; only Llama with the tokenizer of SmolLM2 is supported")
    heads, kv_heads = get("llama.attention.head_count"), get("llama.attention.head_count_kv")
    tensors = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type).reshape([int(n) for n in t.shape[::-1]])
        if ".attn_q." in t.name or ".attn_k." in t.name:
            w = halves(w, heads if ".attn_q." in t.name else kv_heads)
        tensors[name(t.name)] = np.ascontiguousarray(w, dtype=np.float16)
    tokens = get("tokenizer.ggml.tokens")
    bos, eos = get("tokenizer.ggml.bos_token_id"), get("tokenizer.ggml.eos_token_id")
    files = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "hidden_act": "silu",
            "hidden_size": get("llama.embedding_length"),
            "intermediate_size": get("llama.feed_forward_length"),
            "max_position_embeddings": get("llama.context_length"),
            "mlp_bias": False,
            "num_attention_heads": heads,
            "num_hidden_layers": get("llama.block_count"),
            "num_key_value_heads": kv_heads,
            "rms_norm_eps": float(f"{get('llama.attention.layer_norm_rms_epsilon'):.6g}"),
            "rope_scaling": None,
            "rope_theta": get("llama.rope.freq_base"),
            "tie_word_embeddings": "lm_head.weight" not in tensors,
            "torch_dtype": "float16",
            "vocab_size": len(tokens),
        },
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": eos},
        "tokenizer.json": tokenizer(get),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "clean_up_tokenization_spaces": False,
            "chat_template": get("tokenizer.chat_template"),
        },
    }
    target = pathlib.Path(target)
    target.mkdir(parents=True)
    for file, content in files.items():
        (target / file).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
