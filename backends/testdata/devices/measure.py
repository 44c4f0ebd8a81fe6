"""Runs packages on the engine's backends and writes what differs from the CPU in float, one JSON object a line.

    measure.py --program LLMEXPORT --venvs .venv --plugins DIR --out FILE [--engines 3.6.1] [--backends opencl,vulkan] [--seed 1]
        [--parts 84,1,1,1] [--jobs 2] PACKAGE...

--venvs holds mnn-RELEASE with the released wheel, --plugins RELEASE/libMNN_CL.so and RELEASE/libMNN_Vulkan.so as build.sh makes them; a backend
without its plug-in is skipped with a word. Each package is computed on the CPU at memory high and precision high, and then on each backend with
the configuration that it has for that backend, in float and, on Vulkan, in fp16: a prompt of 84 tokens and 12 tokens one by one, or the pieces of
--parts, of which those of one token are generated and the others are prompts. What
`llmexport devices --json` says of a package goes into its line, so that backends.TestMeasured can compare rules with results.
"""
import argparse, concurrent.futures, hashlib, json, os, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
libraries = {"opencl": "libMNN_CL.so", "vulkan": "libMNN_Vulkan.so"}

ap = argparse.ArgumentParser()
for name in ("program", "venvs", "plugins", "out"): ap.add_argument("--" + name, required=True)
ap.add_argument("--engines", default="3.6.1"); ap.add_argument("--backends", default="opencl,vulkan"); ap.add_argument("--seed", type=int, default=1); ap.add_argument("--jobs", type=int, default=2)
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
    cmd = ["nice", "-n", "10", os.path.join(a.venvs, "mnn-" + engine, "bin", "python"), os.path.join(here, "logits.py"), package, window, out, json.dumps(options), "--parts", ",".join(map(str, parts))]
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
            ref = os.path.join(tmp, engine + ".npy")
            _, failed = run(engine, package, window, ref, {}, None)
            if failed: rows.append({"engine": "x86-" + engine, "pkg": name, "opts": {}, "failed": failed}); continue
            for backend in a.backends.split(","):
                plug = os.path.join(a.plugins, engine, libraries[backend])
                if not os.path.exists(plug): print("skipped:", plug, "does not exist", file=sys.stderr); continue
                for precision in ("high", "low") if backend == "vulkan" else ("high",):
                    opts = {"backend_type": backend, "precision": precision, "memory": "low"}
                    out, failed = run(engine, package, window, os.path.join(tmp, "x.npy"), opts, plug, ref)
                    row = {"engine": f"{backend}-{engine}", "pkg": name, "opts": opts, "features": judged["features"]}
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
