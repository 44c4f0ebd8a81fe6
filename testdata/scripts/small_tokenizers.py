"""Trains the small tokenizers in verify/tokenizerstest/testdata, with the library tokenizers on the plain half of the corpus.

    python small_tokenizers.py

Made with tokenizers 0.23.3.
"""
import gzip
import json
import pathlib

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).parent / "../.."
OUT = ROOT / "verify/tokenizerstest/testdata"


def texts():
    with gzip.open(ROOT / "runtime/tokenizer/parity/corpus.jsonl.gz", "rt", encoding="utf-8", newline="\n") as f:
        lines = [json.loads(line) for line in f]
    return [s["text"] for s in lines if not s["hard"] and len(s["text"]) < 120][::3]


def added(i, text, **kw):
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **kw}


def template(before, after, ids):
    piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    single = [*map(piece, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(piece, after)]
    special = {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in [*before, *after]}
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": special}


def write(name, j):
    Tokenizer.from_str(json.dumps(j))
    (OUT / f"{name}.tokenizer.json").write_text(json.dumps(j, ensure_ascii=False, separators=(",", ":")) + "\n")


def sentencepiece():
    """BPE over characters with byte_fallback, as conversions of SentencePiece models are."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=1500, limit_alphabet=500, show_progress=False))
    j = json.loads(t.to_str())
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += [k for k, _ in sorted(j["model"]["vocab"].items(), key=lambda kv: kv[1])]
    j["model"] |= {"vocab": {k: i for i, k in enumerate(tokens)}, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    j["added_tokens"] = [added(i, tokens[i]) for i in range(3)] + [added(len(tokens), "<|im_end|>", rstrip=True), added(len(tokens) + 1, "<tool>", special=False, normalized=True)]
    j["pre_tokenizer"] = None
    j["post_processor"] = template(["<s>"], [], {"<s>": 1})
    j["decoder"] = json.loads(decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]).__getstate__())
    write("sentencepiece", j)


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    # Every character gets an entry, so those of small scripts only.
    few = [s for s in texts() if max(s) < "\u0600"]
    t.train_from_iterator(few, trainers.UnigramTrainer(vocab_size=1500, special_tokens=special, unk_token="<unk>", show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [added(i, s) for i, s in enumerate(special)]
    j["post_processor"] = template([], ["</s>"], {"</s>": 1})
    write("unigram", j)


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(texts(), trainers.WordPieceTrainer(vocab_size=1500, limit_alphabet=500, special_tokens=special, show_progress=False))
    j = json.loads(t.to_str())
    j["post_processor"] = template(["[CLS]"], ["[SEP]"], {"[CLS]": 2, "[SEP]": 3})
    write("wordpiece", j)


if __name__ == "__main__":
    sentencepiece()
    unigram()
    wordpiece()
