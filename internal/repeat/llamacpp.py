"""Makes GGUF files with llama.cpp and measures them as docs/repeat.md does.

    python llamacpp.py matrix MODEL.gguf TEXT MATRIX.npz           importance matrix of 16 windows of a text, or of a corpus
    python llamacpp.py quantize MODEL.gguf OUT.gguf TYPE [MATRIX]  TYPE is a file type of llama.cpp, such as Q4_K_M or ALL_F32
    python llamacpp.py score BASE.gguf TEXT FILE.gguf...           bytes, divergence from BASE in nats, perplexity over that of BASE

Windows have 512 tokens, each with a fresh context; score looks at positions 256 to 510 of all windows of the text, which is
what llama-perplexity --kl-divergence -c 512 does. Where the tokenizer puts a token before every text, a window begins with it and
has 511 of the text. TEXT may be a corpus.json of llmexport's cache: then its windows are taken as they are, all of them.
"""

import json
import os
import sys
import time

import numpy as np
from llama_cpp_py_sync._cffi_bindings import _find_library, get_ffi, get_lib

WINDOW, FIRST, MATRIX_WINDOWS = 512, 256, 16

ffi, lib = get_ffi(), get_lib()
ffi.cdef("""
const char * ggml_get_name(const struct ggml_tensor * tensor);
size_t ggml_nbytes(const struct ggml_tensor * tensor);
void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size);
""")

# The matrices that multiply an activation, by the name of the activation in the graph of a Llama model.
INPUTS = {
    "attn_norm": ["attn_q", "attn_k", "attn_v"],
    "kqv_out": ["attn_output"],
    "ffn_norm": ["ffn_gate", "ffn_up"],
    "ffn_swiglu": ["ffn_down"],
}


@ffi.callback("void(enum ggml_log_level, const char *, void *)")
def silent(_level, _text, _data):
    pass


class Model:
    """A model with one context of WINDOW tokens; observe is a callback of the graph, or None."""

    def __init__(self, path, observe=None):
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if self.model == ffi.NULL:
            sys.exit(f"{path}: llama.cpp cannot load it")
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = WINDOW
        params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
        if observe is not None:
            params.cb_eval = observe
        self.context = lib.llama_init_from_model(self.model, params)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.size = lib.llama_vocab_n_tokens(self.vocab)

    def windows(self, path, most=None):
        if path.endswith(".json"):
            return json.load(open(path))["windows"]
        text = open(path, "rb").read()
        ids = ffi.new("llama_token[]", len(text) + 1)
        n = lib.llama_tokenize(self.vocab, text, len(text), ids, len(text) + 1, False, False)
        prefix = [lib.llama_vocab_bos(self.vocab)] if lib.llama_vocab_get_add_bos(self.vocab) else []
        body = WINDOW - len(prefix)
        return [prefix + list(ids[i : i + body]) for i in range(0, n - body + 1, body)][:most]

    def run(self, window, first=FIRST):
        """Computes a window and returns the logits of positions first to the last but one."""
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        batch = lib.llama_batch_init(WINDOW, 0, 1)
        batch.n_tokens = WINDOW
        for i, token in enumerate(window):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, i, 1, 0
            batch.logits[i] = i >= first
        if lib.llama_decode(self.context, batch) != 0:
            sys.exit("llama.cpp cannot compute a window")
        lib.llama_batch_free(batch)
        rows = WINDOW - first
        all_rows = ffi.buffer(lib.llama_get_logits(self.context), rows * self.size * 4)
        return np.frombuffer(all_rows, np.float32).reshape(rows, self.size)[:-1].copy()

    def close(self):
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def score(base, text, files):
    reference = Model(base)
    windows = reference.windows(text)
    want = [log_softmax(reference.run(w)).astype(np.float32) for w in windows]
    reference.close()
    truth = [np.array(w[FIRST + 1 :]) for w in windows]
    nll = lambda p, t: -p[np.arange(len(t)), t]  # noqa: E731
    was = np.mean([nll(p, t).mean() for p, t in zip(want, truth, strict=True)])
    print(f"{len(windows)} windows, perplexity of {os.path.basename(base)} {np.exp(was):.4f}")
    for path in files:
        model, start = Model(path), time.process_time()
        kl, now = [], []
        for w, p, t in zip(windows, want, truth, strict=True):
            q = log_softmax(model.run(w))
            kl.append((np.exp(p.astype(np.float64)) * (p - q)).sum(axis=1))
            now.append(nll(q, t).mean())
        model.close()
        kl = np.concatenate(kl)
        error = kl.std() / np.sqrt(len(kl))
        print(f"{os.path.basename(path)}\t{os.path.getsize(path)}\tKL {kl.mean():.6f} +- {error:.6f}"
              f"\tperplexity x {np.exp(np.mean(now) - was):.4f}\t{time.process_time() - start:.0f} s of CPU")


