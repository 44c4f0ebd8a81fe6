"""The ids that the LLM engine of MNN gives for the corpus.

    python stock.py PACKAGE CORPUS MTOK RESULT

PACKAGE is any package that the engine loads; its tokenizer is replaced by the file MTOK. RESULT gets a line of JSON, the
number of the string and its ids, for every string of CORPUS (corpus.jsonl.gz of runtime/tokenizer/parity) that is UTF-8 and
has no U+0000, at which the Python binding would end. The order is that of a fixed shuffle: what is there when the caller
loses patience is a sample of every class.
"""
import gzip
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

import MNN.llm


def main(package, corpus, mtok, result):
    with tempfile.TemporaryDirectory() as tmp:
        for f in pathlib.Path(package).iterdir():
            if f.suffix != ".mtok" and not f.name.endswith(".mnn.json"):
                os.symlink(f.resolve(), pathlib.Path(tmp) / f.name)
        shutil.copy(mtok, pathlib.Path(tmp) / "tokenizer.mtok")
        llm = MNN.llm.create(str(pathlib.Path(tmp) / "config.json"))
        llm.set_config({"use_mmap": False, "use_template": False, "tmp_path": tmp})
        llm.load()
        with gzip.open(corpus, "rt", encoding="utf-8", newline="\n") as f:
            texts = [(i, json.loads(line).get("text")) for i, line in enumerate(f)]
        random.Random(7).shuffle(texts)
        with open(result, "w", buffering=1) as out:
            for i, text in texts:
                if text is not None and "\0" not in text:
                    out.write(json.dumps([i, *map(int, llm.tokenizer_encode(text))]) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the engine's destructors may not end


if __name__ == "__main__":
    main(*sys.argv[1:])
