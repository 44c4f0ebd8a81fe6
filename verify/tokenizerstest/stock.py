"""The ids that the LLM engine of MNN gives for the corpus.

    python stock.py PACKAGE CORPUS MTOK RESULT

PACKAGE is any package that the engine loads; its tokenizer is replaced by the file MTOK. RESULT gets a line of JSON, the
number of the string and its ids, for every string of CORPUS (corpus.jsonl.gz of runtime/tokenizer/parity) that is UTF-8 and
has no U+0000, at which the Python binding would end. Short ones come first: what is missing when the caller loses patience
is the longest, on which the engine can take minutes each.
"""
import gzip
import json
import os
import pathlib
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
            texts = [json.loads(line).get("text") for line in f]
        taken = [i for i, text in enumerate(texts) if text is not None and "\0" not in text]
        with open(result, "w", buffering=1) as out:
            for i in sorted(taken, key=lambda i: len(texts[i])):
                out.write(json.dumps([i, *map(int, llm.tokenizer_encode(texts[i]))]) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the engine's destructors may not end


if __name__ == "__main__":
    main(*sys.argv[1:])
