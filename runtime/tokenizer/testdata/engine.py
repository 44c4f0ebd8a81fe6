"""Writes engine.json: the ids that the LLM engine of MNN gives for every text of corpus.json.

    go test -run TestEngineGolden -mtok DIR .
    python engine.py DIR PACKAGE [--check]

DIR holds NAME.mtok files, PACKAGE is any package that the engine loads; its own tokenizer becomes "foreign", which is
foreign.mtok where the package is one of the exporter of MNN. With --check
nothing is written and differences from engine.json are counted (for other releases of MNN). Made with MNN 3.6.1.
Texts with U+0000 are left out: the Python binding ends there.
"""
import hashlib
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

import MNN.llm

HERE = pathlib.Path(__file__).parent


def digest(ids):
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:8]


def run(package, mtok, texts, name):
    with tempfile.TemporaryDirectory() as tmp:
        for f in package.iterdir():
            if f.suffix != ".mtok" and not f.name.endswith(".mnn.json"):
                os.symlink(f.resolve(), pathlib.Path(tmp) / f.name)
        shutil.copy(mtok, pathlib.Path(tmp) / "tokenizer.mtok")
        llm = MNN.llm.create(str(pathlib.Path(tmp) / "config.json"))
        llm.set_config({"use_mmap": False, "use_template": False, "tmp_path": tmp})
        llm.load()
        ids = [[] if "\0" in s else list(llm.tokenizer_encode(s)) for s in texts]
        rng = random.Random(name)
        decode = []
        for s, i in rng.sample([(s, i) for s, i in zip(texts, ids) if i], 60):
            i = i[:20]
            try:
                decode.append([i, "".join(llm.tokenizer_decode(k) for k in i)])
            except UnicodeDecodeError:
                pass
        return {"sha256": hashlib.sha256(mtok.read_bytes()).hexdigest(), "ids": ["" if "\0" in s else digest(i) for s, i in zip(texts, ids)], "decode": decode}


if __name__ == "__main__":
    folder, package = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    texts = json.loads((HERE / "corpus.json").read_text())
    files = {f.stem: f for f in sorted(folder.glob("*.mtok"))}
    files["foreign"] = package / "tokenizer.mtok"
    out = {name: run(package, f, texts, name) for name, f in files.items()}
    target = HERE / "engine.json"
    if "--check" in sys.argv:
        want = json.loads(target.read_text())
        for name, o in out.items():
            print(name, sum(a != b for a, b in zip(o["ids"], want[name]["ids"])), "texts differ")
    else:
        target.write_text(json.dumps(out, ensure_ascii=True, indent=0) + "\n")
    sys.stdout.flush()
    os._exit(0)
