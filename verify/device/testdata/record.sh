#!/bin/bash
# Records what the programs of a release print: record.sh RELEASE DIR PACKAGE, where DIR is that of engine.sh and PACKAGE the
# package of recipes/demo.yaml.
set -euo pipefail
release=$1 dir=$(cd "$2" && pwd) package=$(cd "$3" && pwd) here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
ln -s "$package" pkg; mkdir text; head -c 1500 "$here/../../text.txt" > text/prompt.txt
printf 'Fellow-Citizens of the Senate and of the House\n' > prompt.txt
python3 - pkg/config.json > shipped.json <<'P'
import json, sys
print(json.dumps(json.load(open(sys.argv[1])) | {"base_dir": "pkg/", "use_template": False, "sampler_type": "greedy"}))
P
run() { qemu-aarch64 -L "$dir/root" -E LD_LIBRARY_PATH="$dir/$release" "$dir/$release/$@"; }
run llm_demo shipped.json prompt.txt 24 > "$here/demo-$release.txt"
run ppl_eval shipped.json text > "$here/ppl-$release.txt"
run llm_demo nothing.json prompt.txt 24 > "$here/init-$release.txt"
