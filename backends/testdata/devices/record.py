"""Writes measured.json, the table that TestMeasured holds the rules to, from the results of runs and from packages.

    record.py MEASURED.jsonl PROGRAM PACKAGES [RUNS.jsonl...] > measured.json

MEASURED.jsonl has a line per run: {"engine": "opencl-3.6.1", "pkg": "f-llama-16", "opts": {...}, "own": {"kl_prefill", "kl_decode"}}, or "failed"
instead of "own"; "own" is the divergence in nats from the same package on the x86 CPU in float. PACKAGES has a package sh-NAME for every family NAME
of the table, made by PROGRAM at 16 bits, whose features it asks for. RUNS.jsonl are results of measure.py, which have them. What a run says about itself and not about a device is left out and counted.
"""
import collections, json, os, re, subprocess, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
program, packages = sys.argv[2:4]
left, features, cells = collections.Counter(), {}, []


def of_name(name):
    """of_name is what the name of a package of tiny-qwen3, of small-qwen3 or of the engine's own converter says of its storage."""
    if name in ("q4-c4", "q4-classic", "q4-sepembed-classic"): return {"linears": [{"bits": 4, "block": 64, "header": 4}], "head_dims": [32], "classic": name != "q4-c4"}
    if name == "q4-sym-fp32scale-classic": return {"linears": [{"bits": 4, "block": 64, "symmetric": True, "header": 4}], "head_dims": [32], "classic": True}
    if name == "f16-classic": return {"linears": [{"bits": 16}], "head_dims": [32], "classic": True}
    if name == "q8-classic": return {"linears": [{"bits": 8, "block": 64, "header": 8}], "head_dims": [32], "classic": True}
    m = re.fullmatch(r"(?:e35-)?(?:tiny|small)-(\d+)((?:-\w+)*)", name)
    if not m: return None
    bits, more = int(m[1]), m[2].split("-")
    if bits == 16: return {"linears": [{"bits": 16}], "head_dims": [32], "classic": True}
    block = next((int(x[1:]) for x in more if re.fullmatch(r"b\d+", x)), 0 if "row" in more else 64)
    return {"linears": [{"bits": bits, "block": block, "symmetric": "sym" in more, "header": 8 if "m8" in more else bits}], "head_dims": [32], "classic": True}


def of_family(name):
    m = re.fullmatch(r"(?:e35-)?f-(.+?)(?:-(4|16))?", name)
    p = subprocess.run([program, "devices", "--json", os.path.join(packages, "sh-" + m[1])], capture_output=True, text=True)
    if p.returncode: sys.exit(f"{name}: {p.stderr}")
    f = json.loads(p.stdout)["features"]
    if m[2] == "4": f["linears"] = [{"bits": 4, "block": 32, "header": 4}]
    return f


key = lambda r: json.dumps([r["engine"], r["pkg"], r["opts"]], sort_keys=True)
succeeded = {key(r) for r in rows if "own" in r}
for r in rows:
    o = r["opts"]
    if "chunk" in o: left["chunk with all_logits, which crashes on the CPU too"] += 1; continue
    if "failed" in r and o.get("thread_num") == 68: left["tuning of kernels on pocl, which does not end in ten minutes"] += 1; continue
    if "failed" in r and (key(r) in succeeded or r["failed"] in (1, "rc 1") or r.get("rc") == 1): left["a run that failed outside the engine and was repeated"] += 1; continue
    if "-3.5.0" in r["engine"] and "e35" not in r["pkg"]: left["a package for engine 3.6 on 3.5.0"] += 1; continue
    if "attn_scale" in o: left["a scale of scores that the package does not have"] += 1; continue
    if r["pkg"] not in features: features[r["pkg"]] = of_name(r["pkg"]) or of_family(r["pkg"])
    own = r.get("own", {})
    cells.append({"engine": r["engine"], "package": r["pkg"], "precision": o.get("precision", "high"), "memory": o.get("memory", "high"), "attention_mode": o.get("attention_mode", 0),
                  "prefill": own.get("kl_prefill"), "decode": own.get("kl_decode"), "not_finite": r.get("not_finite", 0), "failed": "failed" in r})

for path in sys.argv[4:]:
    for r in map(json.loads, open(path)):
        if not r["opts"]: left["a package that the CPU in Python does not run"] += 1; continue
        name, o, own = "today-" + r["pkg"], r["opts"], r.get("own", {})
        features[name] = json.loads(subprocess.run([program, "devices", "--json", os.path.join(packages, r["pkg"])], capture_output=True, text=True, check=True).stdout)["features"]
        kl = lambda phase: own.get("kl_" + phase) if own.get("kl_" + phase) == own.get("kl_" + phase) else None   # not NaN
        cells.append({"engine": r["engine"], "package": name, "precision": o["precision"], "memory": o["memory"], "attention_mode": 0,
                      "prefill": kl("prefill"), "decode": kl("decode"), "not_finite": r.get("not_finite", 0), "failed": "failed" in r})

drop = lambda d: {k: v for k, v in d.items() if v not in (0, None, False) or k in ("prefill", "decode") and v is not None}
print('{"left_out": ' + json.dumps(left) + ',\n"packages": {')
print(",\n".join(json.dumps(n) + ": " + json.dumps(features[n]) for n in sorted(features)))
print('},\n"cells": [')
print(",\n".join(json.dumps(drop(c)) for c in cells))
print("]}")
