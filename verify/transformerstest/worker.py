"""Runs checkpoints on transformers for the Go tests beside it.

Reads one JSON object a line from standard input and answers with one JSON object a line:

    {"dir": DIR, "ids": [[...], ...], "out": FILE}          logits of every list of ids, float32 little endian, to FILE
    {"dir": DIR, "ids": ..., "out": ..., "seed": N}         the same of new random weights, which it writes to DIR first
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
from transformers.models.auto import modeling_auto

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


def run(job):
    if "defaults" in job:
        return {"keys": finite(tf.AutoConfig.for_model(job["defaults"]).to_dict())}
    folder = pathlib.Path(job["dir"])
    if "chats" in job:
        tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        return {"prompts": [prompt(tokenizer, c) for c in job["chats"]]}
    config = tf.AutoConfig.from_pretrained(folder)
    if job.get("seed") is not None:
        write_random(folder, config, job["seed"])
        config = tf.AutoConfig.from_pretrained(folder)
    model, info = model_class(config).from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True, ignore_mismatched_sizes=True)
    misfit = sorted({str(k) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for k in info[kind]})
    if misfit:
        return {"misfit": misfit[:8]}
    model.eval()
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
