"""Renders chat templates on the stock MNN engine (the MNN package of PyPI) for template_test.go.

The argument is a package's directory. Reads one JSON object a line from standard input and answers with one a line:

    {"config": {...}, "messages": [{"role": "user", "content": "..."}]} or {"config": {...}, "prompt": "..."}
    -> {"text": "..."}, or {"crash": "..."} where the engine hangs, crashes or takes more than its share of memory

The config goes to the engine's set_config; its jinja.chat_template is the template. A job runs in a process of its own,
forked when the package is loaded, because a template may change the engine for all that follow.
"""
import json
import os
import resource
import select
import signal
import sys
import time

SECONDS = 10
BYTES = 1 << 28


def load(package):
    import MNN.llm

    llm = MNN.llm.create(os.path.join(package, "config.json"))
    llm.set_config({"backend_type": "cpu", "thread_num": 1, "use_mmap": False})
    llm.load()
    return llm


def render(llm, job):
    # A context that is not an object drops the one before it.
    for config in job["config"]:
        llm.set_config(config)
    return llm.apply_chat_template(job["prompt"] if "prompt" in job else job["messages"])


def child(llm, job, out):
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer = {"text": render(llm, job)}
    except MemoryError as e:
        answer = {"crash": repr(e)}
    except Exception as e:
        answer = {"error": repr(e)}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(out, data):]


def main():
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)  # the engine prints to standard output
    llm = load(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(r)
            child(llm, job, w)
            os._exit(0)
        os.close(w)
        text, end = b"", time.time() + SECONDS
        while True:
            ready, _, _ = select.select([r], [], [], max(end - time.time(), 0))
            piece = os.read(r, 1 << 16) if ready else b""
            if not piece:
                break
            text += piece
        os.close(r)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        answer = text.decode() or json.dumps({"crash": f"status {status}"})
        os.write(out, (answer + "\n").encode())


if __name__ == "__main__":
    main()
