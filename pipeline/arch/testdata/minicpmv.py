"""The tower of MiniCPM-V 2.6, 4.0 and 4.5 in torch, next to what engines make of a picture: written from the code of the checkpoints
(modeling_navit_siglip.py, resampler.py, modeling_minicpmv.py), which transformers does not have, and from MNN's omni.cpp.
"""
import math

import torch
from torch.nn import functional as F

AREA, MOST, SIDE, ROWS, HEAD = 448, 9, 70, 64, 128
WORDS = ["<unk>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"]


def nearest(edge, patch):
    """As C rounds: halves up."""
    return max(math.floor(edge / patch + 0.5) * patch, patch)


def fitted(h, w, patch, larger):
    """The size of a view of h x w pixels."""
    if larger or h * w > AREA * AREA:
        ratio = w / h
        h = int(AREA / math.sqrt(ratio))
        w = int(h * ratio)
    return nearest(h, patch), nearest(w, patch)


def divided(h, w, patch):
    """The sizes of the overview and of a slice, and the rows and columns of slices."""
    n = min(math.ceil(w * h / (AREA * AREA)), MOST)
    grids = [(m, k // m) for k in (n - 1, n, n + 1) if 1 <= k <= MOST for m in range(1, k + 1) if k % m == 0]
    rows, columns = min(grids, key=lambda g: abs(math.log(w / h) - math.log(g[1] / g[0])))
    return fitted(h, w, patch, False), fitted(h // rows, w // columns, patch, True), (rows, columns)


def views(image, patch):
    """The overview and the slices of a picture [height, width, 3]. Where values are few and factors powers of 2, every bilinear filter gives the same."""
    h, w, _ = image.shape
    overview, slice, (rows, columns) = divided(h, w, patch)
    pixels = image.permute(2, 0, 1)[None].float()

    def resized(height, width):
        assert {height / h, width / w} <= {0.5, 1, 2, 4}, (h, w, height, width)
        out = F.interpolate(pixels, (height, width), mode="bilinear", align_corners=False)[0]
        assert torch.equal(out, out.round())
        return out
    whole = resized(slice[0] * rows, slice[1] * columns)
    parts = whole.unfold(1, slice[0], slice[0]).unfold(2, slice[1], slice[1]).permute(1, 2, 0, 3, 4).flatten(0, 1)
    return [resized(*overview), *parts]


def buckets(n):
    """The row of the square of positions for each of n rows of patches."""
    return torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / n), torch.arange(1 / SIDE, 1, 1 / SIDE), right=True)


def places(h, w, width):
    """What the resampler adds to keys [h * w, width]: half for the column, half for the row."""
    def of(numbers):
        angle = numbers[:, None].double() / 10000 ** (torch.arange(width // 4).double() / (width // 4))
        return torch.cat([angle.sin(), angle.cos()], 1).float()
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    return torch.cat([of(columns.flatten()), of(rows.flatten())], 1)


def norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def rows(w, view, patch, layers, heads):
    """The rows of a view [3, height, width] with values from -1 to 1; w are the tensors of tower and resampler."""
    h, wide = view.shape[1] // patch, view.shape[2] // patch
    x = F.conv2d(view[None], w["vpm.embeddings.patch_embedding.weight"], w["vpm.embeddings.patch_embedding.bias"], stride=patch).flatten(2)[0].T
    x = x + w["vpm.embeddings.position_embedding.weight"][(buckets(h)[:, None] * SIDE + buckets(wide)).flatten()]
    for i in range(layers):
        p = f"vpm.encoder.layers.{i}."
        y = norm(w, p + "layer_norm1", x)
        q, k, v = (linear(w, p + f"self_attn.{c}_proj", y).unflatten(1, (heads, -1)).transpose(0, 1)[None] for c in "qkv")
        y = F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)
        x = x + linear(w, p + "self_attn.out_proj", y)
        y = F.gelu(linear(w, p + "mlp.fc1", norm(w, p + "layer_norm2", x)), approximate="tanh")
        x = x + linear(w, p + "mlp.fc2", y)
    x = norm(w, "vpm.post_layernorm", x)
    x = norm(w, "resampler.ln_kv", linear(w, "resampler.kv_proj", x))
    width = x.shape[1]
    y, _ = F.multi_head_attention_forward(
        norm(w, "resampler.ln_q", w["resampler.query"])[:, None], (x + places(h, wide, width))[:, None], x[:, None], width, width // HEAD,
        w["resampler.attn.in_proj_weight"], w["resampler.attn.in_proj_bias"], None, None, False, 0.0,
        w["resampler.attn.out_proj.weight"], w["resampler.attn.out_proj.bias"], training=False, need_weights=False)
    return norm(w, "resampler.ln_post", y[:, 0]) @ w["resampler.proj"]


def seen(tok, number, count):
    """The tokens of a picture of so many views."""
    pad, start, end, open, close, first, last = (tok.token_to_id(x) for x in WORDS)
    parts = sum(([open] + [pad] * ROWS + [close] for _ in range(count - 1)), [])
    return [first, *tok.encode(str(number), add_special_tokens=False).ids, last, start] + [pad] * ROWS + [end] + parts


def tensors(hidden, inner, layers, patch, width, rng):
    """Random weights."""
    w = {}

    def value(name, *shape, scale, about=0.0):
        w[name] = (about + torch.randn(shape, generator=rng) * scale).to(torch.bfloat16)

    def dense(name, out, into, *more, scale=1.2):
        value(name + ".weight", out, into, *more, scale=scale / (into * math.prod(more)) ** 0.5)

    def gains(name, n):
        value(name + ".weight", n, scale=0.2, about=1.0)
        value(name + ".bias", n, scale=0.3)

    dense("vpm.embeddings.patch_embedding", hidden, 3, patch, patch, scale=3)
    value("vpm.embeddings.patch_embedding.bias", hidden, scale=0.3)
    value("vpm.embeddings.position_embedding.weight", SIDE * SIDE, hidden, scale=0.5)
    for i in range(layers):
        p = f"vpm.encoder.layers.{i}."
        for name, out, into in (*((f"self_attn.{c}_proj", hidden, hidden) for c in ("q", "k", "v", "out")), ("mlp.fc1", inner, hidden), ("mlp.fc2", hidden, inner)):
            dense(p + name, out, into)
            value(p + name + ".bias", out, scale=0.3)
        gains(p + "layer_norm1", hidden)
        gains(p + "layer_norm2", hidden)
    gains("vpm.post_layernorm", hidden)
    value("resampler.query", ROWS, width, scale=1)
    dense("resampler.kv_proj", width, hidden)
    value("resampler.attn.in_proj_weight", 3 * width, width, scale=1.5 / width ** 0.5)
    value("resampler.attn.in_proj_bias", 3 * width, scale=0.3)
    dense("resampler.attn.out_proj", width, width)
    value("resampler.attn.out_proj.bias", width, scale=0.3)
    for name in ("ln_q", "ln_kv", "ln_post"):
        gains("resampler." + name, width)
    value("resampler.proj", width, width, scale=0.3 / width ** 0.5)
    return w
