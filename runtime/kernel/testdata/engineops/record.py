"""Record what the float ops of stock MNN compute on x86 (the PyPI wheel, CPU backend), as a checksum per row.

Inputs are not stored: element i of an array with seed s is value(s, i), which the test computes too. The file holds, per case:

  "EOPS" | name, 32 bytes | kind u32 | seed u32 | a u32[6] | calls u32 | tokens of each call u32[calls] | rows u32 | CRC-32 of each row

All little-endian; a CRC is of the float32 of a row. Kinds and their parameters a:

  0  RMSNorm of calls[0] rows of a[0]; a[1]: 1 in the layout NC4HW4; a[2]: a[2]/16 scales the input
  1  SiLU of a[0] elements, one row; a[2] as above
  2  Attention, a = heads, kv heads, dim, scale of queries in 1/16; one package run call by call with its KV cache

Run: python record.py --schema DIR_WITH_MNN.fbs --tokenizer FILE --out ops.bin [--threads N] [--only REGEX]
Needs flatc on PATH, numpy and MNN; FILE is the tokenizer.mtok or tokenizer.txt of any package.
"""
import argparse, json, os, re, shutil, struct, subprocess, tempfile, zlib
import numpy as np

NORM, SILU, ATTENTION = 0, 1, 2


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
    g, layer = Graph(), {"axis": [-1], "epsilon": 1e-6, "gamma": floats(gamma), "beta": [0.0] * cols, "useRMSNorm": True, "group": 1}
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
    mask = g.input("attention_mask", [])
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
    g.op("Attention", "logits", parts + [mask], "AttentionParam", {"kv_cache": True, "layer_index": 0})
    g.write(d + "/llm.mnn", schema, "logits")
    with open(d + "/embeddings_bf16.bin", "wb") as f:
        f.write(bytes(2 * 8 * 16))
    shutil.copy(tokenizer, d)
    with open(d + "/llm_config.json", "w") as f:
        json.dump({"model_type": "qwen3", "hidden_size": 8, "layer_nums": 1, "attention_mask": "float", "is_mrope": False}, f)
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
    return out


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
            y = (norm, silu, attention)[c["kind"]](c, os.path.abspath(a.schema), a.threads, a.tokenizer)
            f.write(b"EOPS" + c["name"].encode().ljust(32, b"\0") + struct.pack("<8I", c["kind"], c["seed"], *c["a"]))
            f.write(struct.pack(f"<I{len(c['calls'])}I", len(c["calls"]), *c["calls"]))
            f.write(struct.pack(f"<I{len(y)}I", len(y), *(zlib.crc32(r.astype("<f4").tobytes()) for r in y)))


if __name__ == "__main__":
    main()
