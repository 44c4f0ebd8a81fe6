"""Compares the speed of Encode with that of the Python library `tokenizers`, each on one thread.

    python bench.py [--rounds N] TEXT... -- TOKENIZER.JSON...

TEXT is a file, or the word "code" for Go's own source of net/http. Rounds take turns; printed are medians in MB/s and their
ratio, for the whole text in one call and line by line. The Go side is BenchmarkEncodeFile. Both are wall time: leave the
machine alone meanwhile.
"""
import argparse
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

PACKAGE = pathlib.Path(__file__).parent.parent


def code():
    root = subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()
    return "".join(f.read_text() for f in sorted(pathlib.Path(root, "src/net/http").glob("*.go")))


def speed(size, f):
    start = time.perf_counter()
    f()
    return size / 1e6 / (time.perf_counter() - start)


def compare(binary, text, path, file, rounds):
    """Medians of ours and of the library's, for text and lines."""
    tok, lines, size = Tokenizer.from_file(str(file)), text.splitlines(keepends=True), len(text.encode())
    tok.no_truncation()
    tok.no_padding()
    env = {**os.environ, "TOKENIZER_BENCH_TEXT": str(path), "TOKENIZER_BENCH_FILE": str(file.resolve())}
    ours, theirs = {"text": [], "lines": []}, {"text": [], "lines": []}
    for _ in range(rounds):
        theirs["text"].append(speed(size, lambda: tok.encode(text, add_special_tokens=False)))
        theirs["lines"].append(speed(size, lambda: [tok.encode(s, add_special_tokens=False) for s in lines]))
        out = subprocess.run([binary, "-test.run", "^$", "-test.bench", "EncodeFile", "-test.benchtime", "3x"], cwd=PACKAGE, env=env,
                             check=True, capture_output=True, text=True).stdout
        for kind, mbs in re.findall(r"EncodeFile/(\w+).*?([\d.]+) MB/s", out):
            ours[kind].append(float(mbs))
    return {kind: (statistics.median(ours[kind]), statistics.median(theirs[kind])) for kind in ours}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    at = sys.argv.index("--", 1) if "--" in sys.argv else len(sys.argv)
    args, texts = parser.parse_known_args(sys.argv[1:at])
    files = [pathlib.Path(f) for f in sys.argv[at + 1 :]]
    if not texts or not files:
        sys.exit(__doc__)
    print(f"{'tokenizer':<24} {'text':<20} {'':<6} {'ours':>8} {'library':>8}")
    with tempfile.TemporaryDirectory() as tmp:
        binary = pathlib.Path(tmp, "bench")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=PACKAGE, check=True)
        for name in texts:
            text = code() if name == "code" else pathlib.Path(name).read_bytes().decode()
            path = pathlib.Path(tmp, "text")
            path.write_bytes(text.encode())
            for file in files:
                label = file.parent.name if file.parent.name != "models" else file.parent.parent.name
                for kind, (a, b) in compare(binary, text, path, file, args.rounds).items():
                    print(f"{label:<24.24} {pathlib.Path(name).name:<20.20} {kind:<6} {a:8.2f} {b:8.2f} {a / b:7.2f}x", flush=True)


if __name__ == "__main__":
    main()
