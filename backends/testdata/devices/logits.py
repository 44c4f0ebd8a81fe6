"""Logits of a package on any engine, and KL to those of another run.

    logits.py PACKAGE IDS.npy OUT.npy ['JSON options'] [--parts 40,40,1,1,14] [--against REF.npy]

IDS.npy, or the same as JSON: int array [windows, n]. Each window is a fresh context; --parts feeds it in these pieces (default: all at once); a piece of 1 is a
decode. OUT.npy: float32 [windows, n, vocabulary]. JSON options go over precision high, memory high, one thread, CPU.
MNN_PLUGIN=libMNN_CL.so, libMNN_Vulkan.so or libMNN_Cuda.so (see build.sh) and "backend_type": "opencl", "vulkan" or "cuda" run the package on that
backend; on Vulkan set VK_ICD_FILENAMES to lavapipe's file. With python-VERSION of build.sh arm64 it runs on the emulated ARM engine. thread_num 1 on OpenCL means no tuning.
"""
import argparse, ctypes, json, os, sys, tempfile
import numpy as np

ap = argparse.ArgumentParser()
ap.add_argument("package"); ap.add_argument("ids"); ap.add_argument("out"); ap.add_argument("options", nargs="?", default="{}")
ap.add_argument("--parts"); ap.add_argument("--against")
a = ap.parse_args()
plug = os.environ.get("MNN_PLUGIN")
if plug:
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)   # the plug-in resolves MNN's classes in the wheel
import MNN.llm
if plug:
    ctypes.CDLL(plug, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
conf = {"backend_type": "cpu", "thread_num": 1, "precision": "high", "memory": "high", "all_logits": True, "use_mmap": False, "use_template": False, "reuse_kv": False, "tmp_path": tempfile.mkdtemp()}
conf.update(json.loads(a.options))
llm = MNN.llm.create(os.path.join(a.package, "config.json")); llm.set_config(conf); llm.load()
ids = np.array(json.load(open(a.ids))) if a.ids.endswith(".json") else np.load(a.ids); n = ids.shape[1]; out = []
for w in ids:
    llm.reset(); rows = []; i = 0
    parts = [int(x) for x in a.parts.split(",")] if a.parts else [n]
    assert sum(parts) == n, "parts must add up to the window"
    for p in parts:
        rows.append(np.array(llm.forward([int(x) for x in w[i:i + p]]).read(), dtype=np.float32).reshape(p, -1)); i += p
    out.append(np.concatenate(rows))
out = np.stack(out); np.save(a.out, out)

def lsm(x):
    x = x.astype(np.float64); m = x.max(-1, keepdims=True); return x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))

if a.against:
    want, i = np.load(a.against), 0; lw, lg = lsm(want), lsm(out); kl = (np.exp(lw) * (lw - lg)).sum(-1)
    res = {"kl": float(kl.mean()), "max_abs": float(np.abs(want - out).max()), "top1": float((lw.argmax(-1) == lg.argmax(-1)).mean()), "not_finite": int((~np.isfinite(out)).sum())}
    if a.parts:
        res["kl_parts"] = []
        for p in parts: res["kl_parts"].append(float(kl[:, i:i + p].mean())); i += p
    print(json.dumps(res))
sys.stdout.flush(); os._exit(0)
