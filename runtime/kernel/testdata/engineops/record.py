"""Record what the float ops of stock MNN compute on x86 (the PyPI wheel, CPU backend), as a checksum per row.

Inputs are not stored: element i of an array with seed s is value(s, i), which the test computes too. The file holds, per case:

  "EOPS" | name, 32 bytes | kind u32 | seed u32 | a u32[6] | calls u32 | tokens of each call u32[calls] | rows u32 | CRC-32 of each row

All little-endian; a CRC is of the float32 of a row. Kinds and their parameters a:

  0  RMSNorm of calls[0] rows of a[0]; a[1]: 1 in the layout NC4HW4; a[2]: a[2]/16 scales the input
  1  SiLU of a[0] elements, one row; a[2] as above
  2  Attention, a = heads, kv heads, dim, scale of queries in 1/16; one package run call by call with its KV cache
  3  UnaryOp a[1] (its number in the schema) of a[0] elements, one row; a[2] as above
  4  Softmax over the last axis of calls[0] rows of a[0]; a[2] as above
  5  LayerNorm with a mean and beta, the rest as 0
  6  ReLU of a[0] elements, one row; a[2] as above
  7  Attention as 2 with the mask that the engine feeds: of a window of a[4], or causal if a[4] is 0; a[5]: 1 with sinks

arm64.bin is the aarch64 wheel under qemu-aarch64, of the cases '^(norm|silu|attention|masked)'.

Run: python record.py --schema DIR_WITH_MNN.fbs --tokenizer FILE --out ops.bin [--threads N] [--only REGEX]
Needs flatc on PATH, numpy and MNN; FILE is the tokenizer.mtok or tokenizer.txt of any package.
"""
import argparse, json, os, re, shutil, struct, subprocess, tempfile, zlib
import numpy as np

NORM, SILU, ATTENTION, UNARY, SOFTMAX, LAYERNORM, RELU, MASKED = range(8)


