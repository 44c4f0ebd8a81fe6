"""Writes the golden files of this folder with the Python library `tokenizers` (made with 0.23.3).

    python golden.py corpus          corpus.json: texts that are hard to cut
    python golden.py train           *.tokenizer.json: small vocabularies with the pre-tokenizers in use
    python golden.py ids             ids.json: digests of the ids of every text, and decoded random ids
    python golden.py show NAME N     the ids of text N, in full

A digest is the first eight hexadecimal digits of SHA-256 over the ids as decimals, joined by commas.
"""
import hashlib
import json
import pathlib
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
TINY = HERE / "../../../testdata/tiny-qwen3/tokenizer.json"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

SCRIPTS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "latin1": "àéîöüßñçøåæœÀÉÎÖÜÑÇØÅÆŒſıİ",
    "viet": "ạảấầẩẫậắằẳẵặẹẻẽềểễệ", "greek": "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώ", "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяёЁ",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת", "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "deva": "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह",
    "deva_marks": "ािीुूेैोौ्ंः़", "thai": "กขคงจฉชซญดตถทนบปผฝพฟมยรลวสหอะาิีึืุูเแโใไ่้๊๋", "han": "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后",
    "kana": "あいうえおかきくけこさしすせそタチツテトナニヌネノがぎぐゲゴ", "half_kana": "ｱｲｳｴｵｶｷﾞﾟ", "hangul": "가나다라마바사아자차카타파하한글말", "jamo": "ᄀᄂᄃ가ᅢᅥᆨᆫᆯ",
    "new": "\u1c89\ua7cb\U000105c0\U00010d4a\U00011bc0\U00013460\U0002ebf0\U0001ccf0\U00010d40\U00011de0\U00016ff4\u0897\U000113b8",
    "digits": "0123456789", "other_digits": "٠١٢٣४५६๑๒๓０１２½¾²³ⅣⅫ①②㊿", "marks": "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u031b\u0345\u0334\u20dd\u093c\u3099\u16ff0".replace("\u16ff0", "\U00016ff0"),
    "young_marks": "\u07fd\u0898\u08ca\u09fe\u0c3c\u1abf\u1df6\U0001e130\U00011930\U00011935\U00011938",
    "punct": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "uni_punct": "–—‘’“”…•¿¡«»、。！？（）「」《》·‐‖", "symbols": "€£¥©®™°±×÷≈≠≤≥∑∏√∞→←↑↓■□★☆♥♪",
    "space": " \t\n\r\v\f\u00a0\u0085\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000", "plain_space": "   \n\t",
    "format": "\u200b\u200c\u200d\u200e\u200f\u202a\u2060\ufeff\u00ad\ufffd\ufff9", "control": "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x1b\x1c\x1f\x7f\x80\x9f",
    "private": "\ue000\uf8ff\U000f0000\U0010fffd\uffff\ufdd0", "emoji": "😀😂🥺👍🏽🏳🌈❤🔥🎉👩💻👨👧🇩🇪🇯🇵☺",
}
EMOJI = ["👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️‍🔥", "☺️", "1️⃣", "🧑🏿‍🚀"]
WORDS = ("the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were when we there can an your "
         "which their said if will each about how up out them then she many some so these would other into has more her two like him see time could").split()
CODE = ["func main() {\n\tfmt.Println(\"hi\")\n}\n", "for i in range(10):\n    print(i**2)  # squares\n", "SELECT * FROM t WHERE a='b' AND c<>3;",
        "if (x != y && z->w[3] == 0x1F) { return ~x; }", "<div class=\"a\">\n  <p>&nbsp;</p>\n</div>", "{\"key\": [1, 2.5e-10, null, true]}",
        "\\begin{equation} \\frac{1}{2} \\end{equation}", "http://example.org/a/b?c=d&e=%20#f", "user@example.org", "C:\\temp\\new.txt", "#!/bin/sh\nset -e\n"]
