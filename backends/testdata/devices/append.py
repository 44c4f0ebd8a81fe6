"""Appends results of measure.py, or of gpu.py, to measured.json, whose rules TestMeasured holds to.

    append.py MEASURED.json PREFIX RUNS.jsonl... > NEW.json

A package is called PREFIX and its name in the runs, whose lines have its features. Runs that are there already are replaced.
"""
import json, sys

table, prefix = json.load(open(sys.argv[1])), sys.argv[2]
key = lambda c: (c["engine"], c.get("soc"), c["package"], c.get("precision"), c.get("memory"), c.get("attention_mode"))
cells = {}
for path in sys.argv[3:]:
    for line in open(path):
        r = json.loads(line)
        if not r["opts"]: continue
        name, own = prefix + r["pkg"], r.get("own", {})
        table["packages"][name] = r["features"]
        c = {"engine": r["engine"], "package": name, "precision": r["opts"]["precision"], "memory": r["opts"]["memory"]}
        if r.get("soc"): c["soc"] = r["soc"]
        for phase in ("prefill", "decode"):
            kl = own.get("kl_" + phase)
            if kl is not None and kl == kl: c[phase] = kl   # not NaN
        if r.get("not_finite"): c["not_finite"] = r["not_finite"]
        if "failed" in r: c["failed"] = True
        cells[key(c)] = c
recorded = [cells.pop(key(c), c) for c in table["cells"]]
dump = lambda x: json.dumps(x, ensure_ascii=False)
print('{"left_out": ' + dump(table["left_out"]) + ',\n"packages": {')
print(",\n".join(dump(n) + ": " + dump(table["packages"][n]) for n in sorted(table["packages"])))
print('},\n"cells": [')
print(",\n".join(map(dump, recorded + list(cells.values()))))
print("]}")
