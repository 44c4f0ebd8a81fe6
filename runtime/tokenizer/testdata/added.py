"""Writes added.json: how the Python library `tokenizers` (made with 0.23.3) numbers, finds and decodes added tokens.

    python added.py
"""
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
SMALL = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
         "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
         "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                   "byte_fallback": False, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}


def token(id, content, **kw):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} | kw


LOWER, PREPEND = {"type": "Lowercase"}, {"type": "Prepend", "prepend": "b"}
LLAMA = {"type": "Sequence", "normalizers": [PREPEND, {"type": "Replace", "pattern": {"String": " "}, "content": "a"}]}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
WORDS = ["a", "b", "ab", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u200b", "<x>", "<X>", "<xy>", "x", "<", ">", "é", "_", "1", "\u0301", "\u200d", "\u2460", "\u20ac", "\U00010d40", "\U000113b8", "-", "aa", "bb", "abab"]
LISTS = {
    "plain": (None, [token(3, "<x>")]), "special": (None, [token(3, "<x>", special=True)]),
    "lstrip": (None, [token(3, "<x>", lstrip=True)]), "rstrip": (None, [token(3, "<x>", rstrip=True)]),
    "both": (None, [token(3, "<x>", lstrip=True, rstrip=True, special=True)]),
    "single word": (None, [token(3, "<x>", single_word=True)]), "single letter": (None, [token(0, "a", single_word=True), token(3, "<xy>", single_word=True)]),
    "all": (None, [token(3, "<x>", single_word=True, lstrip=True, rstrip=True), token(4, "<xy>", lstrip=True)]),
    "white space": (None, [token(3, " "), token(4, "\n", lstrip=True, rstrip=True), token(5, "  ", rstrip=True)]),
    "swallowed": (None, [token(3, "<x>", rstrip=True), token(4, " "), token(5, " b")]),
    "nested": (None, [token(3, "<x"), token(4, "<xy>"), token(5, "x"), token(6, "y>"), token(7, "<x>")]),
    "overlapping": (None, [token(3, "aab"), token(0, "a"), token(4, "abab"), token(5, "ba")]),
    "in the vocabulary": (None, [token(2, "ab", special=True), token(1, "b")]),
    "normalized": (LOWER, [token(3, "<X>", normalized=True), token(4, "<xY>", normalized=True, special=True)]),
    "normalized, others not": (LOWER, [token(3, "<X>"), token(4, "<x>", normalized=True)]),
    "stripped": (STRIP, [token(3, " <x>", normalized=True), token(4, "<xy>")]),
    "prepended": (PREPEND, [token(3, "<x>", normalized=True, special=True), token(4, "a", normalized=True) | {"id": 0}]),
    "prepended, special raw": (PREPEND, [token(3, "<x>", special=True)]),
    "Llama 2": (LLAMA, [token(3, "<x>", normalized=True, special=True), token(4, "<xy>", special=True), token(5, "a <", normalized=True)]),
    "special by text": (LOWER, [token(3, "<X>", normalized=True), token(4, "<x>", special=True)]),
    "twice": (None, [token(3, "<x>", special=True), token(3, "<x>", lstrip=True), token(4, "<X>")]),
    "twice the same": (None, [token(3, "<x>"), token(3, "<x>"), token(4, "<X>")]),
    "empty": (None, [token(9, ""), token(3, "<x>")]),
    "order": (None, [token(2, "ab"), token(3, "<x>"), token(0, "a"), token(4, "<xy>")]),
}


def main():
    rng = random.Random(5)
    texts = ["".join(rng.choice(WORDS) for _ in range(rng.randint(1, 9))) for _ in range(30)]
    out = {}
    for name, (normalizer, added) in LISTS.items():
        parts = {"normalizer": normalizer, "added_tokens": added}
        tok = Tokenizer.from_str(json.dumps(SMALL | parts))
        out[name] = {"parts": parts, "texts": []}
        for s in texts:
            try:
                ids = tok.encode(s, add_special_tokens=False).ids
            except BaseException as e:  # white space that two tokens swallow makes it panic
                if type(e).__name__ != "PanicException":
                    raise
                continue
            out[name]["texts"].append({"text": s, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "bare": tok.decode(ids)})
    (HERE / "added.json").write_text(json.dumps(out, separators=(",", ":"), ensure_ascii=True).replace('},"', '},\n"') + "\n")


main()