HAND = ["", " ", "  ", "\n", "\r\n", "a", "'", "''", "'s", "'S", "'ſ", "'ſx", "'re", "'RE", "'rE", "'r", "'l", "'ll", "'LL'", "'ve'd'm't", "I'm you're they'll we've he'd don't it's",
        "I'M YOU'RE THEY'LL WE'VE HE'D DON'T IT'S", "’s ’t", "x's", " 's", "\n's", "1's2", "a  b", "a   b", "a \n b", "a\n\n\nb", "a \n \n  b", " \n", "\n ", "a \r\n \tb", "   a", "a   ", "\t\ta", "a\t\t",
        "1234567890", "12 345 6789", "3.14159", "1,000,000", "٣٤٥", "१२३४", "²³", "x²", "½ cup", "ⅣⅤ", "e\u0301", "é", "e\u0301\u0323", "e\u0323\u0301", "Å \u212b A\u030a", "ﬁ ﬂ ﬆ", "\u1100\u1161\u11a8", "각",
        "a" + "\u0301" * 40 + "b", "a" + "\u0301\u0323" * 40 + "b", "\u0301a", "\u0915\u093c", "\u0958", "\u0344", "\u2126", "\u0340\u0341", "\U0001d15e", "\u0f73", "\u0fb2\u0f80\u0f71", "\U00011935\U00011930", "a\u07fd\u0301", "a\u0301\u07fd\u0323",
        "Hello, world!", "Hello,  world!", " Hello", "hello HELLO Hello", "snake_case camelCase PascalCase kebab-case", "__init__", "...", "!!!\n\n", "?!\r\n\r\nx", "a!!\nb", "-->", "==", "===", "//////", "a/b/c",
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "<|im_end|><|im_end|>", "<|im_end|> <|im_end|>", "<|im_start", "|im_start|>", "<|endoftext|>a", "a<|endoftext|>", "<<|endoftext|>>", "<|<|im_end|>|>",
        "<tool>", " <tool> ", "x <tool>\n\ny", "x<tool>y", "\u00a0<tool>\u3000", "<tool><tool>", "<tool>  <tool>", "aword", "a word b", "wordy", " word ", "_word", "word1", "word-word", "\u200dword", "école", "e\u0301cole", "l'e\u0301cole", "xé\u0301", "ab abc abcd abcde", "abcdabcabde",
        "<think>x</think>", "<|begin_of_text|>a", "\ufeffBOM", "\x00", "a\x00b", "\x01\x02\x03\x04\x05\x06\x07", "a\x01b", "1\x022", "\ufffd", "\ufffe\uffff", "\U0010ffff", "\u0085a", "a\u2028b", "a\u3000b", "\u3000\u3000a", "\u200b\u200b",
        "Ġ", "ĠĠ", "Ċ", "▁", "▁a", "<0x41>", "<0x0A>x", "ĠHello", "ā", "Ł", "£", "¡ñ", "的一是不", "你好，世界！", "こんにちは 世界", "안녕하세요 세계", "Привет мир", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Xin chào thế giới"]


def corpus():
    rng = random.Random(20261121)
    out = list(HAND) + CODE + EMOJI
    out += [" ".join(EMOJI), "".join(EMOJI), "a" * 3000, "ab" * 1500, " " * 3000, "\n" * 1000, " \n" * 500, "1" * 1000, "!" * 1000, "é" * 500, "e\u0301" * 500, "<" * 500, "'" * 300, "ſ" * 50, "的" * 300]
    names = list(SCRIPTS)

    def word(script, most=8):
        return "".join(rng.choice(SCRIPTS[script]) for _ in range(rng.randint(1, most)))

    def piece():
        k = rng.random()
        if k < 0.25:
            w = rng.choice(WORDS)
            return rng.choice([w, w.upper(), w.capitalize()]) + rng.choice(["", "'s", "'T", "'re", "'LL", "'", ""])
        if k < 0.60:
            return word(rng.choice(names))
        if k < 0.70:
            return word("digits", 12)
        if k < 0.80:
            return word("space", 5)
        if k < 0.84:
            return rng.choice(SPECIALS + ["<tool>", "word", "école", "abc", "abcd", "<think>", "<|begin_of_text|>"])
        if k < 0.88:
            return rng.choice(EMOJI)
        if k < 0.92:
            return rng.choice(SCRIPTS["latin"]) + word("marks", 4)
        return rng.choice(CODE)[: rng.randint(1, 30)]

    while len(out) < 2300:
        sep = rng.choice(["", "", " ", " ", "  ", "\n", " \n", "\t"])
        out.append(sep.join(piece() for _ in range(rng.randint(1, 9))))
    # Single characters of every 997th code point, with neighbours.
    out += ["a" + chr(c) + "b 1" + chr(c) + "2 " + chr(c) for c in range(0x80, 0x110000, 997) if not 0xD800 <= c < 0xE000][:400]
    (HERE / "corpus.json").write_text(json.dumps(out, ensure_ascii=True, indent=0) + "\n")
    print(len(out), "texts")


def texts():
    return json.loads((HERE / "corpus.json").read_text())


def train():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda rx: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rx), "isolated"), byte_level])
    for name, pre, norm, size in [
        ("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), None, 700),
        ("llama3", split(LLAMA3), None, 900),
        ("qwen", split(QWEN2), normalizers.NFC(), 800),
    ]:
        t = Tokenizer(models.BPE())
        t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
        if norm:
            t.normalizer = norm
        tr = trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
        t.train_from_iterator([s for s in texts() if len(s) < 500] + WORDS * 3, tr)
        j = json.loads(t.to_str())
        n = len(j["model"]["vocab"])
        added = [dict(id=n + i, content=c, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, c in enumerate(SPECIALS)]
        if name == "llama3":
            j["model"]["ignore_merges"] = True
            j["model"]["merges"] = [m for i, m in enumerate(j["model"]["merges"]) if i % 97 != 50]
            added = [dict(a, id=n + i) for i, a in enumerate(added)] + [dict(added[0], id=n + 3, content="<|begin_of_text|>")]
            bos = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}
            j["post_processor"] = {"type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                {"type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
                 "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                 "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [n + 3], "tokens": ["<|begin_of_text|>"]}}}]}
        if name == "qwen":
            j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]  # the older spelling
            extra = [("<tool>", dict(lstrip=True, rstrip=True)), ("école", dict(normalized=True)), ("abc", {}), ("abcd", {}),
                     ("<think>", {}), ("</think>", dict(rstrip=True)), ("e\u0301t", dict(normalized=True))]
            for c, kw in extra:
                new = n + sum(a["content"] not in j["model"]["vocab"] for a in added)
                added.append({**added[0], "id": j["model"]["vocab"].get(c, new), "content": c, "special": False, **kw})
        j["added_tokens"] = added
        s = json.dumps(j, ensure_ascii=False)
        Tokenizer.from_str(s)
        (HERE / f"{name}.tokenizer.json").write_text(s + "\n")


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def seq(*p):
    return {"type": "Sequence", "pretokenizers": list(p)}


