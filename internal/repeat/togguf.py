"""Writes a Qwen3 checkpoint as GGUF in F32, with its tokenizer, for llamacpp.py.

    python togguf.py CHECKPOINT MODEL.gguf

The checkpoint has model_type qwen3 and a byte-level BPE tokenizer with the Qwen split pattern; tied weights are stored once. If the
tokenizer puts a token before every text, so does llama.cpp.
"""

import json
import pathlib
import sys

import numpy as np
from gguf import GGUFWriter, TokenType

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name(tensor):
    """Returns llama.cpp's name of a tensor."""
    kind = tensor.removesuffix(".weight")
    if kind in TOP:
        return TOP[kind] + ".weight"
    _, _, layer, rest = kind.split(".", 3)
    return f"blk.{layer}.{LAYER[rest]}.weight"


def tensors(path):
    """Yields the names and float32 values of a safetensors file in BF16."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for key, entry in json.loads(data[8:start]).items():
        if key == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            sys.exit(f"{path}: {key} is not in BF16")
        begin, end = entry["data_offsets"]
        halves = np.frombuffer(data[start + begin : start + end], np.uint16)
        yield key, (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])


def tokenizer(writer, doc, size, config):
    """Adds the tokenizer; ids without a token get a filler."""
    vocabulary = {i: t for t, i in doc["model"]["vocab"].items()}
    added = {t["id"]: t["content"] for t in doc["added_tokens"]}
    words, types = [], []
    for i in range(size):
        words.append(added.get(i) or vocabulary.get(i) or f"[PAD{i}]")
        types.append(TokenType.CONTROL if i in added else TokenType.NORMAL if i in vocabulary else TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in doc["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_bos_token_id(config["bos_token_id"])
    single = (doc["post_processor"] or {}).get("single", [])
    writer.add_add_bos_token(bool(single) and "SpecialToken" in single[0])


def main(checkpoint, out):
    config = json.loads((checkpoint / "config.json").read_text())
    if config["model_type"] != "qwen3":
        sys.exit(f"{checkpoint}: {config['model_type']} is not qwen3")
    writer = GGUFWriter(out, "qwen3")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    tokenizer(writer, json.loads((checkpoint / "tokenizer.json").read_text()), config["vocab_size"], config)
    for path in sorted(checkpoint.glob("model*.safetensors")):
        for key, values in tensors(path):
            writer.add_tensor(name(key), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