def matrix(path, text, out):
    """Writes the mean square of every input of every matrix, by the name of the matrix."""
    core = ffi.dlopen(os.path.join(os.path.dirname(_find_library()), "libggml-base.so.0"))
    sums, failed = {}, []

    @ffi.callback("bool(struct ggml_tensor *, bool, void *)")
    def observe(tensor, ask, _data):
        name, _, layer = ffi.string(core.ggml_get_name(tensor)).decode().partition("-")
        if name not in INPUTS or not layer.isdigit():
            return not ask
        if not ask:
            size = core.ggml_nbytes(tensor)
            data = np.empty(size // 4, np.float32)
            core.ggml_backend_tensor_get(tensor, ffi.from_buffer(data), 0, size)
            if data.size % WINDOW:
                failed.append(name)
            else:
                squares = (data.reshape(WINDOW, -1).astype(np.float64) ** 2).sum(axis=0)
                sums[name, layer] = sums.get((name, layer), 0) + squares
        return True

    model = Model(path, observe)
    windows = model.windows(text, MATRIX_WINDOWS)
    for w in windows:
        model.run(w, 0)  # the last layer computes only positions whose logits are wanted
    model.close()
    missing = sorted(set(INPUTS) - {name for name, _ in sums})
    if failed or missing:
        sys.exit(f"{path}: activations {missing + failed} of the graph are not as expected")
    rows = {f"blk.{layer}.{m}.weight": (s / (WINDOW * len(windows))).astype(np.float32)
            for (name, layer), s in sums.items() for m in INPUTS[name]}
    np.savez(out, **rows)


def quantize(source, target, kind, importance=None):
    params = lib.llama_model_quantize_default_params()
    params.ftype = next((getattr(lib, n) for n in (f"LLAMA_FTYPE_{kind}", f"LLAMA_FTYPE_MOSTLY_{kind}") if hasattr(lib, n)), -1)
    params.allow_requantize = True
    params.nthread = len(os.sched_getaffinity(0))
    keep = []
    if importance:
        rows = np.load(importance)
        params.imatrix = table = ffi.new("struct llama_model_imatrix_data[]", len(rows.files) + 1)
        for entry, name in zip(table, rows.files, strict=False):
            keep += [ffi.new("char[]", name.encode()), ffi.from_buffer("float[]", rows[name])]
            entry.name, entry.data, entry.size = keep[-2], keep[-1], rows[name].size
        keep.append(table)
    if params.ftype < 0 or lib.llama_model_quantize(source.encode(), target.encode(), ffi.addressof(params)) != 0:
        sys.exit(f"{source}: llama.cpp cannot write {kind}")
    print(f"{os.path.basename(target)}\t{os.path.getsize(target)}")


if __name__ == "__main__":
    lib.llama_log_set(silent, ffi.NULL)
    lib.llama_backend_init()
    match sys.argv[1:]:
        case ["score", base, text, *files] if files:
            score(base, text, files)
        case ["matrix", path, text, out]:
            matrix(path, text, out)
        case ["quantize", source, target, kind, *rest] if len(rest) < 2:
            quantize(source, target, kind, *rest)
        case _:
            sys.exit(__doc__)
