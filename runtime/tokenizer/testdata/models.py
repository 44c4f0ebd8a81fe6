"""Writes models.json with the Python library `tokenizers` (made with 0.23.3): what small random tokenizers make of texts.

    python models.py            models.json
    python models.py FILE N     N tokenizers, with all ids and texts instead of digests
    python models.py show I     ids and texts of tokenizer I of models.json

Each has a model of any type with random settings, vocabulary and merges, mostly over few characters so that ties, unknown characters
and merges that overlap are frequent, and a random decoder and post-processor. Where the library itself ends with an error or a
panic nothing is recorded.
"""
import hashlib
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
CHARS = "aaaabbbbccd   é的😀\u0301▁_.'!xX<0>\n"
RARE = ["\x00", "\u00a0", "ß", "Ω", "\uffff", "\U0010ffff", "</w>", "##", "<unk>", "<0x41>", "<0x0A>", "[UNK]", "don't", " n't", "ab", "abab"]
DECODE = ["▁", "▁a", "##b", "a</w>", " ", "", ".", "'s", "<0x41>", "<0xE7>", "<0x9A>", "<0x84>", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0x+A>", "<0xG0>", "<0xé>", "Ġ", "ç", "ļ", "Ħ", "Ġa", "的",
          "<pad>", "|", "bb", " do not", "n't", "▁▁", "a▁a", "  a  "]


def text(rng, most=14):
    return "".join(rng.choice(RARE) if rng.random() < 0.06 else rng.choice(CHARS) for _ in range(rng.randint(0, most)))


