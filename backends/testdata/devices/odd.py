"""Makes checkpoints of the families in shapes that their small checkpoints do not have, for measure.py.

    odd.py OUT [NAME ...] [--seed 2]    makes OUT/NAME, all of ODD unless named

Numbers of heads that are odd or no powers of two, heads of 20 to 96 elements, rows that are multiples of nothing, and a Gemma
whose states are beyond the range of fp16. Weights are those of make.py of pipeline/arch/testdata, whose tables and functions this uses, with another
seed. Needs the Python of `make transformers-venv`.
"""
import argparse, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "pipeline" / "arch" / "testdata"))
import make

LOUD = "gemma3_text-loud"
HEADS = dict(num_attention_heads=3, num_key_value_heads=1)
DELTA = dict(num_attention_heads=5, num_key_value_heads=1, hidden_size=72, intermediate_size=88, head_dim=48, linear_num_key_heads=3, linear_num_value_heads=6)

# By name: the line of make.CHECKPOINTS, and options over those of that line.
ODD = {
    "llama-87": ("llama", dict(HEADS, hidden_size=87, intermediate_size=111, head_dim=32)),
    "llama-90": ("llama", dict(num_attention_heads=5, num_key_value_heads=5, hidden_size=90, intermediate_size=130, head_dim=80)),
    "llama-96": ("llama", dict(HEADS, hidden_size=96, intermediate_size=224, head_dim=96)),
    "llama-128": ("llama", dict(num_attention_heads=4, num_key_value_heads=1, hidden_size=128, intermediate_size=384, head_dim=128)),
    "llama-head-36": ("llama", dict(num_attention_heads=7, num_key_value_heads=7, hidden_size=98, intermediate_size=60, head_dim=36)),
    "qwen2-odd": ("qwen2-tied", dict(num_attention_heads=6, num_key_value_heads=3, hidden_size=120, intermediate_size=76, head_dim=20)),
    "qwen3-48": ("qwen3-untied", dict(num_attention_heads=5, num_key_value_heads=1, hidden_size=84, intermediate_size=100, head_dim=48)),
    "mixtral-odd": ("mixtral", dict(
        num_attention_heads=6, num_key_value_heads=2, hidden_size=84, intermediate_size=44, head_dim=32, num_local_experts=5, num_experts_per_tok=3)),
    "qwen3_moe-odd": ("qwen3_moe", dict(
        num_attention_heads=6, num_key_value_heads=3, hidden_size=88, head_dim=48, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=36)),
    "olmoe-odd": ("olmoe", dict(num_attention_heads=3, num_key_value_heads=3, hidden_size=60, intermediate_size=36, num_experts=6, num_experts_per_tok=5)),
    "deepseek_v3-odd": ("deepseek_v3", dict(
        hidden_size=76, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=20, kv_lora_rank=20, qk_rope_head_dim=12, qk_nope_head_dim=20,
        v_head_dim=20, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=3, moe_intermediate_size=28)),
    "deepseek_v2-odd": ("deepseek_v2", dict(
        hidden_size=72, num_attention_heads=6, num_key_value_heads=6, kv_lora_rank=40, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32,
        n_routed_experts=5, moe_intermediate_size=20)),
    "minicpm3-odd": ("minicpm3", dict(
        hidden_size=66, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=28, kv_lora_rank=36, qk_rope_head_dim=16, qk_nope_head_dim=32,
        v_head_dim=48)),
    "gpt_oss-odd": ("gpt_oss", dict(
        hidden_size=72, num_attention_heads=6, num_key_value_heads=2, head_dim=48, intermediate_size=40, num_local_experts=5, num_experts_per_tok=3,
        sliding_window=21)),
    "bloom-odd": ("bloom", dict(n_head=5, num_attention_heads=5, hidden_size=100)),
    "mistral-odd": ("mistral", dict(HEADS, hidden_size=84, head_dim=80, sliding_window=23)),
    "gemma3_text-odd": ("gemma3_text", dict(HEADS, hidden_size=72, intermediate_size=100, head_dim=96, sliding_window=19)),
    "gemma2-odd": ("gemma2", dict(HEADS, hidden_size=60, head_dim=48, sliding_window=27)),
    "phi3-odd": ("phi3", dict(num_attention_heads=3, num_key_value_heads=3, hidden_size=96, intermediate_size=84, sliding_window=45)),
    "cohere2-odd": ("cohere2", dict(num_attention_heads=7, num_key_value_heads=1, hidden_size=68, head_dim=32, sliding_window=13)),
    "exaone4-odd": ("exaone4", dict(num_attention_heads=6, num_key_value_heads=2, hidden_size=92, head_dim=20, sliding_window=33)),
    "llama4_text-odd": ("llama4_text", dict(
        num_attention_heads=6, num_key_value_heads=3, hidden_size=88, head_dim=32, attention_chunk_size=25, num_local_experts=3)),
    "qwen3_5_text-odd": ("qwen3_5_text", dict(DELTA, linear_key_head_dim=24, linear_value_head_dim=24)),
    "qwen3_5_text-32": ("qwen3_5_text", dict(DELTA, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_value_heads=3)),
    "qwen3_5_text-uneven": ("qwen3_5_text", dict(DELTA, linear_key_head_dim=16, linear_value_head_dim=32)),
    "qwen3_next-odd": ("qwen3_next", dict(
        DELTA, linear_key_head_dim=20, linear_value_head_dim=20, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=28,
        shared_expert_intermediate_size=20)),
    "lfm2-odd": ("lfm2", dict(HEADS, hidden_size=60, intermediate_size=84, block_ff_dim=84, conv_L_cache=4)),
    "lfm2_moe-odd": ("lfm2_moe", dict(HEADS, hidden_size=84, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20)),
    "bamba-odd": ("bamba", dict(
        num_attention_heads=6, num_key_value_heads=2, hidden_size=72, attn_rotary_emb=6, mamba_n_heads=12, mamba_d_head=12, mamba_d_state=20)),
    "falcon_h1-odd": ("falcon_h1", dict(
        num_attention_heads=3, num_key_value_heads=1, hidden_size=60, head_dim=20, mamba_n_heads=6, mamba_d_head=20, mamba_d_ssm=120, mamba_d_state=12)),
    "gpt_neox-odd": ("gpt_neox", dict(num_attention_heads=3, hidden_size=96)),
    "stablelm-odd": ("stablelm", dict(num_attention_heads=5, num_key_value_heads=5, hidden_size=80, intermediate_size=68)),
    "gpt2-odd": ("gpt2", dict(n_head=3, hidden_size=84, n_inner=76)),
    "llama-66": ("llama", dict(num_attention_heads=3, num_key_value_heads=1, hidden_size=66, intermediate_size=64, head_dim=32)),
    "llama-112": ("llama", dict(num_attention_heads=7, num_key_value_heads=7, hidden_size=112, intermediate_size=60, head_dim=36)),
    LOUD: ("gemma3_text", {}),
}


def louder(dir):
    """Multiplies what the MLPs of a Gemma add to the stream by 100 000; gains of its norms add 1."""
    tensors = make.load_file(dir / "model.safetensors")
    for name, t in tensors.items():
        if "post_feedforward_layernorm" in name: tensors[name] = ((t.float() + 1) * 1e5 - 1).to(t.dtype)
    make.save_file(tensors, dir / "model.safetensors", metadata={"format": "pt"})


p = argparse.ArgumentParser()
p.add_argument("out"); p.add_argument("names", nargs="*"); p.add_argument("--seed", type=int, default=2)
a = p.parse_args()
make.transformers.utils.logging.set_verbosity_error(); make.transformers.utils.logging.disable_progress_bar(); make.torch.set_num_threads(1)
for name in a.names or ODD:
    dir = pathlib.Path(a.out) / name
    if (dir / "config.json").exists(): continue
    dir.mkdir(parents=True)
    base, options = ODD[name]
    prefix, known, *_ = make.CHECKPOINTS[base]
    make.CHECKPOINTS[name] = (prefix, {**known, **options}, f"{name} {a.seed}")
    make.make(name, dir)
    if name == LOUD: louder(dir)
