"""Records what AutoTokenizer of transformers makes of repositories with other vocabularies than tokenizer.json.

    python autotokenizer.py          needs transformers; writes autotokenizer.json

The models are those that make.py trains; the other files of a repository are in the result.
"""
import json
import os
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = {"tokenizer_class": "LlamaTokenizer"}


def token(content, **settings):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **settings}


CASES = {
    "llama legacy": ("bpe", "llama", {**LLAMA, "add_bos_token": True, "legacy": True}, {}),
    "llama": ("bpe", "llama", LLAMA, {}),
    "llama fast": ("bpe", "llama", {"tokenizer_class": "LlamaTokenizerFast", "legacy": False, "add_bos_token": True, "add_eos_token": True}, {}),
    "no prefix": ("bpe", "llama", {**LLAMA, "add_prefix_space": False, "add_eos_token": True, "additional_special_tokens": ["<x>", "<y>"],
                                   "pad_token": "<pad>"}, {}),
    "added tokens decoder": ("bpe", "llama", {**LLAMA, "added_tokens_decoder": {
        "0": token("<unk>", normalized=True), "530": token("<z>", lstrip=True, normalized=True, special=False)}}, {}),
    "unigram as llama": ("unigram", "llama", LLAMA, {}),
    "added_tokens.json": ("bpe", "llama", LLAMA, {"added_tokens.json": {"<q>": 520, "<r>": 521}, "special_tokens_map.json": {
        "pad_token": "<q>", "bos_token": {"content": "<s>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}}}),
    "mistral": ("bpe", "mistral", {**LLAMA, "add_bos_token": True, "legacy": True}, {}),
    "no class": ("bpe_rules", "mistral", None, {}),
    "unigram": ("unigram", "llama", {"tokenizer_class": "PreTrainedTokenizerFast"}, {}),
    "internlm2": ("bpe_symbols", "internlm2", {"tokenizer_class": "InternLM2Tokenizer", "add_bos_token": True,
                                              "auto_map": {"AutoTokenizer": ["tokenization_internlm2.InternLM2Tokenizer", None]}}, {}),
    "gemma": ("bpe_bare", "gemma", {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True}, {}),
    "phi3": ("bpe", "phi3", {**LLAMA, "add_bos_token": True, "legacy": False}, {}),
    "unknown class": ("bpe", "foo", {"tokenizer_class": "FooTokenizer"}, {}),
    "null token": ("bpe", "llama", {**LLAMA, "bos_token": None, "add_bos_token": True}, {}),
}

with open(os.path.join(HERE, "goldens.json"), encoding="utf-8") as f:
    texts = json.load(f)["texts"][::3]
texts += ["a <s> b</s> <x>c <user> d <z>  e <q><r> <mask>", "<s>", " <z> x", "<unk>a"]
out = {"provenance": "transformers " + transformers.__version__, "texts": texts, "cases": []}
for name, (model, model_type, config, files) in CASES.items():
    files = {**files, "config.json": {"model_type": model_type}}
    if config is not None:
        files["tokenizer_config.json"] = config
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(os.path.join(HERE, model + ".model"), os.path.join(d, "tokenizer.model"))
        for file, content in files.items():
            with open(os.path.join(d, file), "w", encoding="utf-8") as f:
                json.dump(content, f)
        auto = transformers.AutoTokenizer.from_pretrained(d)
        added = [[t["id"], t["content"], t["special"]] for t in json.loads(auto.backend_tokenizer.to_str())["added_tokens"]]
        out["cases"].append({"name": name, "model": model, "files": files, "class": type(auto).__name__, "added": added,
                             "ids": [auto(text).input_ids for text in texts]})
with open(os.path.join(HERE, "autotokenizer.json"), "w", encoding="utf-8") as f:
    json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
    f.write("\n")