def texts(rng, n):
    out = ["", "a", "ab", "的", "😀😀", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababab", "xxxxxxx", "a x b x x c"]
    while len(out) < n:
        out.append(text(rng))
    return out


def word(rng, chars, n):
    return "".join(rng.choice(chars) for _ in range(n))


def some_bytes(rng):
    if rng.random() < 0.6:
        return [f"<0x{b:02X}>" for b in sorted(set("é的😀\u0301 x</w>".encode()))]
    return [f"<0x{b:02X}>" for b in range(256) if rng.random() < 0.999 ** rng.choice([0, 0, 300])]


def bpe(rng, byte_level):
    chars = sorted(set(rng.sample(sorted(set(CHARS)), rng.randint(3, 20))) | {"a", "b"})
    if byte_level:
        chars = [c for c in "abcdĠéçĠĊ!'.xXÃ©" if rng.random() < 0.9]
    m = {"type": "BPE", "dropout": rng.choice([None, None, 0.0]), "fuse_unk": rng.random() < 0.5, "byte_fallback": rng.random() < 0.4, "ignore_merges": rng.random() < 0.3}
    prefix = m["continuing_subword_prefix"] = rng.choice([None, None, None, "", "##", "é"])
    suffix = m["end_of_word_suffix"] = rng.choice([None, None, None, "", "</w>", "b"])
    tokens = list(chars)
    if prefix:
        tokens += [prefix + c for c in chars if rng.random() < 0.9]
    if suffix:
        tokens += [c + suffix for c in chars if rng.random() < 0.9] + [(prefix or "") + c + suffix for c in chars if rng.random() < 0.9]
    m["unk_token"] = rng.choice([None, "<unk>", "a"])
    if m["unk_token"] == "<unk>":
        tokens.append("<unk>")
    if m["byte_fallback"]:
        tokens += some_bytes(rng)
    tokens = list(dict.fromkeys(tokens))
    merges, cut = [], len((prefix or "").encode())
    for _ in range(rng.choice([0, 3, 10, 40])):
        a, b = rng.choice(tokens[-30:] + tokens[:20]), rng.choice(tokens[-30:] + tokens[:20])
        rest = b.encode()[cut:]
        if len(b.encode()) < cut or len(a + b) > 12:
            continue
        try:
            both = a + rest.decode()
        except UnicodeDecodeError:
            continue
        if both not in tokens:
            tokens.append(both)
        if [a, b] not in merges or rng.random() < 0.2:
            merges.append([a, b])
    if rng.random() < 0.3:
        rng.shuffle(merges)
    ids = list(range(len(tokens)))
    if rng.random() < 0.3:
        rng.shuffle(ids)
    m["vocab"] = dict(zip(tokens, ids))
    if rng.random() < 0.3 and not any(" " in x for p in merges for x in p):
        merges = [" ".join(p) for p in merges]
    m["merges"] = merges
    return m


def unigram(rng):
    chars = sorted(set(rng.sample(sorted(set(CHARS)), rng.randint(2, 20))) | {"a", "b"})
    tokens = ["<unk>"] + [c for c in chars if rng.random() < 0.8]
    while len(tokens) < rng.choice([10, 30, 60]):
        tokens.append(word(rng, chars[:5] + ["a", "b"], rng.randint(1, 5)))
    if rng.random() < 0.7:
        tokens = list(dict.fromkeys(tokens))
    fallback = rng.random() < 0.4
    if fallback:
        tokens += some_bytes(rng)
    kind = rng.choice(["ties", "ties", "long", "long", "positive", "zero"])
    score = {"ties": lambda: -rng.randint(1, 4) * 0.1, "long": lambda: float(f"{-rng.random() * 20:.{rng.randint(1, 18)}f}"), "positive": lambda: rng.random() * 100, "zero": lambda: rng.choice([0, 0.0, -0.0, -1, 3])}[kind]
    m = {"type": "Unigram", "unk_id": rng.choice([0, 0, len(tokens) - 1, 1]), "vocab": [[t, score()] for t in tokens]}
    if fallback or rng.random() < 0.5:
        m["byte_fallback"] = fallback
    return m


def wordpiece(rng):
    chars = sorted(set(rng.sample(sorted(set(CHARS)), rng.randint(3, 20))) | {"a", "b"})
    prefix = rng.choice(["##", "##", "", "é", "a"])
    tokens = ["[UNK]"] + [c for c in chars if rng.random() < 0.9] + [prefix + c for c in chars if rng.random() < 0.9] + [prefix]
    for _ in range(rng.choice([0, 20])):
        tokens.append(rng.choice(["", prefix]) + word(rng, chars[:5] + ["a", "b"], rng.randint(1, 5)))
    tokens = [t for t in dict.fromkeys(tokens) if t]
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix, "max_input_chars_per_word": rng.choice([100, 100, 5, 0]), "vocab": {t: i for i, t in enumerate(tokens)}}


def wordlevel(rng):
    tokens = ["[UNK]"] + [text(rng, 3) for _ in range(30)]
    return {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {t: i for i, t in enumerate(dict.fromkeys(tokens))}}


