"""Runs jobs on the LLM engine of MNN for randomengine_test.go.

    python randomengine.py PACKAGE

PACKAGE is any package that the engine loads. Reads one JSON object a line from standard input, {"mtok": "base64", "texts": ["base64"]},
and answers with one a line: {"ids": [[...]]}, or {"error": "..."}. A job runs in a process of its own: a file that the engine
cannot read may end it.
"""
import base64
import json
import os
import pathlib
import signal
import sys
import tempfile

# The engine prints to standard output, at once.
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import MNN.llm

PATIENCE = 20


def run(package, job):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        for f in pathlib.Path(package).iterdir():
            if f.suffix != ".mtok" and not f.name.endswith(".mnn.json"):
                os.symlink(f.resolve(), tmp / f.name)
        (tmp / "tokenizer.mtok").write_bytes(base64.b64decode(job["mtok"]))
        llm = MNN.llm.create(str(tmp / "config.json"))
        llm.set_config({"use_mmap": False, "use_template": False, "thread_num": 1, "tmp_path": str(tmp)})
        llm.load()
        return {"ids": [list(map(int, llm.tokenizer_encode(base64.b64decode(t)))) for t in job["texts"]]}


def main(package):
    for line in sys.stdin:
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(r)
            signal.alarm(PATIENCE)
            try:
                answer = run(package, json.loads(line))
            except Exception as e:  # reported to the test
                answer = {"error": repr(e)}
            with os.fdopen(w, "w") as f:
                f.write(json.dumps(answer))
            os._exit(0)  # the engine's destructors may not end
        os.close(w)
        with os.fdopen(r) as f:
            text = f.read()
        _, status = os.waitpid(pid, 0)
        OUT.write((text or json.dumps({"error": f"the engine ended with status {status}"})) + "\n")
        OUT.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
