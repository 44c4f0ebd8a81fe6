"""Runs packages on the engine's backends and writes what differs from the CPU in float, one JSON object a line.

    measure.py --program LLMEXPORT --venvs .venv --plugins DIR --out FILE [--engines 3.6.1] [--backends opencl,vulkan] [--arm64 DIR] [--cells REGEX]
        [--seed 1] [--parts 84,1,1,1] [--jobs 2] PACKAGE...

--venvs holds mnn-RELEASE with the released wheel, --plugins RELEASE/libMNN_CL.so, libMNN_Vulkan.so and libMNN_Cuda.so, --arm64 python-RELEASE, as
build.sh makes them; a backend without its plug-in or program is left out. Each package is computed on the CPU at memory high and precision high, and
then on each backend at the precisions of the table below: a prompt of 84 tokens and 12 tokens one by one, or the pieces of --parts, of which those
of one token are generated and the others are prompts. --cells keeps the runs that it matches, such as "vulkan-3.6.1 llama-16 high". What
`llmexport devices --json` says of a package goes into its line, so that backends.TestMeasured can compare rules with results.
"""
import argparse, concurrent.futures, hashlib, json, os, re, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
libraries = {"opencl": "libMNN_CL.so", "vulkan": "libMNN_Vulkan.so", "cuda": "libMNN_Cuda.so"}
precisions = {"opencl": ["high"], "vulkan": ["high", "low"], "cuda": ["high", "low"], "arm64": ["normal", "low"]}   # pocl has no fp16

ap = argparse.ArgumentParser()
for name in ("program", "venvs", "plugins", "out"): ap.add_argument("--" + name, required=True)
ap.add_argument("--arm64", default=""); ap.add_argument("--cells", default=""); ap.add_argument("--engines", default="3.6.1"); ap.add_argument("--backends", default="opencl,vulkan"); ap.add_argument("--seed", type=int, default=1); ap.add_argument("--jobs", type=int, default=2)
ap.add_argument("--timeout", type=int, default=600); ap.add_argument("--parts", default="84" + 12 * ",1"); ap.add_argument("packages", nargs="+")
a = ap.parse_args()
parts = [int(x) for x in a.parts.split(",")]
mean = lambda kl, single: sum(n * x for n, x in zip(parts, kl) if (n == 1) == single) / sum(n for n in parts if (n == 1) == single)


def vocabulary(package):
    p = subprocess.run([a.program, "inspect", "--json", package], capture_output=True, text=True, check=True)
    return json.loads(p.stdout)["tokenizer"]["vocabulary"]


def ids(package, path):
    """ids writes one window of tokens that follow from the name of the package and the seed."""
    import random
    seed = int.from_bytes(hashlib.sha256(f"{os.path.basename(package)} {a.seed}".encode()).digest()[:4], "little")
    r, n = random.Random(seed), vocabulary(package)
    with open(path, "w") as f: json.dump([[r.randrange(n) for _ in range(sum(parts))]], f)


def run(engine, package, window, out, options, plug, against=None):
    env = dict(os.environ)
    if plug: env.update(MNN_PLUGIN=plug, VK_ICD_FILENAMES="/usr/share/vulkan/icd.d/lvp_icd.x86_64.json")
    python = plug if plug and os.path.basename(plug).startswith("python-") else os.path.join(a.venvs, "mnn-" + engine, "bin", "python")
    if plug == python: del env["MNN_PLUGIN"]
    cmd = ["nice", "-n", "10", python, os.path.join(here, "logits.py"), package, window, out, json.dumps(options), "--parts", ",".join(map(str, parts))]
    if against: cmd += ["--against", against]
    try: p = subprocess.run(cmd, capture_output=True, text=True, env=env, timeout=a.timeout)
    except subprocess.TimeoutExpired: return None, "timeout"
    if "Can't Find type" in p.stdout + p.stderr: sys.exit(f"{plug}: the engine does not have the backend: {p.stdout[-400:]} {p.stderr[-400:]}")
    return p.stdout, None if p.returncode == 0 else f"exit code {p.returncode}"


def cells(package):
    rows, name = [], os.path.basename(os.path.normpath(package))
    judged = json.loads(subprocess.run([a.program, "devices", "--json", package], capture_output=True, text=True, check=True).stdout)
    with tempfile.TemporaryDirectory() as tmp:
        window = os.path.join(tmp, "ids.json"); ids(package, window)
        for engine in a.engines.split(","):
            if engine < judged["minimum_engine"]: continue
            wanted = []
            for backend in a.backends.split(","):
                plug = os.path.join(a.arm64, "python-" + engine) if backend == "arm64" else os.path.join(a.plugins, engine, libraries[backend])
                label = f"arm-{engine}-max" if backend == "arm64" else f"{backend}-{engine}"
                wanted += [(backend, plug, label, p) for p in precisions[backend] if os.path.exists(plug) and re.search(a.cells, f"{label} {name} {p}")]
            if not wanted: continue
            ref = os.path.join(tmp, engine + ".npy")
            _, failed = run(engine, package, window, ref, {}, None)
            if failed: rows.append({"engine": "x86-" + engine, "pkg": name, "opts": {}, "failed": failed}); continue
            for backend, plug, label, precision in wanted:
                opts = {"backend_type": "cpu" if backend == "arm64" else backend, "precision": precision, "memory": "low"}
                out, failed = run(engine, package, window, os.path.join(tmp, "x.npy"), opts, plug, ref)
                row = {"engine": label, "pkg": name, "opts": opts, "features": judged["features"]}
                if failed: row["failed"] = failed
                else:
                    res = json.loads(out.strip().splitlines()[-1]); k = res["kl_parts"]
                    row["own"] = {"kl_prefill": mean(k, False), "kl_decode": mean(k, True)}
                    if res["not_finite"]: row["not_finite"] = res["not_finite"]
                rows.append(row)
    return rows


with open(a.out, "a") as f, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
    for rows in pool.map(cells, a.packages):
        for r in rows: f.write(json.dumps(r) + "\n")
        f.flush()
