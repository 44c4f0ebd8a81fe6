"""Runs jobs on the stock MNN engine (the MNN package of PyPI) for matrix_test.go.

Reads one JSON object a line from standard input and answers with one JSON object a line:

    {"package": DIR, "config": {...}, "script": [null, [ids], ...], "out": FILE}   logits, float32 little endian, to FILE
    {"package": DIR, "script": [{"text": "...", "images": [{"height": N, "width": N, "data": BASE64}]}, [ids]], "out": FILE}
                                                                                   the same with pictures, and the ids of each text;
                                                                                   "audios": [BASE64] are clips, float32 at 16 kHz
    {"package": DIR, "texts": ["..."]}                                             ids of each text
    {"package": DIR, "bytes": ["base64"], "decode": N}                             ids of each text, and what ids -2 to N-1 print,
                                                                                   null if that is not UTF-8
    {"package": DIR, "config": {...}, "embed": ["..."]}                            vector of each text, of an embedding model
    {"package": DIR, "config": {...}, "reranker": "gte" or "qwen3", "query": "...", "instruct": "...", "documents": ["..."]}
                                                                                   score of each document, all at once and one by one
    {"package": DIR, "config": {...}, "time": N, "images": [...]}                  seconds of each of N times that the tower reads the pictures,
                                                                                   by the clock and of all cores

A script feeds ids, call by call; null starts a new conversation. Pictures are red, green and blue bytes.

A job runs in a process of its own: the engine keeps global state, and a package it cannot read may end the process.
"""
import base64
import json
import os
import sys
import tempfile
import time

import numpy as np


def sentences(job):
    """Jobs of embedding models and rerankers, whose options have to be in the file that they are made from."""
    import MNN.llm
    import _mnncengine

    with open(os.path.join(job["package"], "config.json")) as f:
        conf = json.load(f)
    conf.update({"backend_type": "cpu", "thread_num": 1, "precision": "high", "memory": "high", "use_mmap": False}, **job.get("config", {}))
    conf["base_dir"] = os.path.join(job["package"], "")
    path = os.path.join(tempfile.mkdtemp(), "config.json")
    with open(path, "w") as f:
        json.dump(conf, f)
    if "embed" in job:
        model = MNN.llm.create(path, 1)
        model.load()
        return {"vectors": [np.array(model.txt_embedding(t).read(), dtype="<f4").reshape(-1).tolist() for t in job["embed"]]}
    model = _mnncengine.llm.create_reranker(job["reranker"], path)
    model.load()
    model.set_instruct(job.get("instruct", ""))
    score = lambda documents: [float(x) for x in model.compute_scores(job["query"], documents)]  # noqa: E731
    return {"vectors": [score(job["documents"]), sum((score([d]) for d in job["documents"]), [])]}


def run(job):
    import MNN.llm

    if "embed" in job or "reranker" in job:
        return sentences(job)

    llm = MNN.llm.create(os.path.join(job["package"], "config.json"))
    conf = {"backend_type": "cpu", "thread_num": 1, "precision": "high", "memory": "high", "all_logits": True, "use_mmap": False,
            "use_template": False, "reuse_kv": False, "tmp_path": tempfile.mkdtemp()}
    # A prompt of texts and pictures begins with generate_init, which forgets the conversation unless reuse_kv is set.
    conf["reuse_kv"] = any(isinstance(x, dict) for x in job.get("script", []))
    conf.update(job.get("config", {}))
    llm.set_config(conf)
    llm.load()
    if "texts" in job:
        return {"ids": [list(map(int, llm.tokenizer_encode(t))) for t in job["texts"]]}
    if "bytes" in job:
        return {"ids": [list(map(int, llm.tokenizer_encode(base64.b64decode(t)))) for t in job["bytes"]],
                "prints": [prints(llm, i) for i in range(-2, job["decode"])]}
    if "time" in job:
        images = [picture(x) for x in job["images"]]
        times = [seconds(llm, images) for _ in range(job["time"])]
        return {"seconds": [t for t, _ in times], "cores": [c for _, c in times]}
    rows, read = 0, []
    with open(job["out"], "wb") as f:
        for ids in job["script"]:
            if ids is None:
                llm.reset()
                continue
            if isinstance(ids, dict):
                llm.generate_init()  # without it, positions of pictures stay those of the first prompt
                ids = list(map(int, llm.tokenizer_encode({
                    "text": ids["text"], "images": [picture(x) for x in ids.get("images", [])], "audios": [clip(x) for x in ids.get("audios", [])]})))
                read.append(ids)
            # All rows, or with "chunk" those of the last piece.
            got = np.array(llm.forward(ids).read(), dtype="<f4")
            f.write(got.tobytes())
            rows += got.size
    return {"rows": rows, "ids": read}


def seconds(llm, images):
    text = " ".join(f"<img>image_{i}</img>" for i in range(len(images)))
    begin, work = time.perf_counter(), time.process_time()
    llm.tokenizer_encode({"text": text, "images": images})
    return time.perf_counter() - begin, time.process_time() - work


def picture(x):
    import MNN.expr as F

    shape = [x["height"], x["width"], 3]
    bgr = np.ascontiguousarray(np.frombuffer(base64.b64decode(x["data"]), np.uint8).reshape(shape)[:, :, ::-1])
    return {"data": F.const(bgr.flatten().tolist(), shape, F.NHWC, F.uint8), "height": shape[0], "width": shape[1]}


def clip(x):
    import MNN.expr as F

    wave = np.frombuffer(base64.b64decode(x), "<f4")
    return {"waveform": F.const(wave.tolist(), [wave.size], F.NHWC, F.float)}


def prints(llm, i):
    try:
        return llm.tokenizer_decode(i)
    except UnicodeDecodeError:
        return None


def main():
    for line in sys.stdin:
        r, w = os.pipe()
        scratch = tempfile.TemporaryDirectory()
        pid = os.fork()
        if pid == 0:
            tempfile.tempdir = scratch.name
            os.close(r)
            sys.stdout.flush()
            os.dup2(2, 1)  # the engine prints to standard output
            try:
                answer = run(json.loads(line))
            except Exception as e:  # reported to the test
                answer = {"error": repr(e)}
            os.write(w, json.dumps(answer).encode())
            os._exit(0)
        os.close(w)
        text = b""
        while piece := os.read(r, 1 << 16):
            text += piece
        os.close(r)
        _, status = os.waitpid(pid, 0)
        scratch.cleanup()
        print(text.decode() or json.dumps({"error": f"the engine ended with status {status}"}), flush=True)


if __name__ == "__main__":
    main()
