"""Writes normalizers.json, what the normalizers of the Python library `tokenizers` (made with 0.23.3) give.

    python normalizers.py            needs sentencepiece too (made with 0.2.3), which writes the table of Precompiled

A digest is the first eight hexadecimal digits of SHA-256 over texts joined by U+0000. The texts are the same here and in
norm_test.go:

    single   every code point by itself, a digest for each 0x8000
    joined   every code point between others, a text for each 0x100, a digest for each of PLANES
    random   texts of 1 to 12 characters of POOL, drawn with splitmix64, a digest for each 10,000
    first    of the random texts, whether the result still begins where the text begins: "1", "0", or "?" where the
             library does not let it be seen
"""
import base64
import hashlib
import json
import pathlib
import tempfile

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers as N, pre_tokenizers

HERE = pathlib.Path(__file__).parent
# Characters by kinds; each kind is as likely as any other.
POOL = ["abcXYZ", "éÀßİΣſǅ", "  ", " \t\n\r\v\f\x85\u00a0\u3000\u2028", "\u0301\u0300\u0323\u0327\u031b\u0308\u0345", "\u093c\u3099\u20dd\u0e33\u0eb3\u0903\u0f71\u0f80",
        "\u07fd\u0898\u09fe\u0c3c\u1abf\u1df6\u0897\U00011930\U00011935\U00011938\U0001e130\u1cf2\u1734", "ΑΩᾴ", "가각각힣\ua960\ud7b0\ud7cb", "①½ﬁﬃ㎏ﷺ￥ｱﾞﾟ㌀Ⅷ²", "的中\u3400\U00020000\uf900\U0002a6e0",
        "\u200b\u200c\u200d\u200e\ufeff\u00ad\u2060", "\x00\x01\x08\x0b\x1f\x7f\x8f\x9f\ufffd", "▁_", "👩🏽🇩🇪©®❤\ufe0f\U000e0041", "क\u094dषত\u09cdრ", "\u0600\u06dd\u070f\U000110bd", "``''\"\u2026", "\u1c89\ua7cb\u0264\U00010d50\U00016ea0\u0130",
        "\ue000\U000f0000\u0378\U0010ffff\u08e2\U00013430"]
# Rules of a table for Precompiled: keys of one and more characters, keys that begin others, nothing as replacement.
RULES = {"Ａ": "A", "①": "1", "ﬁ": "fi", "ﷺ": "صلى الله عليه وسلم", "©": "(c)", "®": "", "\t": " ", "\n": " ", "\r": "", "\r\n": " ", "e\u0301": "é", "ab": "AB", "b": "6", "½": "1\u20442", "\u00a0": " ", "\u3000": " ",
         "\u0301": "", "İ": "i", "ß": "ss", "\u0600": "#", "가": "ga", "ᄀ": "g", "ᅡ": "a", "が": "か\u3099", "\u200b": " ", "\ufeff": "", "क": "k", "👩": "W", "❤": "<3", "_": "▁", "Σ": "σ", "\U000110bd": "%", "ㄱ": "ᆨ", "\u0345": "ι"}
for i in range(26):
    RULES[chr(0xFF41 + i)] = chr(0x61 + i)
    RULES[chr(0x1D400 + i)] = chr(0x41 + i)


