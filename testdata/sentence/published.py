"""Encoders that transformers has no class for under the keys and tensor names of the hub, written down from what the code beside the checkpoints computes.

    Nomic   nomic-ai/nomic-bert-2048, modeling_hf_nomic_bert.py
    Jina    jinaai/jina-bert-implementation, modeling_bert.py
    Gte     Alibaba-NLP/new-impl, modeling.py; Snowflake/snowflake-arctic-embed-m-v2.0 has a copy under another model type

Each is made of its config, a dict, and returns the last states of token ids [1, tokens].
"""
import math

import torch
from torch import nn
from torch.nn.functional import gelu, relu, silu


def tree(**parts):
    """A module of named parts."""
    m = nn.Module()
    for name, part in parts.items():
        setattr(m, name, part)
    return m


def embeddings(c, width, rows, **parts):
    if c["type_vocab_size"]:
        parts["token_type_embeddings"] = nn.Embedding(c["type_vocab_size"], width)
    return tree(word_embeddings=nn.Embedding(rows, width), **parts)


def embed(m, ids):
    """The sum of the rows of tokens and of the first segment."""
    h = m.word_embeddings(ids)
    return h + m.token_type_embeddings.weight[0] if hasattr(m, "token_type_embeddings") else h


def turn(x, frequencies):
    """Heads x [heads, tokens, width], of which the first 2 x len(frequencies) elements turn with the position, half-split."""
    n = len(frequencies)
    angles = torch.arange(x.shape[1]).float()[:, None] * frequencies
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attention(qkv, heads, frequencies=None, bias=0):
    """Attention of all tokens to all: q, k and v [1, tokens, width] each."""
    q, k, v = (x[0].view(x.shape[1], heads, -1).transpose(0, 1) for x in qkv)
    if frequencies is not None:
        q, k = turn(q, frequencies), turn(k, frequencies)
    weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias, -1)
    return (weights @ v).transpose(0, 1).reshape(1, qkv[0].shape[1], -1)


