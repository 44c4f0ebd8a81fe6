"""Trains the small models of this directory with the library sentencepiece and records the ids that it gives.

    python make.py          needs sentencepiece; writes *.model and goldens.json

The text is made from a seed, so that the files are free of anybody's rights.
"""
import json
import os
import random

import sentencepiece

os.chdir(os.path.dirname(os.path.abspath(__file__)))
random.seed(20)

SYLLABLES = ["ba", "cho", "dé", "fi", "gro", "ha", "ji", "ko", "lum", "mé", "no", "pra", "qui", "ré", "sol", "tu", "vex", "zy"]
OTHERS = ["привет", "мир", "日本", "語の", "123", "7.5", "can't", "I'm", "x_y", "f(x)", "==", "😀", "naïve", "ＡＢ", "ﬁx"]


def word():
    if random.random() < 0.15:
        return random.choice(OTHERS)
    return "".join(random.choice(SYLLABLES) for _ in range(random.randint(1, 4)))


words = [word() for _ in range(400)]
lines = [" ".join(random.choices(words, k=random.randint(4, 12))) for _ in range(2000)]
with open("text.tmp", "w", encoding="utf-8") as f:
    f.write("\n".join(lines))
with open("rules.tmp", "w", encoding="utf-8") as f:
    # Full-width letters, a ligature, a composition, a deletion, white space.
    for source, target in [("Ａ", "A"), ("Ｂ", "B"), ("ﬁ", "fi"), ("e\u0301", "é"), ("\u200b", ""), ("\t", " "), ("\u3000", " "), ("\n", " ")]:
        f.write(" ".join("%X" % ord(c) for c in source) + "\t" + " ".join("%X" % ord(c) for c in target) + "\n")

MODELS = {
    "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "bpe_rules": dict(model_type="bpe", normalization_rule_tsv="rules.tmp"),
    "bpe_bare": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False,
                     remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True),
    "bpe_symbols": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False,
                        remove_extra_whitespaces=False, user_defined_symbols=["<user>", "<bot>"], control_symbols=["<pad>"],
                        unk_id=3, bos_id=0, eos_id=1),
    "unigram": dict(model_type="unigram", normalization_rule_tsv="rules.tmp"),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity",
                          remove_extra_whitespaces=False),
    "char": dict(model_type="char", normalization_rule_tsv="rules.tmp"),
}

TEXTS = [
    "", " ", "  ", "choba lumré", " choba", "choba ", "  two  spaces  ", "a\tb", "a\nb\n", "привет мир", "日本語の", "ＡＢ ﬁx cafe\u0301",
    "zero\u200bwidth", "\u3000wide\u3000", "😀😀 🙂", "12345 7.55", "can't I'm", "f(x)==x_y", "\u0000\u0001", "한국어", "▁x▁▁",
    "zyzyzyzy", "solsolsol", "qqqqq", "\u00a0no break", "<0x41", "\ufffd", "bababababa  ba",
]
for _ in range(150):
    k = random.random()
    if k < 0.4:
        TEXTS.append("".join(random.choice(words + [" ", "  ", "\n", "\t"]) for _ in range(random.randint(1, 8))))
    elif k < 0.7:
        TEXTS.append("".join(random.choice("abcdeéhlorzy  ▁123.=") for _ in range(random.randint(1, 24))))
    else:
        TEXTS.append("".join(chr(random.choice([random.randint(32, 127), random.randint(0xA0, 0x4FF), random.randint(0x4E00, 0x9FFF),
                                                random.randint(0x1F600, 0x1F64F)])) for _ in range(random.randint(1, 10))))

goldens = {"provenance": "sentencepiece " + sentencepiece.__version__, "texts": TEXTS, "ids": {}}
for name, options in MODELS.items():
    options.setdefault("vocab_size", 520 if options.get("byte_fallback") else 300)
    if options["model_type"] == "char":
        options["vocab_size"] = 60
    sentencepiece.SentencePieceTrainer.train(input="text.tmp", model_prefix=name, hard_vocab_limit=False, minloglevel=2,
                                             num_threads=1, **options)
    os.remove(name + ".vocab")
    library = sentencepiece.SentencePieceProcessor(model_file=name + ".model")
    goldens["ids"][name] = [library.encode(text) for text in TEXTS]
os.remove("text.tmp")
os.remove("rules.tmp")
with open("goldens.json", "w", encoding="utf-8") as f:
    json.dump(goldens, f, ensure_ascii=True, separators=(",", ":"))
    f.write("\n")
