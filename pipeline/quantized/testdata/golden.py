"""Packs small random matrices with the code of the programs that define the formats, and unpacks them with it.

    python golden.py SOURCES OUT

SOURCES holds files of these projects, unchanged, at these versions:

    autogptq/qlinear_cuda.py       AutoGPTQ/AutoGPTQ    9f7d37072917 auto_gptq/nn_modules/qlinear
    gptqmodel/model.py             ModelCloud/GPTQModel f4c327a17eb3 gptqmodel/utils
    gptqmodel/model_dequant.py     the same
    awq/gemm.py, packing_utils.py  casper-hansen/AutoAWQ 88e4c76b2075 awq/modules/linear, awq/utils
    ct94/                          the wheel compressed-tensors 0.9.4, unpacked

and compressed-tensors 0.20.0 has to be importable, with torch and safetensors. Classes and functions are taken out of
the files by name, so that nothing else of these projects is imported.

Every file of OUT has the tensors of one module "m" as those programs write them, and behind them what they mean:
"codes" U8 [rows, cols] and "zeros" I32 [rows, groups], which were put in, and "float" F32 [rows, cols], which the
program itself unpacks with the scales widened to float32.
"""

import ast
import math
import sys
import types
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from safetensors.torch import save_file

from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

SOURCES, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def take(path, names, **env):
    """Runs the definitions of names in a file, and nothing else of it."""
    tree = ast.parse((SOURCES / path).read_text())
    body = [n for n in tree.body if getattr(n, "name", None) in names]
    assert len(body) == len(names), (path, names)
    env |= {"torch": torch, "nn": nn, "np": np, "math": math}
    exec(compile(ast.Module(body, []), path, "exec"), env)
    return types.SimpleNamespace(**{n: env[n] for n in names})


def random(seed, rows, cols, group, bits, zeros, scale_type):
    g = torch.Generator().manual_seed(seed)
    groups = math.ceil(cols / group)
    codes = torch.randint(0, 2**bits, (rows, cols), generator=g)
    codes[0, 0], codes[0, 1] = 0, 2**bits - 1
    zp = torch.full((rows, groups), 2 ** (bits - 1))
    if zeros:
        zp = torch.randint(1, 2**bits, (rows, groups), generator=g)
        zp[0, 0], zp[1, 0] = 1, 2**bits - 1
    scale = (torch.rand(rows, groups, generator=g) * 0.05 + 0.001).to(scale_type)
    return codes, zp, scale


def expand(t, cols, group):
    return t.repeat_interleave(group, dim=1)[:, :cols]


def write(name, tensors, codes, zp, floats):
    tensors = {f"m.{k}": v for k, v in tensors.items()}
    tensors |= {"codes": codes.to(torch.uint8), "zeros": zp.to(torch.int32), "float": floats.float()}
    save_file({k: v.contiguous() for k, v in tensors.items()}, OUT / (name + ".safetensors"))


def linear(weight):
    m = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    m.weight.data = weight
    return m


def gptq(name, seed, rows, cols, group, bits, zeros, v2=False, act_order=False):
    quant = take("autogptq/qlinear_cuda.py", ["QuantLinear"], _autogptq_cuda_available=False, autogptq_cuda_256=None,
                 autogptq_cuda_64=None, transformers=types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=())))
    codes, zp, scale = random(seed, rows, cols, group, bits, zeros, torch.float16)
    m = quant.QuantLinear(bits, group, cols, rows, False)
    index = m.g_idx.clone()
    if act_order:
        index = index[torch.randperm(cols, generator=torch.Generator().manual_seed(seed))]
    weight = scale.float()[:, index.long()] * (codes - zp[:, index.long()])
    m.pack(linear(weight), scale.float(), zp.float(), index)
    half = m.scales.half()
    assert torch.equal(half.float(), m.scales)  # float32 so far, because the weights were
    floats = m(torch.eye(cols)).t()
    qzeros = m.qzeros
    if v2:
        zeros3 = take("gptqmodel/model_dequant.py", ["_correct_gptq_v1_qzeros", "_shift_gptq_qzeros", "_unpack_cols_3bit", "_pack_cols_3bit",
                      "_require_int32_words_for_3bit", "unpack_cols", "pack_cols"], PLANAR_BITS=(5, 6, 7))
        log = types.SimpleNamespace(info=types.SimpleNamespace(once=lambda *a: None))
        convert = take("gptqmodel/model.py", ["convert_gptq_v1_to_v2_format_module"], BaseQuantLinear=nn.Module, log=log,
                       _correct_gptq_v1_qzeros=zeros3._correct_gptq_v1_qzeros).convert_gptq_v1_to_v2_format_module
        m.qzero_format = lambda format: None
        convert(m, bits, torch.int32)
        qzeros = m.qzeros
    write(name, {"qweight": m.qweight, "qzeros": qzeros, "scales": half, "g_idx": index}, codes, zp, floats)


