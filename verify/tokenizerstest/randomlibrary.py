"""Runs jobs on the library tokenizers for random_test.go.

Reads one JSON object a line from standard input and answers with one JSON object a line:

    {"file": "...", "texts": ["..."], "ids": [[...]]}
    {"rows": [[ids, ids with special tokens, text of these, text of these without special tokens]], "decoded": [[text, text without special tokens]]}

file is a tokenizer.json, rows are those of texts, decoded those of ids. {"error": "..."} says why the file was not loaded, {"failed": "..."} in place
of a row or a text why the library did not get through.
"""
import json
import sys

import tokenizers


def attempt(f):
    try:
        return f()
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # the library's panics are no Exception
        return {"failed": str(e) or repr(e)}


def run(job):
    try:
        t = tokenizers.Tokenizer.from_str(job["file"])
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        return {"error": str(e) or repr(e)}
    # Both belong to how a model is used; a text must come out whole.
    t.no_truncation()
    t.no_padding()

    def row(text):
        special = t.encode(text, add_special_tokens=True).ids
        return [t.encode(text, add_special_tokens=False).ids, special, *decoded(special)]

    def decoded(ids):
        return [attempt(lambda: t.decode(ids, skip_special_tokens=skip)) for skip in (False, True)]

    return {"rows": [attempt(lambda: row(text)) for text in job["texts"]], "decoded": [decoded(ids) for ids in job["ids"]]}


def main():
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line)), separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