def table():
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        (d / "rules.tsv").write_text("".join("%s\t%s\n" % (" ".join("%X" % ord(c) for c in k), " ".join("%X" % ord(c) for c in v)) for k, v in sorted(RULES.items())))
        (d / "text").write_text("".join("%c%c\n" % (97 + i % 26, 97 + i // 26) for i in range(676)))
        sentencepiece.SentencePieceTrainer.train(input=str(d / "text"), model_prefix=str(d / "m"), vocab_size=40, model_type="char", normalization_rule_tsv=str(d / "rules.tsv"), minloglevel=2)
        from sentencepiece import sentencepiece_model_pb2
        m = sentencepiece_model_pb2.ModelProto()
        m.ParseFromString((d / "m.model").read_bytes())
        return m.normalizer_spec.precompiled_charsmap


def configs():
    regex = lambda p, c: N.Replace(Regex(p), c)
    yield "NFC", N.NFC()
    yield "NFD", N.NFD()
    yield "NFKC", N.NFKC()
    yield "NFKD", N.NFKD()
    yield "Nmt", N.Nmt()
    yield "Lowercase", N.Lowercase()
    yield "StripAccents", N.StripAccents()
    yield "Strip", N.Strip()
    yield "Strip left", N.Strip(True, False)
    yield "Strip right", N.Strip(False, True)
    yield "ByteLevel", N.ByteLevel()
    yield "Bert", N.BertNormalizer()
    yield "Bert cased", N.BertNormalizer(lowercase=False)
    yield "Bert clean", N.BertNormalizer(True, False, False, False)
    yield "Bert Chinese", N.BertNormalizer(False, True, False, False)
    yield "Bert accents", N.BertNormalizer(False, False, True, False)
    yield "Bert lower", N.BertNormalizer(False, False, False, True)
    yield "Prepend", N.Prepend("▁")
    yield "Replace", N.Replace(" ", "▁")
    yield "Replace two", N.Replace("``", "“")
    yield "Replace by nothing", N.Replace("a", "")
    yield "Replace spaces", regex(" {2,}", " ")
    yield "Replace class", regex(r"[\s]+", "ab")
    yield "Precompiled", N.Precompiled(CHARSMAP)
    yield "Llama 2", N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    yield "XLNet", N.Sequence([N.Replace("``", '"'), N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(), N.Precompiled(CHARSMAP), regex(" {2,}", " ")])
    yield "T5", N.Sequence([N.Precompiled(CHARSMAP), N.Strip(False, True), regex(" {2,}", "▁")])
    yield "CLIP", N.Sequence([N.NFC(), regex(r"\s+", " "), N.Lowercase()])
    yield "XLM", N.Sequence([N.Nmt(), N.NFKC(), regex(" {2,}", " ")])
    yield "nested", N.Sequence([N.Strip(), N.Sequence([N.NFKD(), N.Sequence([N.Prepend("_")])])])


def splitmix(seed):
    mask = (1 << 64) - 1
    while True:
        seed = seed + 0x9E3779B97F4A7C15 & mask
        z = seed
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def random_texts(n):
    rng = splitmix(7)
    out = []
    for _ in range(n):
        s = []
        for _ in range(1 + next(rng) % 12):
            kind = POOL[next(rng) % len(POOL)]
            s.append(kind[next(rng) % len(kind)])
        out.append("".join(s))
    return out


def points(lo, hi):
    return [chr(c) for c in range(lo, hi) if not 0xD800 <= c < 0xE000]


def digest(texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


PLANES = [0, 0x10000, 0x20000, 0xE0000]  # the others are empty
CHARSMAP = table()
SINGLE = [points(i, i + 0x8000) for i in range(0, 0x110000, 0x8000)]
NFD, NFKD = N.NFD(), N.NFKD()
JOINED = [["".join("%s\u0327\u0301 e%s\u0323\u0f71%sᄀ%sᆨ \U00011938%s%s " % (c, c, c, c, NFD.normalize_str(c), NFKD.normalize_str(c)) for c in points(i, i + 0x100)) for i in range(p, p + 0x10000, 0x100)] for p in PLANES]
RANDOM = random_texts(100000)


def first(n):
    tok = Tokenizer(models.BPE({"▁": 0}, []))
    tok.normalizer = n
    tok.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
    for s in RANDOM[:20000]:
        out = n.normalize_str(s)
        if out == "" or out[0] in " ▁":
            yield "?"
        else:
            yield str(len(tok.encode(s).ids) - out.count(" ") - out.count("▁"))


def main():
    out = {}
    for name, n in configs():
        # A tokenizer is asked for its file: a normalizer has no text form of its own.
        tok = Tokenizer(models.BPE())
        tok.normalizer = n
        f = n.normalize_str
        out[name] = {"config": json.loads(tok.to_str())["normalizer"],
                     "single": [digest(map(f, g)) for g in SINGLE],
                     "joined": [digest(map(f, g)) for g in JOINED],
                     "random": [digest(map(f, RANDOM[i:i + 10000])) for i in range(0, len(RANDOM), 10000)],
                     "first": hashlib.sha256("".join(first(n)).encode()).hexdigest()[:8]}
    for o in out.values():
        for c in o["config"].get("normalizers", [o["config"]]):
            if "precompiled_charsmap" in c:
                c["precompiled_charsmap"] = "charsmap"
    (HERE / "normalizers.json").write_text(json.dumps({"library": "tokenizers 0.23.3", "pool": POOL, "charsmap": base64.b64encode(CHARSMAP).decode(), "normalizers": out}, indent=1, ensure_ascii=True) + "\n")


main()
