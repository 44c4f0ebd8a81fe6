"""Counts the instructions that kernels execute under qemu-aarch64, and models their cycles with llvm-mca.

    python count.py KERNEL_TEST [MNN] [--only REGEX]

KERNEL_TEST is the test binary of this package for arm64, MNN a static build of mnn.c with MNN's assembly. A line has instructions and
modelled cycles per 1000 multiply-adds, on Neoverse N1 (the core of Cortex-A76) and V1 (of Cortex-X1), and a bound for Apple's M1: 8
instructions, 4 of vectors, 3 loads and 2 stores a cycle. Nothing runs on such a core, and all data is taken to be in the first cache.

Needs qemu-aarch64, llvm-objdump and llvm-mca of LLVM 17 or later; LLVM_SUFFIX=-19 names them as Debian does, QEMU names the first.
"""
import argparse, collections, os, re, subprocess, tempfile

suffix = os.environ.get("LLVM_SUFFIX", "")
MODELS = ("neoverse-n1", "neoverse-v1")


def disassembled(binary, pattern):
    """Instructions by address, of the functions that match."""
    code = {}
    inside = False
    out = subprocess.run(["llvm-objdump" + suffix, "-d", "--no-show-raw-insn", "--mattr=+all", binary], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.*)>:", line):
            inside = re.search(pattern, head[1]) is not None
        elif inside and (ins := re.match(r"\s*([0-9a-f]+):\s+(.*)", line)):
            code[int(ins[1], 16)] = ins[2].split("//")[0].strip()
    return code


def executed(command, code):
    """How often each address is executed: with one instruction a translation block, qemu logs every one of them."""
    first, last = min(code), max(code)
    with tempfile.NamedTemporaryFile() as log:
        qemu = os.environ.get("QEMU", "qemu-aarch64")
        subprocess.run([qemu, "-singlestep", "-d", "exec,nochain", "-dfilter", f"{first:#x}+{last - first + 4:#x}",
                        "-D", log.name, *command], check=True, stdout=subprocess.DEVNULL)
        counts = collections.Counter(int(m[1], 16) for m in re.finditer(rb"\[[0-9a-f]+/([0-9a-f]+)/", log.read()))
    return {a: n for a, n in counts.items() if a in code}


def blocks(code, counts):
    """Runs of instructions that are executed equally often, but for signals that make qemu start one again, each with that number."""
    run, n, out = [], 0, []
    for a in sorted(counts):
        if run and (abs(counts[a] - n) > 2 + n / 100 or a != run[-1] + 4 or code[run[-1]].startswith(("b", "cb", "tb", "ret"))):
            out.append((run, n))
            run = []
        if not run:
            n = counts[a]
        run.append(a)
    return out + [(run, n)]


def modelled(code, run, cpu):
    """Cycles of a run of instructions when it repeats."""
    text = []
    for a in run:
        ins = code[a]
        if ins.startswith(("cb", "tb", "b", "ret")) and not ins.startswith(("bic", "bsl", "bit", "bfi", "bif")):
            ins = re.sub(r"0x[0-9a-f]+ <.*>", "4", ins)
        text.append(re.sub(r" <.*>", "", ins))
    out = subprocess.run(["llvm-mca" + suffix, "-mtriple=aarch64", "-mcpu=" + cpu, "-mattr=+i8mm,+dotprod", "-iterations=100"], input="\n".join(text),
                         capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"llvm-mca: {out.stderr[:600]}")
    return int(re.search(r"Total Cycles:\s+(\d+)", out.stdout)[1]) / 100


def apple(code, run):
    """The throughput bound of an M1."""
    loads = sum(2 if code[a].startswith("ldp\tq") else len(re.findall(r"v\d+", code[a])) if code[a].startswith("ld1") else 1
                for a in run if code[a].startswith("ld"))
    stores = sum(1 for a in run if code[a].startswith("st"))
    vectors = sum(1 for a in run if re.search(r"\bv\d+\.", code[a]) and not code[a].startswith(("ld", "st")))
    return max(len(run) / 8, vectors / 4, loads / 3, stores / 2)


def cases(kernels, mnn):
    """Name, command, binary, functions that count, and multiply-adds of a run."""
    rows, cols, heads, dim, keys = 64, 512, 4, 64, 128  # as in count_test.go and mnn.c
    for tier, cpu, ours in (("i8mm", "max", "i8mm"), ("sdot", "neoverse-n1", "dotprod"), ("neon", "cortex-a72", "neon")):
        for bits in (4, 8):
            for block in (64, cols):
                for tokens in (24, 1):
                    name = f"{tier}, {bits} bits, block {block}, {tokens} tokens"
                    yield name, bench(kernels, f"w{bits}-b{block}-t{tokens}", cpu), kernels, r"kernel\.int8(Nibbles|Bytes)\d", rows * cols * tokens
                    if mnn:
                        yield name + ", MNN", ["-cpu", cpu, mnn, f"{tier}-w{bits}", str(tokens), str(block)], mnn, "^MNNGemm|^L|^T", rows * cols * tokens
    for tokens in (24, 1):
        name = f"float32, {tokens} tokens"
        yield name, bench(kernels, f"float-t{tokens}", "max"), kernels, r"kernel\.gemm\d+x", rows * cols * tokens
        if mnn:
            yield name + ", MNN", ["-cpu", "max", mnn, "float", str(tokens), "64"], mnn, "^MNNPacked|^L|^E|^A|^S|^P", rows * cols * tokens
    for tokens in (128, 1):
        pairs = sum(keys - tokens + t + 1 for t in range(tokens))
        yield f"attention, {tokens} tokens, {keys} keys", bench(kernels, f"attention-t{tokens}", "max"), kernels, r"kernel\.(tileSum\d|tileQuad|engineExps)NEON", 2 * heads * dim * pairs


def bench(kernels, name, cpu):
    return ["-cpu", cpu, kernels, "-test.run", "xxx", "-test.bench", f"Count/^{name}$", "-test.benchtime", "1x", "-test.cpu", "1"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kernels")
    p.add_argument("mnn", nargs="?")
    p.add_argument("--only", default="")
    a = p.parse_args()
    for name, command, binary, functions, macs in cases(a.kernels, a.mnn):
        if not re.search(a.only, name):
            continue
        code = disassembled(binary, functions)
        if not code:
            raise SystemExit(f"{name}: {binary} has no function {functions}")
        counts = executed(command, code)
        total = sum(counts.values())
        if not total:
            raise SystemExit(f"{name}: nothing of {functions} was executed")
        cycles = collections.Counter()
        for run, n in blocks(code, counts):
            if n * len(run) * 500 > total:
                for cpu in MODELS:
                    cycles[cpu] += n * modelled(code, run, cpu)
                cycles["m1"] += n * apple(code, run)
        per = 1000 / macs
        print(f"| {name} | {total * per:.1f} | " + " | ".join(f"{cycles[c] * per:.1f}" for c in (*MODELS, "m1")) + " |", flush=True)


main()
