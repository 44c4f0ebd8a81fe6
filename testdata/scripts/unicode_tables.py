"""Writes runtime/tokenizer/parity/testdata/unicode.txt: the code points of every script and general category.

    python unicode_tables.py > ../../runtime/tokenizer/parity/testdata/unicode.txt

Go's own tables change with its releases, and those of today lack the newest scripts; the corpus must not change with
them. Needs the package regex (2026.11.15: Unicode 17).
"""
import regex
from regex import _regex_core

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(ALL)
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()


def ranges(pattern):
    out = []
    for m in regex.finditer(f"(?:{pattern})", TEXT):
        c = ord(m.group())
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def most(rs, n):
    """At most n ranges, spread over all."""
    return rs if len(rs) <= n else [rs[i * len(rs) // n] for i in range(n)]


def line(kind, name, rs):
    if rs:
        print(kind, name, ",".join(f"{a:x}-{b:x}" if b > a else f"{a:x}" for a, b in most(rs, 120)))


print(f"# Code points by script and general category, at most 120 ranges of each. Python package regex {regex.__version__}.")
names = {_regex_core.PROPERTIES["SCRIPT"][1][k] for k in _regex_core.PROPERTIES["SCRIPT"][1]}
by = {}
for name, value in _regex_core.PROPERTIES["SCRIPT"][1].items():
    by.setdefault(value, []).append(name)
for value in sorted(by, key=lambda v: max(by[v], key=len)):
    name = max(by[value], key=len)
    if name not in ("UNKNOWN", "COMMON", "INHERITED", "KATAKANAORHIRAGANA"):
        line("script", name.capitalize(), ranges(r"\p{Script=%s}" % name))
for c in CATEGORIES:
    line("category", c, ranges(r"\p{%s}" % c))
