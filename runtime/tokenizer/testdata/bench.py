"""Compares the speed of Encode with that of the Python library `tokenizers`, each on one thread.

    python bench.py TEXT TOKENIZER.JSON...

Runs take turns; printed are medians in MB/s of processor time and their ratio, for the whole text in one call and line by line. The
Go side is BenchmarkEncodeFile, whose wall time is used: leave the machine alone meanwhile.
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", GOMAXPROCS="1")
from tokenizers import Tokenizer  # noqa: E402

PACKAGE, ROUNDS = pathlib.Path(__file__).parent.parent, 3


def speed(size, f):
    start = time.process_time()
    f()
    return size / 1e6 / (time.process_time() - start)


def main():
    text = pathlib.Path(sys.argv[1]).read_bytes().decode()
    lines, size = text.splitlines(keepends=True), len(text.encode())
    with tempfile.TemporaryDirectory() as tmp:
        binary = pathlib.Path(tmp, "bench")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=PACKAGE, check=True)
        for file in map(pathlib.Path, sys.argv[2:]):
            tok = Tokenizer.from_file(str(file))
            env = {**os.environ, "TOKENIZER_BENCH_TEXT": str(pathlib.Path(sys.argv[1]).resolve()), "TOKENIZER_BENCH_FILE": str(file.resolve())}
            ours, theirs = {"text": [], "lines": []}, {"text": [], "lines": []}
            for _ in range(ROUNDS):
                theirs["text"].append(speed(size, lambda: tok.encode(text, add_special_tokens=False)))
                theirs["lines"].append(speed(size, lambda: [tok.encode(s, add_special_tokens=False) for s in lines]))
                out = subprocess.run([binary, "-test.run", "^$", "-test.bench", "EncodeFile", "-test.benchtime", "3x"], cwd=PACKAGE, env=env,
                                     check=True, capture_output=True, text=True).stdout
                for kind, mbs in re.findall(r"EncodeFile/(\w+).*?([\d.]+) MB/s", out):
                    ours[kind].append(float(mbs))
            for kind in ours:
                a, b = statistics.median(ours[kind]), statistics.median(theirs[kind])
                print(f"{file}\t{kind}\t{a:.2f}\t{b:.2f}\t{a / b:.2f}x")


if __name__ == "__main__":
    main()
