#!/bin/bash
# Builds mnn.c with the kernels of MNN 3.6.1: mnn.sh SOURCE OUT. SOURCE is the address or directory of MNN's git repository. It needs git
# and the cross compiler aarch64-linux-gnu-gcc.
set -euo pipefail
command -v aarch64-linux-gnu-gcc >/dev/null || { echo "mnn.sh: there is no aarch64-linux-gnu-gcc" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd) repository=$1 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -d "$repository" ]; then
  git clone -q --bare --depth 1 --filter=blob:none --branch 3.6.1 "$1" "$work/mnn.git"; repository=$work/mnn.git
fi
arm=source/backend/cpu/arm low=arm64/low_memory
files=(MNNAsmGlobal.h arm64/MNNPackedMatMul.S arm64/MNNPackedMatMulRemain.S)
for kind in ARMV86 ARMV82 16x4; do files+=("arm64/MNNGemmInt8AddBiasScale_${kind}_Unit.S" "$low/MNNGemmInt8AddBiasScale_${kind}_w4_Unit.S"); done
for f in "${files[@]}"; do git -C "$repository" cat-file blob "3.6.1:$arm/$f" > "$work/$(basename "$f")"; done
aarch64-linux-gnu-gcc -static -O1 -w -march=armv8.6-a -I"$work" -o "$2" "$here/mnn.c" "$work"/*.S