def values(seed, n, scale=1.0):
    """n floats in [-1, 1) times scale: splitmix64 of the index."""
    with np.errstate(over="ignore"):
        z = (np.arange(n, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (((z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)) * np.float32(scale)).astype(np.float32)


def floats(a):
    return [float(v) for v in np.asarray(a, np.float32).ravel()]


class Graph:
    def __init__(self):
        self.ops, self.names = [], []

    def op(self, kind, name, inputs, main=None, param=None, form="NCHW"):
        self.names.append(name)
        o = {"type": kind, "name": name, "inputIndexes": inputs, "outputIndexes": [len(self.names) - 1],
             "defaultDimentionFormat": form}
        if main:
            o["main_type"], o["main"] = main, param
        self.ops.append(o)
        return len(self.names) - 1

    def input(self, name, dims, kind="DT_FLOAT"):
        return self.op("Input", name, [], "Input", {"dims": dims, "dtype": kind, "dformat": "NCHW"})

    def ints(self, name, v):
        return self.op("Const", name, [], "Blob", {"dims": [len(v)], "dataFormat": "NCHW", "dataType": "DT_INT32", "int32s": v})

    def convert(self, name, x, source, dest):
        return self.op("ConvertTensor", name, [x], "TensorConvertInfo", {"source": source, "dest": dest})

    def write(self, path, schema, output):
        net = {"bizCode": "MNN", "oplists": self.ops, "tensorName": self.names, "outputName": [output], "sourceType": "ONNX",
               "usage": "INFERENCE", "preferForwardType": "CPU", "tensorNumber": len(self.names)}
        d = os.path.dirname(path)
        with open(d + "/g.json", "w") as f:
            json.dump(net, f)
        subprocess.run(["flatc", "-b", "-o", d, schema + "/MNN.fbs", d + "/g.json"], check=True, cwd=d, stderr=subprocess.DEVNULL)
        made = [n for n in os.listdir(d) if n.startswith("g.") and n != "g.json"][0]
        os.replace(d + "/" + made, path)


def run_module(g, x, c, schema, threads):
    import MNN.nn as nn
    import MNN.expr as F
    with tempfile.TemporaryDirectory() as d:
        g.write(d + "/m.mnn", schema, "y")
        rt = nn.create_runtime_manager(({"backend": 0, "precision": 1, "memory": 2, "numThread": threads},))
        m = nn.load_module_from_file(d + "/m.mnn", ["x"], ["y"], runtime_manager=rt)
        y = m.forward(F.const(x, list(x.shape), F.NCHW))
        return np.array(F.convert(y, F.NCHW).read(), np.float32).copy()


def norm(c, schema, threads, _):
    cols, packed, scale = c["a"][:3]
    rows = c["calls"][0]
    x = values(c["seed"], rows * cols, scale / 16).reshape(rows, cols)
    gamma = values(c["seed"] + 1000, cols)
    rms = c["kind"] == NORM
    beta = [0.0] * cols if rms else floats(values(c["seed"] + 2000, cols))
    g, layer = Graph(), {"axis": [-1], "epsilon": 1e-6, "gamma": floats(gamma), "beta": beta, "useRMSNorm": rms, "group": 1}
    if packed:
        t = g.input("x", [-1, cols, 1, 1])
        t = g.convert("in", t, "NCHW", "NC4HW4")
        t = g.op("LayerNorm", "norm", [t], "LayerNorm", layer, "NC4HW4")
        g.convert("y", t, "NC4HW4", "NCHW")
        x = x.reshape(rows, cols, 1, 1)
    else:
        g.op("LayerNorm", "y", [g.input("x", [-1, cols])], "LayerNorm", layer)
    return run_module(g, x, c, schema, threads).reshape(rows, cols)


def silu(c, schema, threads, _):
    n, _, scale = c["a"][:3]
    g = Graph()
    g.op("UnaryOp", "y", [g.input("x", [1, -1])], "UnaryOp", {"opType": "SILU", "T": "DT_FLOAT"})
    return run_module(g, values(c["seed"], n, scale / 16).reshape(1, n), c, schema, threads).reshape(1, n)


def unary(c, schema, threads, _):
    n, op, scale = c["a"][:3]
    g = Graph()
    g.op("UnaryOp", "y", [g.input("x", [1, -1])], "UnaryOp", {"opType": op, "T": "DT_FLOAT"})
    x = values(c["seed"], n, scale / 16).reshape(1, n)
    return run_module(g, abs(x) if op in POSITIVE else x, c, schema, threads).reshape(1, n)


def softmax(c, schema, threads, _):
    cols, _, scale = c["a"][:3]
    g = Graph()
    g.op("Softmax", "y", [g.input("x", [-1, cols])], "Axis", {"axis": -1})
    x = values(c["seed"], c["calls"][0] * cols, scale / 16).reshape(-1, cols)
    return run_module(g, x, c, schema, threads).reshape(-1, cols)


def relu(c, schema, threads, _):
    n, _, scale = c["a"][:3]
    g = Graph()
    g.op("ReLU", "y", [g.input("x", [1, -1])], "Relu", {"slope": 0.0})
    return run_module(g, values(c["seed"], n, scale / 16).reshape(1, n), c, schema, threads).reshape(1, n)


def attention(c, schema, threads, tokenizer):
    """A package whose logits are the attention of rows of a table, chosen by position."""
    import MNN.llm
    heads, kv, dim, scale = c["a"][:4]
    total, width = sum(c["calls"]), (heads + 2 * kv) * dim
    table = values(c["seed"], total * width).reshape(total, width)
    table[:, : heads * dim] *= np.float32(scale / 16)
    d = tempfile.mkdtemp()
    with open(d + "/llm.mnn.weight", "wb") as f:
        f.write(bytes(64) + table.tobytes())
    g = Graph()
    ids = g.input("input_ids", [-1, 1, 8])
    mask = g.input("attention_mask", [2, 1, 1, -1, -1] if c["kind"] == MASKED else [])
    position = g.input("position_ids", [1, -1], "DT_INT32")
    g.input("logits_index", [1], "DT_INT32")
    t = g.op("Const", "table", [], "Blob", {"dims": [total, width], "dataFormat": "NCHW", "dataType": "DT_FLOAT", "external": [64, table.nbytes]})
    flat = g.op("Reshape", "flat", [position], "Reshape", {"dims": [-1], "dimType": "NCHW"})
    axis = g.op("Const", "axis", [], "Blob", {"dataFormat": "NCHW", "dataType": "DT_INT32", "int32s": [0]})
    t = g.op("GatherV2", "rows", [t, flat, axis], "GatherV2", {})
    parts, at = [], 0
    for n, name in ((heads, "q"), (kv, "k"), (kv, "v")):
        args = [g.ints(f"{name}{s}", [v]) for s, v in (("lo", at), ("hi", at + n * dim), ("axis", 1), ("step", 1))]
        s = g.op("StridedSlice", name + "cut", [t] + args, "StridedSliceParam", {"fromType": 1})
        parts.append(g.op("Reshape", name, [s], "Reshape", {"dims": [1, -1, n, dim], "dimType": "NCHW"}))
        at += n * dim
    window, sinks = c["a"][4:]
    if c["kind"] == MASKED:
        kind = g.op("Const", "kind", [], "Blob", {"dataFormat": "NCHW", "dataType": "DT_INT32", "int32s": [int(window > 0)]})
        mask = g.op("GatherV2", "mask", [mask, kind, axis], "GatherV2", {})
    more = [mask]
    if sinks:
        more.append(g.op("Const", "sinks", [], "Blob", {"dims": [heads], "dataFormat": "NCHW", "dataType": "DT_FLOAT",
                                                        "float32s": floats(values(c["seed"] + 1000, heads, 4))}))
    g.op("Attention", "logits", parts + more, "AttentionParam", {"kv_cache": True, "layer_index": 0})
    g.write(d + "/llm.mnn", schema, "logits")
    with open(d + "/embeddings_bf16.bin", "wb") as f:
        f.write(bytes(2 * 8 * 16))
    shutil.copy(tokenizer, d)
    with open(d + "/llm_config.json", "w") as f:
        config = {"model_type": "qwen3", "hidden_size": 8, "layer_nums": 1, "attention_mask": "float", "is_mrope": False}
        if c["kind"] == MASKED:
            config.update({"attention_type": "mix", "sliding_window": window or 1 << 20})
        json.dump(config, f)
    with open(d + "/config.json", "w") as f:
        json.dump({"llm_model": "llm.mnn", "llm_weight": "llm.mnn.weight", "tokenizer_file": os.path.basename(tokenizer),
                   "embedding_file": "embeddings_bf16.bin", "backend_type": "cpu", "thread_num": threads, "precision": "high",
                   "memory": "low", "all_logits": True, "use_mmap": False, "use_template": False, "reuse_kv": False}, f)
    llm = MNN.llm.create(d + "/config.json")
    llm.load()
    out = [np.array(llm.forward([1] * n).read(), np.float32).reshape(n, heads * dim) for n in c["calls"]]
    shutil.rmtree(d)
    return np.concatenate(out)


def cases():
    out = []

    def add(kind, name, calls, *a):
        out.append(dict(kind=kind, name=name, calls=list(calls), a=list(a) + [0] * (6 - len(a)), seed=len(out) + 1))

    for cols in (64, 256, 512, 1000, 1001):
        for rows in (1, 3):
            for packed in (0, 1):
                add(NORM, f"norm-{rows}x{cols}{'-packed' if packed else ''}", [rows], cols, packed, 40)
    add(NORM, "norm-tiny", [2], 64, 0, 1)
    for n in (*range(1, 26), 31, 100, 255, 768, 1000, 1999, 2000, 20000):
        add(SILU, f"silu-{n}", [1], n, 0, 100)
    add(SILU, "silu-large", [1], 4001, 0, 3200)
    one = [1] * 70
    for heads, kv, dim in ((4, 2, 64), (8, 4, 64), (2, 1, 128), (4, 4, 16), (2, 2, 20)):
        for calls in ([1], [2], [5], [6], [24], [255], [256], [512] if dim == 64 else [300], [17, 1, 1, 1, 5, 1, 11, 24, 1, 1], one, [63, 1, 1, 1, 62, 2, 21]):
            add(ATTENTION, f"attention-{heads}-{kv}-{dim}-{'.'.join(map(str, calls[:4]))}-{sum(calls)}", calls, heads, kv, dim, 100)
    add(ATTENTION, "attention-flat", [130, 1], 2, 2, 32, 1)
    add(ATTENTION, "attention-peaked", [130, 1, 1], 2, 2, 32, 3200)
    for op, scale in ((0, 100), (5, 100), (7, 100), (7, 1600), (8, 100), (28, 16), (28, 1600), (29, 100), (29, 1600), (30, 16), (30, 160), (32, 100),
                      (33, 40), (33, 120), (1, 100)):
        for n in (1, 7, 8, 9, 100, 1999, 20000):
            add(UNARY, f"unary-{op}-{n}-{scale}", [1], n, op, scale)
    for rows, cols, scale in ((3, 1, 16), (5, 7, 16), (4, 8, 16), (3, 60, 100), (6, 128, 16), (2, 1001, 160), (7, 256, 3200)):
        add(SOFTMAX, f"softmax-{rows}x{cols}-{scale}", [rows], cols, 0, scale)
    for cols in (16, 64, 256, 1000, 1001):
        for rows in (1, 3):
            for packed in (0, 1):
                add(LAYERNORM, f"layernorm-{rows}x{cols}{'-packed' if packed else ''}", [rows], cols, packed, 40)
    add(RELU, "relu", [1], 1001, 0, 40)
    for heads, kv, dim, window, sinks in ((4, 2, 64, 0, 0), (4, 2, 64, 16, 0), (2, 2, 20, 100, 0), (4, 1, 32, 0, 1), (8, 4, 64, 40, 1), (3, 1, 128, 7, 1)):
        for calls in ([1, 1, 1], [5, 1], [24], [96, 1, 1], [256], [300], [17, 1, 1, 1, 5, 1, 11, 24, 1, 1], one, [63, 1, 1, 1, 62, 2, 21]):
            add(MASKED, f"masked-{heads}-{kv}-{dim}-{window}-{sinks}-{'.'.join(map(str, calls[:4]))}-{sum(calls)}", calls, heads, kv, dim, 100, window, sinks)
    return out


POSITIVE = (5, 8)  # SQRT and LOG


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--schema", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--only", default="")
    a = p.parse_args()
    with open(a.out, "wb") as f:
        for c in cases():
            if not re.search(a.only, c["name"]):
                continue
            y = (norm, silu, attention, unary, softmax, norm, relu, attention)[c["kind"]](c, os.path.abspath(a.schema), a.threads, a.tokenizer)
            f.write(b"EOPS" + c["name"].encode()[:32].ljust(32, b"\0") + struct.pack("<8I", c["kind"], c["seed"], *c["a"]))
            f.write(struct.pack(f"<I{len(c['calls'])}I", len(c["calls"]), *c["calls"]))
            f.write(struct.pack(f"<I{len(y)}I", len(y), *(zlib.crc32(r.astype("<f4").tobytes()) for r in y)))


if __name__ == "__main__":
    main()
