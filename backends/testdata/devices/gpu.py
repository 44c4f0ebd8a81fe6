"""Runs the packages that gpu.sh packed on the engine's backends and prints how far their logits are from our CPU's.

    gpu.py [--backends cpu,vulkan,opencl,cuda] [--jobs 4] [--only REGEX] [--parts 70,13,1,...] [--memory low,normal] [--soc nvidia] [--lines FILE]

KL in nats over prompts / over single tokens, a prompt of 84 tokens and 12 single ones unless --parts has other pieces; memory is low unless --memory
names others. `cpu` is the engine on this machine's CPU in float, which tells whether the engine itself agrees; backends that the kit lacks are left out.
One that cannot be had fails in every row, with the engine's words below the table. --lines appends one JSON object for each run, which append.py takes,
--soc is the family of the GPU there.
"""
import argparse, collections, concurrent.futures, json, os, re, subprocess, sys, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--backends", default="cpu,vulkan,opencl,cuda"); ap.add_argument("--jobs", type=int, default=4); ap.add_argument("--timeout", type=int, default=150)
ap.add_argument("--only", default=""); ap.add_argument("--lines"); ap.add_argument("--soc")
ap.add_argument("--parts", default="84" + 12 * ",1"); ap.add_argument("--memory", default="low")
a = ap.parse_args()
here = os.path.dirname(os.path.abspath(__file__)); packages = os.path.join(here, "packages")
libraries = {"opencl": "libMNN_CL.so", "vulkan": "libMNN_Vulkan.so", "cuda": "libMNN_Cuda.so"}
release = open(os.path.join(here, "release")).read().strip().removeprefix("mnn-")
parts = [int(x) for x in a.parts.split(",")]
mean = lambda kl, single: sum(n * x for n, x in zip(parts, kl) if (n == 1) == single) / sum(n for n in parts if (n == 1) == single)
names = sorted(n[:-4] for n in os.listdir(packages) if n.endswith(".npy") and re.search(a.only, n[:-4]))
columns = []
for b in a.backends.split(","):
    if b == "cpu": columns.append((b, "high", "high"))
    elif os.path.exists(os.path.join(here, libraries[b])): columns += [(b, p, m) for m in a.memory.split(",") for p in ("high", "normal", "low")]
words = collections.Counter()


def run(name, backend, precision, memory):
    path = os.path.join(packages, name); env = dict(os.environ)
    options = {"backend_type": backend, "precision": precision, "memory": memory}
    if backend in libraries: env["MNN_PLUGIN"] = os.path.join(here, libraries[backend])
    with tempfile.TemporaryDirectory() as tmp:
        cmd = [sys.executable, os.path.join(here, "logits.py"), path, path + ".json", os.path.join(tmp, "x.npy"), json.dumps(options),
               "--parts", a.parts, "--against", path + ".npy"]
        try: p = subprocess.run(cmd, capture_output=True, text=True, errors="replace", env=env, timeout=a.timeout)
        except subprocess.TimeoutExpired: return {"failed": "timeout"}
    said = [l for l in (p.stdout + p.stderr).splitlines() if l.strip() and not l.startswith("{")]
    for l in said: words[f"{backend}: {l[:150]}"] += 1
    said = sorted({re.sub(r"(type \w+), .*", r"\1", l[:150]) for l in said})   # without names of ops
    try: res = json.loads(p.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError): return {"failed": f"exit code {p.returncode}", "said": said[-3:]}
    if any("Can't Find type" in l for l in said): return {"failed": "no backend"}   # the engine took the CPU instead
    k = res["kl_parts"]
    return {"own": {"kl_prefill": mean(k, False), "kl_decode": mean(k, True)}, "max_abs": res["max_abs"], "not_finite": res["not_finite"], "said": said[:8]}


def cell(r):
    if "failed" in r: return r["failed"]
    text = " / ".join(f"{max(v, 0):.1e}" for v in r["own"].values())
    return text + (f" ({r['not_finite']} not finite)" if r["not_finite"] else "")


print("| package | " + " | ".join(f"{b} {p}" + (f", memory {m}" if "," in a.memory and b != "cpu" else "") for b, p, m in columns) + " |\n|" + " --- |" * (len(columns) + 1))
with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
    runs = {(n, c): pool.submit(run, n, *c) for n in names for c in columns}
    for n in names:
        print(f"| {n} | " + " | ".join(cell(runs[n, c].result()) for c in columns) + " |", flush=True)
        if a.lines:
            with open(a.lines, "a") as f:
                features = json.load(open(os.path.join(packages, n + ".devices.json")))["features"]
                for b, p, m in columns:
                    if b != "cpu":
                        r = {"engine": f"{b}-{release}", "soc": a.soc, "pkg": n, "opts": {"precision": p, "memory": m}, "features": features}
                        f.write(json.dumps({**r, **runs[n, (b, p, m)].result()}) + "\n")
print("\nWhat the engine said:\n" + "\n".join(f"{n:5} x {w}" for w, n in words.most_common(40)))
