"""Records what the stock MNN engine computes for one quantized linear layer at memory low.

Every case is a graph of a single 1x1 Convolution. The script writes the graph with flatc, runs it in the
installed MNN wheel, and appends codes, scales, activations and outputs to one file (little-endian):

    "DYNQ" | char name[32] | u32 rows cols block bits asym option tokens hasBias
    u8 codes[rows*cols] | f32 zero[rows*blocks] (asym) | f32 scale[rows*blocks] | f32 bias[rows] (hasBias)
    f32 x[tokens*cols] | f32 y[tokens*rows]

With --sums it appends only what is compared of a layer that layers.bin describes:

    char name[32] | u32 tokens | u32 CRC-32 of the outputs of each token

arm64-*.bin are such files, of the aarch64 wheel 3.6.1 under qemu-aarch64 7.2 with -cpu max (i8mm), cortex-a76 (sdot) and cortex-a72 (base);
arm64-half-*.bin were recorded with --half, at precision low.

Run: python record.py --schema DIR_WITH_MNN.fbs --out layers.bin [--threads N] [--only REGEX] [--large] [--sums] [--half]
Needs flatc on PATH, numpy and MNN.
"""
import argparse, json, os, re, struct, subprocess, tempfile, zlib
import numpy as np

DYNAMIC_QUANT_OPTIONS = 5
LOW, HIGH = 2, 1


