"""Writes pre.json with the Python library `tokenizers` (made with 0.23.3): how it cuts the texts of corpus.json.

    python pre.py                    every pattern and pre-tokenizer on every text
    python pre.py show KIND N TEXT   the pieces of one text

A text is cut into pieces joined by U+0001, texts by U+0002; a digest is the first eight hexadecimal digits of SHA-256 over a
hundred texts. A pattern that Oniguruma refuses has null for digests.
"""
import hashlib
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, pre_tokenizers

HERE = pathlib.Path(__file__).parent
from golden import DEEPSEEK, LLAMA3, O200K, QWEN2, QWEN35  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
CL100K_POSSESSIVE = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
PATTERNS = [
    GPT2, LLAMA3, QWEN2, QWEN35, O200K, DEEPSEEK, TEKKEN, KIMI, CL100K, CL100K_POSSESSIVE,
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", "[0-9][0-9][0-9]", r"[0-9]{3}", r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))", r"\s?[^(\s|[.,!?…。，、।۔،])]+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+", "[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥]+", r"(?:\r?\n)+(?!\r?\n)", r"\n", r"(?i:[sdmt]|ll|ve|re)",
    r"[A-Za-z\x41]+", r"\s+$", r"^\s+", r"(?<=\s)\S+", r"(?<!\p{L})\p{L}", r"(?<=a|bc|\d+)\p{L}+", r"\b\w", r"\B.", r"\w+\W?",
    r"\S+|\s", r".", r"(?m:.+)", r".+$", r"^.+", r"\A.", r".\z", r"\s\Z", r"\h+", r"\H+", r"\R", r"\N+", r"\O{1,7}", r"[[:alpha:]]+", r"[^[:space:]]+",
    r"[[:upper:]][[:lower:]]+", r"\p{^L}+", r"\P{^L}+", r"\p{Greek}+|\p{Cyrillic}+|\p{Hangul}+", r"\pL+\pM*", r"[\p{L}&&[^a-z]]+", r"[^\p{L}&&[^\d]]+", r"[a-z&&[aeiou]&&[^e]]+",
    r"[]a-]+", r"[a\-z]+", r"[\w.-]+", r"[a-c-e]+", r"a*", r"", r"x?", r"(?:a|b*)*", r"(?:|a)*b", r"(?:a?)+", r"(?:\s*?)+x", r"(?:a?b?)*c", r"(?:(?:a*)*b?)*[cd]", r"(?>a+|b)\w",
    r"\p{L}*+\p{N}", r"\s*+[\r\n]|\s", r"(?:th|e)+?n?", r"\p{L}{2,4}?", r"\p{L}{4,2}", r"\p{L}{2}+", r"\p{L}{,3}\d", r"\p{L}{3,}", r"{a|a{|a{x", r"(?i)the|AND", r"a(?i)b|c",
    r"(?i:k|é|Σ|ǆ)+", r"(?i:[^a-mθ]+)", r"(?i:[k-tа-я]+)", r"(?-i:a)|(?i:b(?-i:c))", r"(?<w>\w)\S", r"(?#note)a(?#x)+", r"(?!\s)[^a](?=\p{L})", r"(?=a|(?=b)).", r"(?!.*e)\w",
    r"\p{Alnum}+|\p{Lowercase}|\p{Punct}", r"\p{Uppercase_Letter}\p{lowercase letter}+", r"\u0041|\x{e9}|\x61", r"\p{Cn}|\p{Co}|\p{Cf}+", r"\p{Any}{5}", r"\p{Han}+|\p{Hiragana}+|\p{Katakana}+",
    r"\p{Mn}+|\p{Sc}|\p{Pd}+|\p{Zs}{2,}", r"(\w)\1", r"(?(1)a|b)", r"\g<0>", r"*a", r"(a", r"[a", r"a)", r"[z-a]", r"\p{Nothing}",
]
STEPS = {
    "bert": {"type": "BertPreTokenizer"}, "whitespace": {"type": "Whitespace"}, "whitespace-split": {"type": "WhitespaceSplit"},
    "scripts": {"type": "UnicodeScripts"}, "fixed": {"type": "FixedLength", "length": 3}, "fixed-default": {"type": "FixedLength"},
    "delimiter": {"type": "CharDelimiterSplit", "delimiter": "e"}, "digits": {"type": "Digits", "individual_digits": True},
    "digit-runs": {"type": "Digits", "individual_digits": False},
    "bytes": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}, "bytes-prefix": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
    "bytes-whole": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}, "empty": {"type": "Sequence", "pretokenizers": []},
}
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
for b in BEHAVIORS:
    STEPS["punctuation-" + b] = {"type": "Punctuation", "behavior": b}
    for inv in (False, True):
        for i, pattern in enumerate([{"String": " "}, {"String": "th"}, {"String": ""}, {"Regex": r"[aeiou]\s?"}, {"Regex": r"x*"}, {"Regex": LLAMA3}, {"Regex": r"\p{N}{1,3}"}]):
            STEPS[f"split-{b}-{inv}-{i}"] = {"type": "Split", "pattern": pattern, "behavior": b, "invert": inv}
for scheme in ("always", "first", "never"):
    for cut in (True, False):
        STEPS[f"metaspace-{scheme}-{cut}"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
STEPS["metaspace-old"] = {"type": "Metaspace", "replacement": "_", "add_prefix_space": True, "str_rep": "_"}
STEPS["t5"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, STEPS["metaspace-always-True"]]}
STEPS["first-behind"] = {"type": "Sequence", "pretokenizers": [STEPS["whitespace-split"], STEPS["metaspace-first-True"]]}
STEPS["falcon"] = {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                   STEPS["digit-runs"], {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]}


def texts():
    return json.loads((HERE / "corpus.json").read_text())


def load(step):
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": step, "post_processor": None,
        "decoder": None, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})).pre_tokenizer


def digests(cut):
    out, all_texts = [], texts()
    for i in range(0, len(all_texts), 100):
        part = "\2".join("\1".join(p for p, _ in cut.pre_tokenize_str(s)) for s in all_texts[i:i + 100])
        out.append(hashlib.sha256(part.encode()).hexdigest()[:8])
    return out


def main():
    out = {"patterns": [], "steps": []}
    for p in PATTERNS:
        try:
            cut = pre_tokenizers.Split(Regex(p), "isolated")
        except Exception:
            out["patterns"].append({"pattern": p, "digests": None})
            continue
        out["patterns"].append({"pattern": p, "digests": digests(cut)})
    for name, step in STEPS.items():
        out["steps"].append({"name": name, "step": step, "digests": digests(load(step))})
    (HERE / "pre.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        cut = pre_tokenizers.Split(Regex(PATTERNS[int(sys.argv[3])]), "isolated") if sys.argv[2] == "pattern" else load(STEPS[sys.argv[3]])
        print(json.dumps([p for p, _ in cut.pre_tokenize_str(texts()[int(sys.argv[4])])]))
    else:
        main()