DIGITS = {"type": "Digits", "individual_digits": True}
RUNS = {"type": "Digits", "individual_digits": False}

# name: (fixture, parts of the file to replace)
VARIANTS = {
    "gpt2": ("gpt2", {}),
    "llama3": ("llama3", {}),
    "qwen": ("qwen", {}),
    "tiny-qwen3": ("tiny-qwen3", {}),
    "smollm": ("gpt2", {"pre_tokenizer": seq(DIGITS, byte_level(True))}),
    "digit-runs": ("gpt2", {"pre_tokenizer": seq(RUNS, byte_level(True))}),
    "prefix-space": ("gpt2", {"pre_tokenizer": byte_level(True, True)}),
    "prefix-space-split": ("gpt2", {"pre_tokenizer": seq(split(LLAMA3), byte_level(False, True))}),
    "whole": ("gpt2", {"pre_tokenizer": byte_level(False)}),
    "qwen3.5": ("qwen", {"pre_tokenizer": seq(split(QWEN35), byte_level())}),
    "o200k": ("gpt2", {"pre_tokenizer": seq(split(O200K), byte_level())}),
    "o200k-removed": ("gpt2", {"pre_tokenizer": seq(split(O200K, "Removed", True), byte_level())}),
    "deepseek": ("gpt2", {"pre_tokenizer": seq(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level())}),
    "removed": ("gpt2", {"pre_tokenizer": seq(split(r"\s+", "Removed"), byte_level())}),
    "inverted": ("gpt2", {"pre_tokenizer": seq(split(r"\p{L}+", "Removed", True), byte_level())}),
    "previous": ("gpt2", {"pre_tokenizer": seq(split(r"[aeiou ]", "MergedWithPrevious"), byte_level())}),
    "next": ("gpt2", {"pre_tokenizer": seq(split(r"[aeiou ]", "MergedWithNext"), byte_level())}),
    "contiguous": ("gpt2", {"pre_tokenizer": seq(split(r"[aeiou ]", "Contiguous"), byte_level())}),
    "literal": ("gpt2", {"pre_tokenizer": seq(split("the", kind="String"), split(" ", "MergedWithNext", kind="String"), byte_level(True))}),
    "next-inverted": ("gpt2", {"pre_tokenizer": seq(split(r"[^aeiou ]+", "MergedWithNext", True), byte_level())}),
    "line-ends": ("gpt2", {"pre_tokenizer": seq(split(r"\s+$"), split(r"(?i:th|[ks])+?e|\d+\D"), byte_level())}),
    "scan-previous": ("gpt2", {"pre_tokenizer": seq(split(QWEN2, "MergedWithPrevious"), byte_level())}),
    "scan-next": ("gpt2", {"pre_tokenizer": seq(split(LLAMA3, "MergedWithNext"), byte_level())}),
}


def load(name):
    base, parts = VARIANTS[name]
    j = json.loads((TINY if base == "tiny-qwen3" else HERE / f"{base}.tokenizer.json").read_text())
    return Tokenizer.from_str(json.dumps({**j, **parts}))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def ids():
    out = {}
    for name, (base, parts) in VARIANTS.items():
        t, rng = load(name), random.Random(name)
        size = max(t.get_vocab().values()) + 1
        all_ids = [t.encode(s, add_special_tokens=False).ids for s in texts()]
        special = [t.encode(s).ids for s in texts()]
        decode = []
        for _ in range(60):
            r = [rng.choice([rng.randrange(size), rng.randrange(size - 12, size), rng.randrange(256)]) for _ in range(rng.randint(1, 12))]
            decode.append([r, t.decode(r, skip_special_tokens=False), t.decode(r, skip_special_tokens=True)])
        out[name] = {
            "base": base, "parts": parts, "vocab": size, "decode": decode,
            "ids": [digest(",".join(map(str, i))) for i in all_ids],
            "special": digest(";".join(",".join(map(str, i)) for i in special)),
            "text": digest("\0".join(t.decode(i, skip_special_tokens=False) for i in all_ids)),
        }
    (HERE / "ids.json").write_text(json.dumps(out, ensure_ascii=True, indent=0) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "show":
        print(json.dumps(load(sys.argv[2]).encode(texts()[int(sys.argv[3])], add_special_tokens=False).ids))
    else:
        {"corpus": corpus, "train": train, "ids": ids}[sys.argv[1]]()
