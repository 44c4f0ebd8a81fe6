"""Records what transformers makes of chat templates and the conversations of ../conversations/data.

    python chats.py [PATH...]

renders the templates below templates/ and those that it finds below each path, which are *.jinja files and the
chat_template of tokenizer_config.json files, and writes chats.json: for every template, by the SHA-256 of its source,
the digest of each text, or the error. Templates that chats.json has and this call does not see keep what they have. One
that is also below templates/ has its name there.

    python chats.py --show TEMPLATE CONVERSATION

prints one text instead.
"""

import datetime
import hashlib
import json
import os
import sys

import jinja2
import tokenizers
import transformers
import transformers.utils.chat_template_utils as chat

HERE = os.path.dirname(os.path.abspath(__file__))
BOS, EOS = "<s>", "</s>"
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9, 12345)


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat.datetime = Now


def read(name):
    with open(name, encoding="utf-8", newline="") as f:
        return f.read()


def conversations():
    folder = os.path.join(HERE, "..", "conversations", "data")
    for name in sorted(os.listdir(folder)):
        source = read(os.path.join(folder, name))
        yield name.removesuffix(".json"), hashlib.sha256(source.encode()).hexdigest(), json.loads(source)


def templates(path):
    """Gives (name, source) of every template of a file or below a folder."""
    if os.path.isdir(path):
        for entry in sorted(os.listdir(path)):
            if not os.path.islink(os.path.join(path, entry)):
                yield from templates(os.path.join(path, entry))
    elif path.endswith(".jinja"):
        yield os.path.basename(path), read(path)
    elif os.path.basename(path) == "tokenizer_config.json":
        name = os.path.basename(os.path.dirname(path).removesuffix(os.sep + "models"))
        found = json.loads(read(path)).get("chat_template")
        for each in found if isinstance(found, list) else [{"name": "", "template": found}]:
            if each["template"]:
                yield "/".join(filter(None, [name, each["name"]])), each["template"]


def render(tokenizer, source, c):
    """Gives (text, None) or (None, error)."""
    cont = c.get("continue_final_message", False)
    try:
        return tokenizer.apply_chat_template(
            c["messages"],
            tools=c.get("tools"),
            chat_template=source,
            add_generation_prompt=c.get("add_generation_prompt", not cont),
            continue_final_message=cont,
            tokenize=False,
            **c.get("context", {}),
        ), None
    except Exception as e:
        return None, type(e).__name__ + ": " + str(e).split("\n")[0]


def main():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, BOS: 1, EOS: 2}, unk_token="a"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token=BOS, eos_token=EOS)
    cases = list(conversations())
    if sys.argv[1:2] == ["--show"]:
        source = dict(templates(sys.argv[2])).popitem()[1]
        text, error = render(tokenizer, source, {name: c for name, _, c in cases}[sys.argv[3]])
        print(text if error is None else error)
        return
    path = os.path.join(HERE, "chats.json")
    golden = {"templates": {}}
    digests = {name: digest for name, digest, _ in cases}
    if os.path.exists(path):
        golden = json.loads(read(path))
        if golden["conversations"] != digests:
            golden["templates"] = {}  # recorded for other conversations
    golden |= {
        "provenance": f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}, chats.py",
        "now": NOW.isoformat(),
        "bos_token": BOS,
        "eos_token": EOS,
        "conversations": digests,
    }
    for folder in [*sys.argv[1:], os.path.join(HERE, "templates")]:
        for name, source in templates(folder):
            key = hashlib.sha256(source.encode()).hexdigest()
            results = {}
            for conversation, _, c in cases:
                text, error = render(tokenizer, source, c)
                results[conversation] = error if error else hashlib.sha256(text.encode()).hexdigest()[:16]
            golden["templates"][key] = {"name": name, "texts": results}
    golden["templates"] = dict(sorted(golden["templates"].items(), key=lambda t: (t[1]["name"], t[0])))
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        json.dump(golden, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