def awq(name, seed, rows, cols, group):
    module = take("awq/gemm.py", ["WQLinear_GEMM"], get_best_device=lambda: "cpu").WQLinear_GEMM
    unpack = take("awq/packing_utils.py", ["unpack_awq", "reverse_awq_order", "dequantize_gemm"],
                  AWQ_REVERSE_ORDER=[0, 4, 1, 5, 2, 6, 3, 7])
    codes, zp, scale = random(seed, rows, cols, group, 4, True, torch.float16)
    weight = expand(scale.float(), cols, group) * (codes - expand(zp, cols, group))
    m = module.from_linear(linear(weight), 4, group, scales=scale.float().t().contiguous(), zeros=zp.t().contiguous())
    floats = unpack.dequantize_gemm(m.qweight, m.qzeros, m.scales.float(), 4, group).t()
    write(name, {"qweight": m.qweight, "qzeros": m.qzeros, "scales": m.scales}, codes, zp, floats)


def compressed(name, seed, rows, cols, group, bits, zeros, scale_type, old=False):
    codes, zp, scale = random(seed, rows, cols, group, bits, zeros, scale_type)
    mid = 2 ** (bits - 1)
    signed, signed_zp = (codes - mid).to(torch.int8), (zp - mid).to(torch.int8)
    args = QuantizationArgs(num_bits=bits, symmetric=not zeros, strategy="channel" if group == cols else "group",
                            group_size=None if group == cols else group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight = expand(scale.float(), cols, group) * (codes - expand(zp, cols, group))
    state = {"weight": weight, "weight_scale": scale.float(), "weight_zero_point": signed_zp}
    packed = PackedQuantizationCompressor.compress(state, scheme)
    floats = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    if scale_type != torch.float32:  # what the program computes in the type of the scales is one rounding away
        narrow = PackedQuantizationCompressor.decompress(packed | {"weight_scale": scale}, scheme)["weight"]
        assert torch.equal(floats.to(scale_type), narrow)
    if old:
        f = take("ct94/compressed_tensors/compressors/quantized_compressors/pack_quantized.py", ["pack_to_int32", "unpack_from_int32"],
                 Union=__import__("typing").Union, Literal=__import__("typing").Literal, Dict=dict)
        packed["weight_packed"] = f.pack_to_int32(signed, bits)
        assert torch.equal(f.unpack_from_int32(packed["weight_packed"], bits, signed.shape), signed)
        if zeros:
            packed["weight_zero_point"] = f.pack_to_int32(signed_zp, bits, packed_dim=0)
            assert torch.equal(f.unpack_from_int32(packed["weight_zero_point"], bits, signed_zp.shape, packed_dim=0), signed_zp)
    packed["weight_scale"] = scale
    write(name, {k: v for k, v in packed.items() if v is not None}, codes, zp, floats)


OUT.mkdir(parents=True, exist_ok=True)
for i, bits in enumerate([2, 3, 4, 8]):
    gptq(f"gptq-{bits}-asym", 10 + i, 32, 64, 32, bits, True)
    gptq(f"gptq_v2-{bits}-asym", 20 + i, 32, 64, 32, bits, True, v2=True)
gptq("gptq-4-sym", 30, 32, 128, 64, 4, False)
gptq("gptq-4-row", 31, 32, 96, 96, 4, True)
gptq("gptq-4-256", 32, 32, 512, 256, 4, False)
gptq("gptq-4-16", 33, 32, 64, 16, 4, False)
gptq("gptq-4-order", 34, 32, 64, 32, 4, True, act_order=True)
awq("awq-4", 40, 32, 128, 64)
awq("awq-4-row", 41, 32, 96, 96)
for i, bits in enumerate([2, 3, 4, 5, 6, 8]):
    compressed(f"compressed-{bits}-sym", 50 + i, 24, 64, 32, bits, False, torch.bfloat16)
    compressed(f"compressed-{bits}-asym", 60 + i, 24, 64, 32, bits, True, torch.float16)
compressed("compressed-4-row", 70, 24, 96, 96, 4, False, torch.float16)
compressed("compressed-4-f32", 71, 24, 64, 32, 4, False, torch.float32)
compressed("compressed-4-f32-asym", 72, 24, 64, 32, 4, True, torch.float32)
compressed("compressed-3-padded", 73, 40, 64, 32, 3, True, torch.float16, old=True)
compressed("compressed-6-padded", 74, 20, 64, 32, 6, True, torch.bfloat16, old=True)
