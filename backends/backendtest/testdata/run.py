"""Runs single-op graphs on the stock MNN engine (the MNN package of PyPI) for engine_test.go.

Argument: a JSON list of {"file": GRAPH, "width": N, "calls": [tokens], "low": BOOL}. Inputs are read from GRAPH.in, float32 [tokens, width], results
of all calls are written to GRAPH.out, float32.
"""
import json
import os
import sys

import numpy as np


def run(job):
    import MNN.expr as F
    import MNN.nn as nn

    rt = nn.create_runtime_manager(({"backend": 0, "precision": 1, "memory": 2 if job["low"] else 1, "numThread": 1},))
    rt.set_external(job["file"] + ".weight")
    m = nn.load_module_from_file(job["file"], ["input_ids"], ["logits"], runtime_manager=rt)
    x = np.fromfile(job["file"] + ".in", "<f4").reshape(-1, 1, job["width"])
    with open(job["file"] + ".out", "wb") as f:
        at = 0
        for n in job["calls"]:
            part = np.ascontiguousarray(x[at : at + n])
            at += n
            y = F.convert(m.forward(F.const(part, list(part.shape), F.NCHW)), F.NCHW)
            f.write(np.array(y.read(), "<f4").tobytes())


for job in json.load(open(sys.argv[1])):
    pid = os.fork()  # the engine keeps global state
    if pid == 0:
        run(job)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit("the engine failed on " + job["file"])
