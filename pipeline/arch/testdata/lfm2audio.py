"""Checkpoints in the form of Liquid's LFM2-Audio, computed with classes of transformers: Lfm2 for the text model, and for the encoder of sound that
of Parakeet, which is NVIDIA's FastConformer too, under other names."""
import math

import torch
import transformers
from transformers.audio_utils import mel_filter_bank

# The names of Parakeet and those of the checkpoints.
NAMES = [
    ("subsampling.layers.", "pre_encode.conv."), ("subsampling.linear.", "pre_encode.out."), ("self_attn.q_proj.", "self_attn.linear_q."),
    ("self_attn.k_proj.", "self_attn.linear_k."), ("self_attn.v_proj.", "self_attn.linear_v."), ("self_attn.o_proj.", "self_attn.linear_out."),
    ("self_attn.relative_k_proj.", "self_attn.linear_pos."), ("self_attn.bias_", "self_attn.pos_bias_"), ("conv.norm.", "conv.batch_norm."),
]


def encoder(width, layers, heads, channels, kernel, factor, expansion, scaled):
    """The encoder, and what a checkpoint says about it."""
    model = transformers.ParakeetEncoder(transformers.ParakeetEncoderConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=expansion * width, conv_kernel_size=kernel,
        subsampling_factor=factor, subsampling_conv_channels=width if channels < 0 else channels, num_mel_bins=128, scale_input=scaled,
        attn_implementation="eager"))
    return model.float().eval(), dict(
        feat_in=128, feat_out=-1, n_layers=layers, d_model=width, subsampling="dw_striding", subsampling_factor=factor,
        subsampling_conv_channels=channels, causal_downsampling=False, reduction=None, reduction_position=None, reduction_factor=1,
        ff_expansion_factor=expansion, self_attention_model="rel_pos", n_heads=heads, att_context_size=[-1, -1], xscaling=scaled, untie_biases=True,
        pos_emb_max_len=5000, conv_kernel_size=kernel, conv_norm_type="batch_norm", conv_context_size=None, dropout=0.1, dropout_pre_encoder=0.1,
        dropout_emb=0.0, dropout_att=0.1)


def adapter(width, out):
    """The MLP after the encoder."""
    linear = torch.nn.Linear
    return torch.nn.Sequential(torch.nn.LayerNorm(width), linear(width, out), torch.nn.GELU(), linear(out, out)).float().eval()


def randomise(model, rng):
    """Gives every weight a random value in bfloat16, so that states keep their size."""
    for name, p in list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if "running" in n]:
        value = torch.randn(p.shape, generator=rng)
        if "bias_u" in name or "bias_v" in name or name.endswith("bias") or name.endswith("running_mean"):
            value *= 0.3
        elif name.endswith("running_var"):
            value = 1 + value.abs()
        elif p.dim() >= 2:
            value *= (1.7 if "subsampling" in name else 1.2) / p[0].numel() ** 0.5
        else:
            value = 1 + 0.2 * value
        p.data.copy_(value.to(torch.bfloat16))


def tensors(model, joiner):
    """Those of the checkpoint; num_batches_tracked is an integer there, too."""
    out = {}
    for name, t in model.state_dict().items():
        for a, b in NAMES:
            name = name.replace(a, b)
        out["conformer." + name] = t
    return out | {"audio_adapter.model." + name: t for name, t in joiner.state_dict().items()}


def rows(model, joiner, features):
    """What takes the place of the tokens of a clip with features [128, frames]. Liquid's ChatState counts one frame more, of zeros."""
    x = torch.nn.functional.pad(features, (0, 1)).T[None]
    return joiner(model(x, attention_mask=torch.ones(x.shape[:2], dtype=torch.bool)).last_hidden_state[0])


def library(wave):
    """The features of NeMo's preprocessor, [128, frames], as Liquid sets it."""
    x = torch.cat([wave[:1], wave[1:] - 0.97 * wave[:-1]])
    power = torch.stft(
        x, 512, 160, 400, torch.hann_window(400, periodic=False), center=True, pad_mode="constant", return_complex=True).abs() ** 2
    banks = torch.from_numpy(mel_filter_bank(257, 128, 0.0, 8000.0, 16000, norm="slaney", mel_scale="slaney")).float()
    x = torch.log(banks.T @ power + 2.0 ** -24)[:, :math.floor(len(wave) / 160)]
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
