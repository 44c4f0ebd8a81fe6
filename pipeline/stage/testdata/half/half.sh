#!/bin/bash
# Records the logits of the released engine in half precision on an emulated arm64, and compares the runtime with them; see `make half`. What
# cannot be had is skipped with a word, and what is checked in is compared instead. BIN, DIR and ENGINE come from the Makefile.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); root=$(cd "$here/../../../.." && pwd); mkdir -p "$DIR"; DIR=$(realpath "$DIR"); BIN=$(realpath "$BIN")
compare() { cd "$root" && LLMEXPORT_HALF=${1:-} go test ./pipeline/stage -run 'TestHalf$' -count 1 -timeout 30m; }
recorded() { echo "half: skipped: $1; comparing what is recorded instead"; compare; exit 0; }

command -v qemu-aarch64-static >/dev/null || recorded "the package qemu-user-static is missing"
bash "$root/backends/testdata/devices/build.sh" arm64 "$ENGINE" "$DIR/arm64" >"$DIR/arm64.log" 2>&1 ||
  recorded "the engine for arm64 cannot be had, see $DIR/arm64.log"
rm -rf "$DIR/packages"
"${PYTHON:-python3}" "$here/record.py" "$BIN" "$DIR/arm64/python-$ENGINE" "$DIR/packages" >"$DIR/recorded.json"
compare "$DIR/recorded.json"
