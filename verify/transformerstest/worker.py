"""Runs checkpoints on transformers for the Go tests beside it.

Reads one JSON object a line from standard input and answers with one JSON object a line:

    {"dir": DIR, "ids": [[...], ...], "out": FILE}          logits of every list of ids, float32 little endian, to FILE
    {"dir": DIR, "ids": ..., "out": ..., "seed": N}         the same of new random weights, which it writes to DIR first
    {"dir": DIR, "clips": [FILE, ...], "out": FILE}         what takes the place of the tokens of clips with these features, float32 [128, frames]
                                                            each; with a seed and a folder "base" of new random weights of what computes it
    {"dir": DIR, "chats": [{"messages": [...], ...}, ...]}  the ids of every conversation's prompt, or why there is none
    {"defaults": MODEL_TYPE}                                the keys that the class of a configuration has

DIR holds config.json, and model.safetensors unless there is a seed. Weights that do not fit the config, because a tensor
is missing, left over or of another shape, are an answer {"misfit": [names]} without logits.

Everything runs in float32 with eager attention, from weights in bfloat16.
"""
import json
import logging
import math
import os
import pathlib
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from transformers.models.auto import modeling_auto

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "pipeline" / "arch" / "testdata"))
import lfm2audio

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
tf.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

MAX_WEIGHTS = 20_000_000


def model_class(config):
    """The class that a config names, or the one that the library picks for it where the name is of another config."""
    named = getattr(tf, (config.architectures or [""])[0], None)
    if getattr(named, "config_class", None) is type(config):
        return named
    return modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def randomise(model, gen):
    """Gives every weight another value, so that one that is dropped or misplaced shows."""
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            v = torch.randn(p.shape, generator=gen) * (1.2 / p.shape[-1] ** 0.5)
            if "embed" in name:
                v = torch.randn(p.shape, generator=gen) * 0.15
        elif name.endswith("A_log"):
            v = torch.rand(p.shape, generator=gen) * 1.5
        elif name.endswith("bias") or "dt_bias" in name or "sinks" in name:
            v = torch.randn(p.shape, generator=gen) * 0.3
        else:  # gains of norms keep the centre of their family, 0 or 1
            v = p.data.float().mean() + torch.randn(p.shape, generator=gen) * 0.2
        p.data.copy_(v)
    for name, b in model.named_buffers():
        if "e_score_correction_bias" in name or "expert_bias" in name:
            b.copy_(torch.randn(b.shape, generator=gen) * 0.1)
        elif "layer_scalar" in name:
            b.copy_(1 + torch.randn(b.shape, generator=gen) * 0.2)
        elif name.endswith(("put_min", "put_max")):  # bounds of what matrices read and write, which the library begins as infinite
            b.copy_((1.5 + torch.rand(b.shape, generator=gen)) * (1 if name.endswith("max") else -1))


def write_random(folder, config, seed):
    """Writes new weights for a config beside it, under the names and in the form that the library gives them."""
    config._attn_implementation = "eager"
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config)._from_config(config).parameters())
    if size > MAX_WEIGHTS:
        raise ValueError(f"{size} weights are more than this test makes")
    torch.manual_seed(seed)
    model = model_class(config)._from_config(config, dtype=torch.float32).eval()
    randomise(model, torch.Generator().manual_seed(seed))
    text = (folder / "config.json").read_bytes()
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="1GB")
    (folder / "config.json").write_bytes(text)
    (folder / "generation_config.json").unlink(missing_ok=True)


