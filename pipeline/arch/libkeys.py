"""Records what the classes of transformers say about the keys of config.json, for libkeys.txt beside this file:

    .venv/transformers/bin/python pipeline/arch/libkeys.py > pipeline/arch/libkeys.txt

The first line names the version. "read" lists the keys that the library knows: keys that its sources read from a
configuration, of whatever model, and those that a class of configurations declares. "type" lines follow, one for every type
of language models: its max_position_embeddings where the file has none ("-" if the class has no number), and the keys whose
value may not be null, which was tried one by one.
"""
import ast
import importlib.metadata
import logging
import os
import pathlib
import re
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

PINNED = {"transformers": "5.23.0", "huggingface_hub": "2.4.0"}

KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the configuration of a model is called where it is read; those of generation and quantization are others.
CONFIG = re.compile(r"(^|_)(config|cfg|configuration)$|^config_")
OTHER = re.compile(r"generation|quant")


def last_name(node):
    """The name that an expression ends with: config of self.config, of config.get_text_config() and of config[0]."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return "config" if "config" in last_name(node.func) else ""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return ""


def text(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


class Reads(ast.NodeVisitor):
    """Collects the keys that a module reads from a configuration; of a module of configurations also what they declare,
    take from their arguments, and loop over."""

    def __init__(self, configuration):
        self.keys, self.configuration = set(), configuration

    def owner(self, node):
        name = last_name(node)
        return bool(CONFIG.search(name)) and not OTHER.search(name) or self.configuration and name in ("self", "kwargs")

    def visit_Attribute(self, node):
        if self.owner(node.value) and isinstance(node.ctx, ast.Load):
            self.keys.add(node.attr)
        self.generic_visit(node)

    def visit_Subscript(self, node):
        if self.owner(node.value):
            self.keys.add(text(node.slice))
        self.generic_visit(node)

    def visit_Call(self, node):
        name = last_name(node.func)
        if name in ("getattr", "hasattr") and len(node.args) > 1 and self.owner(node.args[0]):
            self.keys.add(text(node.args[1]))
        elif name in ("get", "pop", "setdefault") and isinstance(node.func, ast.Attribute) and node.args and self.owner(node.func.value):
            self.keys.add(text(node.args[0]))
        self.generic_visit(node)

    def visit_Compare(self, node):  # "x" in kwargs
        if any(self.owner(c) for c in node.comparators):
            self.keys.add(text(node.left))
        self.generic_visit(node)

    def visit_ClassDef(self, node):
        if self.configuration:
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    self.keys.add(item.target.id)
                if isinstance(item, ast.FunctionDef) and item.name in ("__init__", "__post_init__"):
                    self.keys.update(a.arg for a in item.args.args + item.args.kwonlyargs)
        self.generic_visit(node)

    def visit_Assign(self, node):  # attribute_map = {"hidden_size": "n_embd"}: both are read
        if any(last_name(t) == "attribute_map" for t in node.targets) and isinstance(node.value, ast.Dict):
            self.keys.update(map(text, node.value.keys + node.value.values))
        self.generic_visit(node)

    def visit_For(self, node):  # for name in ("a", "b"): getattr(config, name)
        self.words(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node):
        self.words(node.iter)
        self.generic_visit(node)

    def words(self, node):
        if self.configuration and isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            self.keys.update(map(text, node.elts))


def read_keys(root):
    """Modules that begin with modular_ are sources of others, which are read."""
    keys = set()
    for path in sorted(root.rglob("*.py")):
        if not path.name.startswith("modular_"):
            reads = Reads(path.name.startswith("configuration_"))
            reads.visit(ast.parse(path.read_text(encoding="utf-8")))
            keys |= reads.keys
    import transformers
    methods = {k for k in dir(transformers.PreTrainedConfig) if callable(getattr(transformers.PreTrainedConfig, k, None))}
    return sorted(k for k in keys if k and KEY.fullmatch(k) and k not in methods and not k.startswith("__"))


def types():
    """The types of language models and of those that have one within."""
    from transformers.models.auto import modeling_auto as m
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    names = set(m.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) | set(m.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    for name in sorted(names):
        try:
            inner = CONFIG_MAPPING[name].sub_configs.get("text_config")
        except Exception:
            continue
        names.add(getattr(inner, "model_type", ""))
    return sorted(n for n in names if n in CONFIG_MAPPING)


def not_null(cls, key):
    """Whether the type of a field forbids null; what else may be wrong depends on the other keys."""
    from huggingface_hub.errors import StrictDataclassFieldValidationError

    try:
        cls.from_dict({key: None})
    except StrictDataclassFieldValidationError:
        return True
    except Exception:
        pass
    return False


def main():
    for package, version in PINNED.items():
        if (have := importlib.metadata.version(package)) != version:
            sys.exit(f"{package} is {have}, want {version}")
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    logging.disable(logging.WARNING)
    print("transformers", PINNED["transformers"])
    print("read", *read_keys(pathlib.Path(transformers.__file__).parent))
    for name in types():
        cls = CONFIG_MAPPING[name]
        try:
            default = cls()
        except Exception:
            continue
        positions = getattr(default, "max_position_embeddings", None)
        keys = (set(default.to_dict()) | set(getattr(cls, "__dataclass_fields__", ())) | set(cls.attribute_map)) - {"attribute_map"}
        refuses = sorted(k for k in keys if not k.startswith("_") and not_null(cls, k))
        print("type", name, positions if isinstance(positions, int) else "-", *refuses)


if __name__ == "__main__":
    main()
