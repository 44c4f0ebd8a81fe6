"""Trains a small byte-level vocabulary and records the ids that the library tiktoken gives with the patterns of three classes.

    python make.py          needs tiktoken; writes small.tiktoken and goldens.json
"""
import base64
import collections
import json
import os
import random

import tiktoken

os.chdir(os.path.dirname(os.path.abspath(__file__)))
with open("../sentencepiece/goldens.json", encoding="utf-8") as f:
    texts = json.load(f)["texts"]
random.seed(3)
words = [list(bytes([b]) for b in (" " + w).encode()) for t in texts for w in t.split()]
ranks = {bytes([b]): b for b in range(256)}
while len(ranks) < 600:
    pairs = collections.Counter(p for w in words for p in zip(w, w[1:]))
    (a, b), _ = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))
    ranks[a + b] = len(ranks)
    for w in words:
        i = 0
        while i + 1 < len(w):
            if w[i] == a and w[i + 1] == b:
                w[i : i + 2] = [a + b]
            i += 1
with open("small.tiktoken", "wb") as f:
    for token, rank in ranks.items():
        f.write(base64.b64encode(token) + b" %d\n" % rank)

TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERNS = {  # as the Python code of the classes has them
    "ChatGLM4Tokenizer": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL,
    "QWenTokenizer": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL,
    "TikTokenTokenizer": r"[\p{Han}]+|" + CASED % ("*", "+") + "|" + CASED % ("+", "*") + r"|\p{N}{1,3}" + TAIL,
}
texts += ["日本語abcのテキスト漢字KANJIxyz", "Don't SHOUT camelCase 1234567", "aaaaaaaaaaaa", "x\n\n\n  y  ", "\u0301é"]
import unicodedata

out = {"provenance": "tiktoken " + tiktoken.__version__, "texts": texts, "ids": {}}
for name, pattern in PATTERNS.items():
    library = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    prepare = (lambda s: unicodedata.normalize("NFC", s)) if name == "QWenTokenizer" else (lambda s: s)
    out["ids"][name] = [library.encode_ordinary(prepare(t)) for t in texts]
with open("goldens.json", "w", encoding="utf-8") as f:
    json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
    f.write("\n")