def pack(codes, bits):
    stream = ((codes.reshape(-1, 1) >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)
    return np.packbits(stream.reshape(-1)).tobytes()


def graph(c, codes, zero, scale, bias):
    half = 1 << (c["bits"] - 1)
    header = struct.pack("<BHHB", 2, c["rows"], c["cols"], (1 << c["bits"]) & 255)
    header += np.arange(-half, half).astype(np.int8).tobytes()
    buffer = np.frombuffer(header + pack(codes, c["bits"]), np.int8)
    alpha = np.stack([zero, scale], -1) if c["asym"] else scale
    conv = {
        "common": {"kernelX": 1, "kernelY": 1, "strideX": 1, "strideY": 1, "dilateX": 1, "dilateY": 1,
                   "padMode": "CAFFE", "group": 1, "outputCount": c["rows"], "inputCount": c["cols"]},
        "bias": floats(bias if bias is not None else np.zeros(c["rows"])),
        "quanParameter": {"type": 1, "aMaxOrBits": c["bits"], "aMin": 1 if c["asym"] else 0, "quantScale": 1.0,
                          "readType": scale.size if c["asym"] else 0,
                          "buffer": buffer.tolist(), "alpha": floats(alpha)},
    }
    ops = [
        {"type": "Input", "name": "x", "outputIndexes": [0], "main_type": "Input", "defaultDimentionFormat": "NCHW",
         "main": {"dims": [-1, c["cols"], 1, 1], "dtype": "DT_FLOAT", "dformat": "NCHW"}},
        {"type": "ConvertTensor", "name": "in", "inputIndexes": [0], "outputIndexes": [1],
         "main_type": "TensorConvertInfo", "main": {"source": "NCHW", "dest": "NC4HW4"}},
        {"type": "Convolution", "name": "linear", "inputIndexes": [1], "outputIndexes": [2],
         "main_type": "Convolution2D", "main": conv, "defaultDimentionFormat": "NC4HW4"},
        {"type": "ConvertTensor", "name": "y", "inputIndexes": [2], "outputIndexes": [3],
         "main_type": "TensorConvertInfo", "main": {"source": "NC4HW4", "dest": "NCHW"}},
    ]
    return {"bizCode": "MNN", "oplists": ops, "tensorName": ["x", "in", "linear", "y"], "outputName": ["y"],
            "sourceType": "ONNX", "usage": "INFERENCE", "preferForwardType": "CPU", "tensorNumber": 4}


def floats(a):
    return [float(v) for v in np.asarray(a, np.float32).ravel()]


def run(net, schema, option, x, threads, rows, memory=LOW, precision=HIGH):
    import MNN
    import MNN.nn as nn
    import MNN.expr as F
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/g.json", "w") as f:
            json.dump(net, f)
        subprocess.run(["flatc", "-b", "-o", d, schema + "/MNN.fbs", d + "/g.json"], check=True, cwd=d, stderr=subprocess.DEVNULL)
        made = [n for n in os.listdir(d) if n.startswith("g.") and n != "g.json"][0]
        rt = nn.create_runtime_manager(({"backend": 0, "precision": precision, "memory": memory, "numThread": threads},))
        rt.set_hint(DYNAMIC_QUANT_OPTIONS, option)
        m = nn.load_module_from_file(d + "/" + made, ["x"], ["y"], runtime_manager=rt)
        v = F.const(x.reshape(x.shape[0], x.shape[1], 1, 1), [x.shape[0], x.shape[1], 1, 1], F.NCHW)
        y = m.forward(v)
        return np.array(F.convert(y, F.NCHW).read(), np.float32).reshape(x.shape[0], rows).copy()


def inputs(c):
    g = np.random.default_rng(c["seed"])
    rows, cols, bits = c["rows"], c["cols"], c["bits"]
    blocks = cols // c["block"]
    codes = g.integers(0, 1 << bits, (rows, cols)).astype(np.uint8)
    scale = (g.uniform(0.5, 2, (rows, blocks)) * 0.2 / (1 << bits)).astype(np.float16).astype(np.float32)
    if c.get("negative"):
        scale *= np.where(g.integers(0, 2, scale.shape) == 0, -1, 1).astype(np.float32)
    zero = None
    if c["asym"]:
        zero = (g.normal(0, 0.02, (rows, blocks))).astype(np.float16).astype(np.float32)
    bias = g.normal(0, 0.3, rows).astype(np.float32) if c["hasBias"] else None
    x = g.normal(0, 1, (c["tokens"], cols)).astype(np.float32)
    x[:, 3] *= 20  # an outlier channel
    x *= g.uniform(0.01, 5, (c["tokens"], 1)).astype(np.float32)
    kind = c.get("kind")
    if kind == "edge":  # zero, constant, one-sided, tiny and near-threshold rows
        x[0] = 0
        x[1] = 0.75
        x[2] = np.abs(x[2]) + 1
        x[3] = 3e-8 * np.sign(x[3])
        x[4] = -np.abs(x[4]) - 2
        x[5, : c["block"]] = 0.5
        x[6] = 0.3 + 4e-7 * np.sign(x[6])
    if kind == "constant":
        x[:] = 0.75
    if kind == "tiny":
        x = (3e-8 * np.sign(x)).astype(np.float32)
    if kind == "positive":
        x = (np.abs(x) + 1).astype(np.float32)
    if kind == "small":
        x = (1e-5 * x).astype(np.float32)
        x[:, ::5] = 0
    if kind == "halves":  # products that fall on .5, where the rounding rules differ
        x = (np.round(x * 4) / 2).clip(-127, 127).astype(np.float32)
        x[:, 0], x[:, 1] = 127, -127
    return codes, zero, scale, bias, x


def cases(large):
    out = []

    def add(name, **k):
        c = dict(rows=8, cols=128, block=32, bits=4, asym=True, option=0, tokens=1, hasBias=False, name=name)
        c.update(k)
        c["seed"] = len(out) + 1
        out.append(c)

    for bits in (4, 8):
        for asym in (True, False):
            for block, cols in ((32, 128), (64, 192), (96, 96)):
                for option in (0, 2):
                    for tokens in (1, 2, 5):
                        add(f"w{bits}-b{block}-{'asym' if asym else 'sym'}-o{option}-t{tokens}", bits=bits, asym=asym,
                            block=block, cols=cols, option=option, tokens=tokens, hasBias=tokens == 5)
    for option in (0, 2):
        for bits in (4, 8) if large else (4 + 2 * option,):
            add(f"prefill-w{bits}-o{option}-t300", bits=bits, option=option, tokens=300, cols=64)
        add(f"edge-o{option}-t11", option=option, tokens=11, kind="edge")
        add(f"halves-o{option}-t6", option=option, tokens=6, kind="halves")
        add(f"rows13-w4-o{option}-t5", option=option, tokens=5, rows=13)
        add(f"rows13-w8-sym-o{option}-t5", option=option, tokens=5, rows=13, bits=8, asym=False)
        add(f"rows13-w4-o{option}-t1", option=option, tokens=1, rows=13)
        add(f"cols30-w4-o{option}-t5", option=option, tokens=5, cols=30, block=30)
        add(f"cols30-w8-sym-o{option}-t1", option=option, tokens=1, cols=30, block=30, bits=8, asym=False)
        add(f"cols36-w4-o{option}-t1", option=option, tokens=1, cols=36, block=36, kind="positive")
        add(f"negative-w4-o{option}-t5", option=option, tokens=5, asym=False, negative=True)
        for kind in ("constant", "tiny", "positive", "halves"):
            add(f"{kind}-o{option}-t1", option=option, tokens=1, kind=kind, hasBias=True)
        for bits in (2, 3, 5, 6, 7):
            add(f"w{bits}-o{option}-t5", option=option, tokens=5, bits=bits)
        add(f"w3-o{option}-t1", option=option, tokens=1, bits=3)
        add(f"w1-o{option}-t2", option=option, tokens=2, bits=1)
        add(f"rows1-cols8-w4-o{option}-t3", option=option, tokens=3, rows=1, cols=8, block=8)
        add(f"rows2-cols4-w8-o{option}-t1", option=option, tokens=1, rows=2, cols=4, block=4, bits=8)
    for option in (0, 2):  # rows enough that the order of operations shows in half precision
        for bits in (2, 3, 4, 8):
            add(f"rows64-w{bits}-o{option}-t7", option=option, tokens=7, rows=64, bits=bits)
        for tokens in (1, 2):  # factors that are infinite in half precision
            add(f"small-o{option}-t{tokens}", option=option, tokens=tokens, kind="small")
    if large:  # sizes of real layers; too big to commit
        for bits in (2, 3, 4, 8):
            for option in (0, 2):
                for tokens in (1, 257, 513):
                    for block in (64, 1024):
                        add(f"large-w{bits}-b{block}-o{option}-t{tokens}", bits=bits, option=option, tokens=tokens,
                            rows=520, cols=1024, block=block, asym=bits == 4, hasBias=True)
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--schema", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--large", action="store_true")
    p.add_argument("--sums", action="store_true")
    p.add_argument("--half", action="store_true")
    a = p.parse_args()
    with open(a.out, "wb") as f:
        for c in cases(a.large):
            if not re.search(a.only, c["name"]):
                continue
            codes, zero, scale, bias, x = inputs(c)
            net = graph(c, codes, zero, scale, bias)
            y = run(net, os.path.abspath(a.schema), c["option"], x, a.threads, c["rows"], precision=LOW if a.half else HIGH)
            if a.sums:
                f.write(c["name"].encode().ljust(32, b"\0") + struct.pack(f"<I{len(y)}I", len(y), *(zlib.crc32(r.astype("<f4").tobytes()) for r in y)))
                continue
            head = [c[k] for k in ("rows", "cols", "block", "bits", "asym", "option", "tokens", "hasBias")]
            f.write(b"DYNQ" + c["name"].encode().ljust(32, b"\0") + struct.pack("<8I", *map(int, head)) + codes.tobytes())
            for t in (zero, scale, bias, x, y):
                if t is not None:
                    f.write(np.ascontiguousarray(t, "<f4").tobytes())


if __name__ == "__main__":
    main()
