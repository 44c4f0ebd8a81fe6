"""Writes testdata/vocabularies.json: what the libraries sentencepiece and tiktoken give for published vocabularies.

    python vocabularies.py DIR      DIR holds the files of the Python package mistral_common, below any directories

Each entry is the SHA-256 of the ids of all texts, in decimal, joined by commas, each text ended by a line feed. Needs
sentencepiece, and tiktoken for tekken files; entries that cannot be made are kept.
"""
import base64
import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
texts = json.loads((HERE / "../../runtime/tokenizer/testdata/sentencepiece/goldens.json").read_text())["texts"]
out = HERE / "testdata/vocabularies.json"
done = json.loads(out.read_text()) if out.exists() else {}
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    shift = 0
    if ".model.v" in path.name and not path.name.endswith("m1"):
        try:
            import sentencepiece
        except ImportError:
            continue
        encode = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode
    elif path.name.startswith("tekken_"):
        try:
            import tiktoken
        except ImportError:
            continue
        file = json.loads(path.read_text())
        shift = file["config"]["default_num_special_tokens"]
        vocab = file["vocab"][: file["config"]["default_vocab_size"] - shift]
        ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in vocab}
        encode = tiktoken.Encoding(path.name, pat_str=file["config"]["pattern"], mergeable_ranks=ranks, special_tokens={}).encode_ordinary
    else:
        continue
    h = hashlib.sha256()
    for text in texts:
        h.update((",".join(str(i + shift) for i in encode(text)) + "\n").encode())
    done[path.name] = h.hexdigest()
out.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