def finite(value):
    """Writes numbers that JSON does not have as the library writes them into config.json."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")}
    return value


def prompt(tokenizer, c):
    """The ids of the prompt of a conversation, in the form of runtime/template/conversations."""
    try:
        return {"ids": tokenizer.apply_chat_template(
            c["messages"], tools=c["tools"], tokenize=True, return_dict=False, add_generation_prompt=c["add_generation_prompt"],
            continue_final_message=c["continue_final_message"], **c["context"])}
    except Exception as e:  # of the template, or of what it cannot continue
        return {"error": f"{type(e).__name__}: {e}"[:600]}


def pretrained(folder, job):
    """The config and the model in a folder, with new weights if there is a seed, and the names of weights that do not fit."""
    config = tf.AutoConfig.from_pretrained(folder)
    if job.get("seed") is not None:
        write_random(folder, config, job["seed"])
        config = tf.AutoConfig.from_pretrained(folder)
    model, info = model_class(config).from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True, ignore_mismatched_sizes=True)
    misfit = sorted({str(k) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for k in info[kind]})
    return model.eval(), misfit


def conformer(folder, job):
    """The encoder of LFM2-Audio and what is after it, see pretrained; the library has their classes, but not that of the model."""
    config = json.loads((folder / "config.json").read_text())
    e = config["encoder"]
    ear, _ = lfm2audio.encoder(*(e[k] for k in (
        "d_model", "n_layers", "n_heads", "subsampling_conv_channels", "conv_kernel_size", "subsampling_factor", "ff_expansion_factor", "xscaling")))
    parts = ear, lfm2audio.adapter(e["d_model"], config["lfm"]["hidden_size"])
    weights = folder / "model.safetensors"
    if job.get("seed") is not None:
        for part in parts:
            lfm2audio.randomise(part, torch.Generator().manual_seed(job["seed"]))
        kept = {k: v for k, v in load_file(pathlib.Path(job["base"]) / "model.safetensors").items() if not k.startswith(("conformer.", "audio_adapter."))}
        made = {k: (v.to(torch.bfloat16) if v.is_floating_point() else v).contiguous() for k, v in lfm2audio.tensors(*parts).items()}
        save_file(kept | made, weights, metadata={"format": "pt"})
    stored, own = load_file(weights), lfm2audio.tensors(*parts)
    ours = {k for k in stored if k.startswith(("conformer.", "audio_adapter."))}
    misfit = sorted(ours ^ set(own) | {k for k in ours & set(own) if stored[k].shape != own[k].shape})
    if not misfit:
        with torch.no_grad():
            for k, v in own.items():
                v.copy_(stored[k])
    return parts, misfit


def hear(job, folder):
    """Answers a job with clips. Each is read alone, as the engine does."""
    clips = [torch.from_numpy(np.fromfile(f, "<f4").reshape(128, -1)) for f in job["clips"]]
    kind = json.loads((folder / "config.json").read_text()).get("model_type", "lfm2_audio")  # whose files have none
    model, misfit = (conformer if kind == "lfm2_audio" else pretrained)(folder, job)
    if misfit:
        return {"misfit": misfit[:8]}
    if kind == "lfm2_audio":
        one = lambda x: lfm2audio.rows(*model, x)
    else:
        one = lambda x: in_place(model, kind == "gemma4", x)
    with torch.no_grad():
        rows = torch.cat([one(x) for x in clips]).float()
    if not torch.isfinite(rows).all():
        return {"error": "rows are not finite"}
    rows.numpy().astype("<f4").tofile(job["out"])
    return {}


def in_place(model, universal, features):
    """What the text model reads in place of the tokens of a clip. The library has another frame than the engine for Gemma 4, and reads what is
    after a clip as silence otherwise: see make.py of pipeline/arch/testdata."""
    n = features.shape[1]
    if universal:
        x, mask, count = torch.cat([features, features[:, -1:]], 1).T, torch.ones(n + 1, dtype=torch.bool), (n + 4) // 4
    else:
        x = torch.nn.functional.pad(features, (0, 3000 - n), value=max(-1.5, features.max().item() - 2))
        mask, count = (torch.arange(3000) < n).long(), (n + 1) // 2 // 2
    config = model.config
    pad = getattr(config, "audio_token_id", None) or config.audio_token_index
    ids, seen = torch.full((1, count), pad), []
    hook = model.model.language_model.register_forward_pre_hook(lambda m, a, k: seen.append(k["inputs_embeds"][0].float()), with_kwargs=True)
    try:
        model(input_ids=ids, attention_mask=torch.ones_like(ids), input_features=x[None], use_cache=False,
              **{"input_features_mask" if universal else "feature_attention_mask": mask[None]})
    finally:
        hook.remove()
    return seen[0] / (config.text_config.hidden_size ** 0.5 if universal else 1)


def run(job):
    if "defaults" in job:
        return {"keys": finite(tf.AutoConfig.for_model(job["defaults"]).to_dict())}
    folder = pathlib.Path(job["dir"])
    if "chats" in job:
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        return {"prompts": [prompt(tokenizer, c) for c in job["chats"]]}
    if "clips" in job:
        return hear(job, folder)
    model, misfit = pretrained(folder, job)
    if misfit:
        return {"misfit": misfit[:8]}
    with open(job["out"], "wb") as f, torch.no_grad():
        for ids in job["ids"]:
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
            if not torch.isfinite(logits).all():
                return {"error": "logits are not finite"}
            f.write(logits.numpy().astype("<f4").tobytes())
    return {}


def main():
    for line in sys.stdin:
        try:
            answer = run(json.loads(line))
        except Exception as e:  # reported to the test
            answer = {"error": f"{type(e).__name__}: {e}"[:600]}
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    # What libraries print is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