def decoder(rng, depth=2):
    string = lambda: rng.choice(["▁", "▁", "a", "aa", "ab", "</w>", " ", "aba", "é", "▁▁", "\n"])
    kinds = {
        "ByteLevel": lambda: {"add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "ByteFallback": dict, "Fuse": dict,
        "Replace": lambda: {"pattern": {"String": string()}, "content": rng.choice([" ", "", "▁", "xy", "a"])} if rng.random() < 0.8 else
        {"pattern": {"Regex": rng.choice(["a+", "[ab]", "▁|b", "\\s+", "(?:ab)+|c"])}, "content": rng.choice([" ", "", "z"])},
        "Strip": lambda: {"content": rng.choice([" ", " ", "a", "▁"]), "start": rng.choice([0, 1, 1, 2, 5]), "stop": rng.choice([0, 0, 0, 1, 2])},
        "Metaspace": lambda: {"replacement": rng.choice("▁▁▁_a"), **rng.choice([{"prepend_scheme": s} for s in ["always", "first", "never"]] + [{"add_prefix_space": True}, {"add_prefix_space": True, "prepend_scheme": "first", "split": False}, {"add_prefix_space": False, "prepend_scheme": "never"}])},
        "WordPiece": lambda: {"prefix": rng.choice(["##", "##", "", "a"]), "cleanup": rng.random() < 0.6},
        "BPEDecoder": lambda: {"suffix": rng.choice(["</w>", "</w>", "a", ""])},
        "CTC": lambda: {"pad_token": rng.choice(["<pad>", "a"]), "word_delimiter_token": rng.choice(["|", "b"]), "cleanup": rng.random() < 0.6},
    }
    r = rng.random()
    if r < 0.1 and depth == 2:
        return None
    if r < 0.5 and depth:
        if rng.random() < 0.3:
            return {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
        return {"type": "Sequence", "decoders": [decoder(rng, depth - 1) for _ in range(rng.randint(0, 4))]}
    kind = rng.choice(list(kinds))
    return {"type": kind, **kinds[kind]()}


def processor(rng, names, depth=1):
    one = lambda: rng.choice(names)
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    kind = rng.choice(["none", "template", "template", "bert", "roberta", "ByteLevel", "sequence"])
    if kind == "template":
        special = {n: {"id": n, "ids": [names[n] for n in (one2 if isinstance(one2, list) else [one2])], "tokens": [n] * len(one2)}
                   for n, one2 in ((n, [rng.choice(list(names)) for _ in range(rng.randint(1, 2))]) for n in ["x", "y", "z"])}
        piece = lambda: {"SpecialToken": {"id": rng.choice("xyz"), "type_id": 0}}
        a = {"Sequence": {"id": "A", "type_id": 0}}
        p = {"type": "TemplateProcessing", "single": [piece() for _ in range(rng.randint(0, 2))] + [a] + [piece() for _ in range(rng.randint(0, 2))],
             "pair": [a, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": special}
        if rng.random() < 0.3:
            p.update({"add_prefix_space": True, "trim_offsets": False, "use_regex": True})
        return p
    pairs = list(names.items())
    if kind == "bert":
        return {"type": "BertProcessing", "sep": rng.choice(pairs), "cls": rng.choice(pairs)}
    if kind == "roberta":
        return {"type": "RobertaProcessing", "sep": rng.choice(pairs), "cls": rng.choice(pairs), "trim_offsets": True, "add_prefix_space": False}
    if kind == "ByteLevel":
        return byte_level
    if kind == "sequence" and depth:
        members = [p for p in (processor(rng, names, 0) for _ in range(rng.randint(0, 3))) if p]
        # Behind a template the library has several texts, which only ByteLevel leaves alone.
        for i, p in enumerate(members):
            if p["type"] == "TemplateProcessing":
                members = members[: i + 1] + [byte_level]
                break
        return {"type": "Sequence", "processors": members}
    return None


def tokenizer(rng):
    byte_level = {"type": "ByteLevel", "add_prefix_space": rng.random() < 0.3, "trim_offsets": True, "use_regex": rng.random() < 0.7}
    pre = rng.choice([None, None, byte_level, {"type": "Digits", "individual_digits": False}, {"type": "Split", "pattern": {"String": " "}, "behavior": rng.choice(["MergedWithPrevious", "MergedWithNext", "Removed"]), "invert": False},
                      {"type": "Sequence", "pretokenizers": [byte_level, {"type": "Digits", "individual_digits": True}]}, {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]}])
    has_bytes = "ByteLevel" in json.dumps(pre)
    model = rng.choice([bpe, bpe, bpe, unigram, unigram, wordpiece, wordlevel])
    model = bpe(rng, has_bytes) if model is bpe else model(rng)
    vocab = model["vocab"] if isinstance(model["vocab"], dict) else {t: i for i, (t, _) in enumerate(model["vocab"])}
    n = len(model["vocab"])
    added = []
    for content in rng.sample(DECODE, 7):
        if content and content not in vocab and content.strip():
            added.append({"id": n + len(added), "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": rng.random() < 0.2})
    names = {**vocab, **{a["content"]: a["id"] for a in added}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": pre, "post_processor": processor(rng, names), "decoder": decoder(rng), "model": model}, n + len(added)


def attempt(f):
    try:
        return f()
    except BaseException as e:  # a panic of the library is no Exception
        if isinstance(e, KeyboardInterrupt):
            raise
        return None


def case(seed, strings, most=1 << 30):
    rng = random.Random(seed)
    j, size = tokenizer(rng)
    if len(json.dumps(j, separators=(",", ":"))) > most:
        return None
    t = attempt(lambda: Tokenizer.from_str(json.dumps(j)))
    if t is None:
        return None
    ids = [attempt(lambda: t.encode(s, add_special_tokens=False).ids) for s in strings]
    special = [attempt(lambda: t.encode(s).ids) for s in strings]
    if None in ids or None in special:
        return None
    decode = []
    few = [rng.randrange(size) for _ in range(6)]
    for k in range(40):
        r = [rng.choice([rng.randrange(size), rng.randrange(max(0, size - 12), size), rng.choice(few)]) for _ in range(rng.randint(0, 9))]
        decode.append([r, attempt(lambda: t.decode(r, skip_special_tokens=False)), attempt(lambda: t.decode(r, skip_special_tokens=True))])
    return {"file": j, "ids": ids, "special": special, "decode": decode}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def small(c):
    join = lambda lists: digest(";".join(",".join(map(str, i)) for i in lists))
    d = [x for x in c["decode"] if None not in x][:12]
    return {"file": c["file"], "ids": join(c["ids"]), "special": join(c["special"]), "decode": [x[0] for x in d], "texts": digest("\0".join(x[1] + "\0" + x[2] for x in d))}


def numbers():
    """Scores as they are written, and what the library reads; most of those that it rounds otherwise than Python."""
    rng = random.Random(5)
    out = ["0", "-0", "12", "-1.5", "1e3", "2.5E-1", "1e-400", "0e99", "18446744073709551615", "18446744073709551616", "0.1", "1e+2", "123456789012345678901234567890"]
    out += [f"{-rng.random() * 20:.{rng.randint(1, 20)}f}" for _ in range(60)] + [repr(rng.uniform(-1e3, 1e3) * 10.0 ** rng.randint(-30, 30)) for _ in range(60)]
    out += [f"{rng.randrange(10 ** rng.randint(1, 30))}.{rng.randrange(10 ** rng.randint(1, 25))}e{rng.randint(-320, 250)}" for _ in range(60)]
    vocab = ",".join(f'["t{i}",{n}]' for i, n in enumerate(out))
    t = Tokenizer.from_str('{"version":"1.0","added_tokens":[],"model":{"type":"Unigram","unk_id":0,"vocab":[' + vocab + "]}}")
    read = [float(score) for _, score in json.loads(t.to_str())["model"]["vocab"]]
    return [[n, repr(f)] for i, (n, f) in enumerate(zip(out, read)) if i < 20 or f != float(n)]


def main():
    strings = texts(random.Random(7), 150)
    if len(sys.argv) > 2 and sys.argv[1] != "show":
        n, out = int(sys.argv[2]), []
        for i in range(n):
            c = case(f"x{i}", strings)
            if c:
                out.append(c)
        pathlib.Path(sys.argv[1]).write_text(json.dumps({"texts": strings, "cases": out}))
        print(len(out), "of", n)
        return
    out, i = [], 0
    while len(out) < 80:
        c = case(f"g{i}", strings, 1800)
        i += 1
        if c:
            out.append(c)
    if len(sys.argv) > 2:
        c = out[int(sys.argv[2])]
        for s, a, b in zip(strings, c["ids"], c["special"]):
            print(json.dumps([s, a, b], ensure_ascii=False))
        for d in c["decode"]:
            print(json.dumps(d, ensure_ascii=False))
        return
    lines = ",\n".join(json.dumps(small(c), ensure_ascii=True, separators=(",", ":")) for c in out)
    (HERE / "models.json").write_text('{"texts":' + json.dumps(strings, separators=(",", ":")) + ',\n"numbers":' + json.dumps(numbers(), separators=(",", ":")) + ',\n"cases":[\n' + lines + "\n]}\n")


main()
