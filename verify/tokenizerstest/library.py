"""What the library tokenizers makes of the corpus.

    python library.py CORPUS TOKENIZER

CORPUS is corpus.jsonl.gz of runtime/tokenizer/parity, TOKENIZER a tokenizer.json. Standard output gets one JSON value a
line: the release of the library first, then for every string [ids, ids with special tokens, text of these, text of these
without special tokens]. A string that is not UTF-8 is given to the library as bytes.decode("utf-8", "replace") has it.
"""
import base64
import gzip
import json
import sys

import tokenizers

BATCH = 512


def strings(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as f:
        for line in f:
            s = json.loads(line)
            yield s["text"] if "text" in s else base64.b64decode(s["base64"]).decode("utf-8", "replace")


def main(corpus, path):
    t = tokenizers.Tokenizer.from_file(path)
    # Both belong to how a model is used; a text must come out whole.
    t.no_truncation()
    t.no_padding()
    print(json.dumps(tokenizers.__version__))
    texts = list(strings(corpus))
    for i in range(0, len(texts), BATCH):
        batch = texts[i : i + BATCH]
        plain = [e.ids for e in t.encode_batch(batch, add_special_tokens=False)]
        special = [e.ids for e in t.encode_batch(batch, add_special_tokens=True)]
        kept = t.decode_batch(special, skip_special_tokens=False)
        skipped = t.decode_batch(special, skip_special_tokens=True)
        sys.stdout.write("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in zip(plain, special, kept, skipped)))


if __name__ == "__main__":
    main(*sys.argv[1:])