class Nomic(nn.Module):
    prefix = ""

    def __init__(self, c):
        super().__init__()
        self.c, width, eps = c, c["n_embd"], c["layer_norm_epsilon"]
        rows = -(-c["vocab_size"] // c["pad_vocab_size_multiple"]) * c["pad_vocab_size_multiple"]
        inner = -(-c["n_inner"] // 256) * 256
        self.embeddings, self.emb_ln = embeddings(c, width, rows), nn.LayerNorm(width, eps)
        up, down, bias = c["mlp_fc1_bias"], c["mlp_fc2_bias"], c["qkv_proj_bias"]
        self.encoder = tree(layers=nn.ModuleList(tree(
            attn=tree(Wqkv=nn.Linear(width, 3 * width, bias), out_proj=nn.Linear(width, width, bias)),
            mlp=tree(fc11=nn.Linear(width, inner, up), fc12=nn.Linear(width, inner, up), fc2=nn.Linear(inner, width, down)),
            norm1=nn.LayerNorm(width, eps), norm2=nn.LayerNorm(width, eps)) for _ in range(c["n_layer"])))

    def forward(self, ids):
        c = self.c
        dim = int(c["n_embd"] // c["n_head"] * c["rotary_emb_fraction"])
        frequencies = 1.0 / c["rotary_emb_base"] ** (torch.arange(0, dim, 2).float() / dim)
        act = {"swiglu": silu, "geglu": gelu}[c["activation_function"]]
        h = self.emb_ln(embed(self.embeddings, ids))
        for x in self.encoder.layers:
            h = x.norm1(x.attn.out_proj(attention(x.attn.Wqkv(h).chunk(3, -1), c["n_head"], frequencies)) + h)
            h = x.norm2(x.mlp.fc2(x.mlp.fc11(h) * act(x.mlp.fc12(h))) + h)
        return h


def slopes(heads):
    """Of ALiBi: powers of 2^(-8/n) for n heads, n a power of 2, and for others every second one of the next such number."""
    n = 2 ** math.floor(math.log2(heads))
    start = 2.0 ** (-(2.0 ** -(math.log2(n) - 3)))
    out = [start * start ** i for i in range(n)]
    return out if n == heads else out + slopes(2 * n)[0::2][:heads - n]


class Jina(nn.Module):
    prefix = "bert."

    def __init__(self, c):
        super().__init__()
        self.c, width, inner, eps = c, c["hidden_size"], c["intermediate_size"], c["layer_norm_eps"]

        def linear():
            return nn.Linear(width, width)

        def norm():
            return nn.LayerNorm(width, eps)
        self.embeddings = embeddings(c, width, c["vocab_size"], LayerNorm=norm())
        self.encoder = tree(layer=nn.ModuleList(tree(
            attention=tree(self=tree(query=linear(), key=linear(), value=linear()), output=tree(dense=linear(), LayerNorm=norm())),
            mlp=tree(gated_layers=nn.Linear(width, 2 * inner, False), wo=nn.Linear(inner, width), layernorm=norm())) for _ in range(c["num_hidden_layers"])))

    def forward(self, ids):
        act = {"geglu": gelu, "reglu": relu}[self.c["feed_forward_type"]]
        heads, places = self.c["num_attention_heads"], torch.arange(ids.shape[1])
        bias = -torch.tensor(slopes(heads))[:, None, None] * (places[None, :] - places[:, None]).abs()
        h = self.embeddings.LayerNorm(embed(self.embeddings, ids))
        for x in self.encoder.layer:
            a = getattr(x.attention, "self")
            o = attention((a.query(h), a.key(h), a.value(h)), heads, bias=bias)
            h = x.attention.output.LayerNorm(x.attention.output.dense(o) + h)
            gate, up = x.mlp.gated_layers(h).chunk(2, -1)
            h = x.mlp.layernorm(x.mlp.wo(act(gate) * up) + h)
        return h


class Gte(nn.Module):
    prefix = "new."

    def __init__(self, c):
        super().__init__()
        self.c, width, inner, eps = c, c["hidden_size"], c["intermediate_size"], c["layer_norm_eps"]
        self.embeddings = embeddings(c, width, c["vocab_size"], LayerNorm=nn.LayerNorm(width, eps))
        parts = {"qkv_proj": 3} if c["pack_qkv"] else {"q_proj": 1, "k_proj": 1, "v_proj": 1}
        self.encoder = tree(layer=nn.ModuleList(tree(
            attention=tree(**{name: nn.Linear(width, n * width) for name, n in parts.items()}, o_proj=nn.Linear(width, width)),
            mlp=tree(up_gate_proj=nn.Linear(width, 2 * inner, False), down_proj=nn.Linear(inner, width)),
            attn_ln=nn.LayerNorm(width, eps), mlp_ln=nn.LayerNorm(width, eps)) for _ in range(c["num_hidden_layers"])))

    def frequencies(self):
        c, scaling = self.c, self.c["rope_scaling"]
        dim = c["hidden_size"] // c["num_attention_heads"]
        factor = scaling["factor"] if scaling else 1.0
        return 1.0 / (c["rope_theta"] * factor) ** (torch.arange(0, dim, 2).float() / dim) / factor ** (2 / dim)

    def forward(self, ids):
        act, f = {"gelu": gelu, "silu": silu}[self.c["hidden_act"]], self.frequencies()
        h = self.embeddings.LayerNorm(embed(self.embeddings, ids))
        for x in self.encoder.layer:
            a = x.attention
            qkv = a.qkv_proj(h).chunk(3, -1) if self.c["pack_qkv"] else (a.q_proj(h), a.k_proj(h), a.v_proj(h))
            h = x.attn_ln(a.o_proj(attention(qkv, self.c["num_attention_heads"], f)) + h)
            up, gate = x.mlp.up_gate_proj(h).chunk(2, -1)
            h = x.mlp_ln(x.mlp.down_proj(act(gate) * up) + h)
        return h
