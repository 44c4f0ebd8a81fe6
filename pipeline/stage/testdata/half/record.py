"""Records the logits of the released engine on arm64, in half precision and with int8 activations, which TestHalf compares with those of this program's runtime.

    record.py PROGRAM PYTHON DIR > recorded.json

PYTHON is python-VERSION of `backends/testdata/devices/build.sh arm64`, the engine on an emulated arm64. DIR keeps the packages, which PROGRAM makes of
the small checkpoints. A row of logits becomes the CRC-32 of its float32 numbers.
"""
import json, os, random, subprocess, sys, zlib
import numpy as np

program, python, work = sys.argv[1:4]
here = os.path.dirname(os.path.abspath(__file__)); root = os.path.join(here, "../../../.."); fixtures = os.path.join(root, "pipeline/arch/testdata")
parts = [84] + 12 * [1]   # a prompt and tokens one by one
packages = [("tiny-qwen3", b) for b in (16, 8, 4)] + [(f, b) for f in
    ("llama", "gemma3_text", "gemma2", "mixtral", "qwen3_moe", "lfm2", "deepseek_v3", "qwen3_5_text") for b in (16, 8, 4)]
os.makedirs(work, exist_ok=True); out = []
for name, bits in packages:
    checkpoint = os.path.realpath(os.path.join(root, "testdata", name) if name == "tiny-qwen3" else os.path.join(fixtures, name))
    pkg, ids, npy = (os.path.join(work, f"{name}-{bits}{end}") for end in ("", ".json", ".npy"))
    if not os.path.exists(pkg):
        recipe = os.path.join(work, f"{name}-{bits}.yaml")
        with open(recipe, "w") as f:
            f.write(f'version: 1\nname: small\nmodel: {{path: {checkpoint}}}\ntarget: {{engine: "3.5"}}\nquantize: {{method: rtn, bits: {bits}, block: auto}}\n'
                    f"verify: {{enabled: false}}\npublish: [{{dir: {pkg}}}]\n")
        subprocess.run([program, "run", recipe, "--progress", "none", "--log-level", "error"], check=True, stdout=sys.stderr)
    vocab = json.load(open(os.path.join(checkpoint, "config.json")))["vocab_size"]
    r = random.Random(name.split("-")[0]); window = [r.randrange(vocab) for _ in range(sum(parts))]
    json.dump([window], open(ids, "w"))
    ways = [("low", "high")] + [("low", "low")] * (bits < 16)
    if bits == 8 and name not in ("gemma2", "qwen3_5_text"): ways.append(("normal", "low"))   # the runtime does not repeat all of those ops in float32
    for precision, memory in ways:
        options = json.dumps({"precision": precision, "memory": memory})
        subprocess.run([python, os.path.join(root, "backends/testdata/devices/logits.py"), pkg, ids, npy, options, "--parts", ",".join(map(str, parts))],
                       check=True, stdout=sys.stderr, env={**os.environ, "CPU": "max"})
        rows = [zlib.crc32((row.astype("<f4") + np.float32(0)).tobytes()) for row in np.load(npy)[0]]
        out.append(json.dumps({"checkpoint": name, "bits": bits, "precision": precision, "memory": memory, "prompt": parts[0], "ids": window, "rows": rows}))
print("[\n" + ",\n".join(out) + "\n]")
