"""FastViTHD, the tower of FastVLM, in torch: written from the code of Apple's repository (ml-fastvlm, mobileclip/mci.py, fastvithd), because
the class of transformers needs timm and has other names. Every convolution is one, as in published checkpoints.
"""
import itertools

import torch
from torch.nn import functional as F

HEAD = 32  # elements of a head of attention


def conv(w, name, x, stride=1, act=True):
    """A convolution in as many groups as the kernels say, and GELU."""
    kernels = w[name + ".weight"]
    y = F.conv2d(x, kernels, w[name + ".bias"], stride=stride, padding=kernels.shape[-1] // 2, groups=x.shape[1] // kernels.shape[1])
    return F.gelu(y) if act else y


def attention(w, at, x):
    b, n, h, wide = x.shape
    mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    y = (x - mean) / torch.sqrt(variance + 1e-5) * w[at + "norm.weight"][:, None, None] + w[at + "norm.bias"][:, None, None]
    rows = y.flatten(2).transpose(1, 2)
    q, k, v = F.linear(rows, w[at + "token_mixer.qkv.weight"]).reshape(b, h * wide, 3, n // HEAD, HEAD).permute(2, 0, 3, 1, 4)
    rows = ((q * HEAD ** -0.5) @ k.transpose(-2, -1)).softmax(-1) @ v
    rows = F.linear(rows.transpose(1, 2).reshape(b, h * wide, n), w[at + "token_mixer.proj.weight"], w[at + "token_mixer.proj.bias"])
    return rows.transpose(1, 2).reshape(x.shape)


def ffn(w, at, x):
    y = F.conv2d(x, w[at + "conv.conv.weight"], padding=3, groups=x.shape[1])
    bn = at + "conv.bn."
    y = F.batch_norm(y, w[bn + "running_mean"], w[bn + "running_var"], w[bn + "weight"], w[bn + "bias"], eps=1e-5)
    return conv(w, at + "fc2", conv(w, at + "fc1", y), act=False)


def features(w, x):
    """The states [1, places, channels] of pixels [1, 3, edge, edge]; w are the tensors of the tower."""
    x = conv(w, "patch_embed.0.reparam_conv", x, 2)
    x = conv(w, "patch_embed.2.reparam_conv", conv(w, "patch_embed.1.reparam_conv", x, 2))
    for i in itertools.count():
        at = f"network.{i}."
        if at + "proj.0.lkb_reparam.weight" in w:
            x = conv(w, at + "proj.1.reparam_conv", conv(w, at + "proj.0.lkb_reparam", x, 2))
        elif at + "reparam_conv.weight" in w:
            x = conv(w, at + "reparam_conv", x, act=False)
        elif at + "0.convffn.fc1.weight" not in w:
            break
        for k in itertools.count():
            p = f"{at}{k}."
            if p + "convffn.fc1.weight" not in w:
                break
            if p + "token_mixer.qkv.weight" in w:
                x = x + w[p + "layer_scale_1"] * attention(w, p, x)
                x = x + w[p + "layer_scale_2"] * ffn(w, p + "convffn.", x)
            else:
                x = conv(w, p + "token_mixer.reparam_conv", x, act=False)
                x = x + w[p + "layer_scale"] * ffn(w, p + "convffn.", x)
    y = conv(w, "conv_exp.reparam_conv", x, act=False)
    gain = conv(w, "conv_exp.se.expand", F.relu(conv(w, "conv_exp.se.reduce", y.mean((2, 3), keepdim=True), act=False)), act=False)
    return F.gelu(y * torch.sigmoid(gain)).flatten(2).transpose(1, 2)


def tensors(blocks, channels, ratio, gain, rng):
    """Random weights of a tower with so many blocks and channels in each stage. With less gain biases would drown pictures."""
    w = {}

    def value(name, *shape, scale=None, about=0.0):
        scale = scale if scale is not None else gain / (torch.Size(shape[1:]).numel() ** 0.5)
        w[name] = (about + torch.randn(shape, generator=rng) * scale).to(torch.bfloat16)

    def filters(name, out, into, edge):
        value(name + ".weight", out, into, edge, edge)
        value(name + ".bias", out, scale=0.1)

    def block(at, n, attends):
        value(at + "convffn.conv.conv.weight", n, 1, 7, 7)
        bn = at + "convffn.conv.bn."
        for name, about in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0)):
            value(bn + name, n, scale=0.2, about=about)
        w[bn + "running_var"] = (0.5 + torch.rand(n, generator=rng)).to(torch.bfloat16)
        w[bn + "num_batches_tracked"] = torch.tensor(7)
        filters(at + "convffn.fc1", n * ratio, n, 1)
        filters(at + "convffn.fc2", n, n * ratio, 1)
        if not attends:
            filters(at + "token_mixer.reparam_conv", n, 1, 3)
            return value(at + "layer_scale", n, 1, 1, scale=0.2, about=0.5)
        for name, about in (("weight", 1.0), ("bias", 0.0)):
            value(at + "norm." + name, n, scale=0.2, about=about)
        value(at + "token_mixer.qkv.weight", 3 * n, n)
        value(at + "token_mixer.proj.weight", n, n)
        value(at + "token_mixer.proj.bias", n, scale=0.2)
        for name in ("layer_scale_1", "layer_scale_2"):
            value(at + name, n, 1, 1, scale=0.2, about=0.5)

    n = channels[0]
    filters("patch_embed.0.reparam_conv", n, 3, 3)
    filters("patch_embed.1.reparam_conv", n, 1, 3)
    filters("patch_embed.2.reparam_conv", n, n, 1)
    at = itertools.count()
    for stage, count in enumerate(blocks):
        if stage:
            down = f"network.{next(at)}.proj."
            filters(down + "0.lkb_reparam", channels[stage], 1, 7)
            filters(down + "1.reparam_conv", channels[stage], channels[stage], 1)
        n = channels[stage]
        if stage > 2:
            filters(f"network.{next(at)}.reparam_conv", n, 1, 7)
        place = next(at)
        for k in range(count):
            block(f"network.{place}.{k}.", n, stage > 2)
    filters("conv_exp.reparam_conv", 2 * n, 1, 3)
    filters("conv_exp.se.reduce", 2 * n // 16, 2 * n, 1)
    filters("conv_exp.se.expand", 2 * n, 2 * n // 16, 1)
    value("head.proj", 2 * n, 8)
    return w
