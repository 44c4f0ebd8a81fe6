#!/bin/bash
# Measures packages on the engine's OpenCL and Vulkan backends and compares the rules with the results; see `make devices`. What cannot be had
# is skipped with a word, and the recorded table is compared instead. BIN, VENVS, DIR, ENGINES, MNN_SOURCE, FAMILIES and ODD come from
# the Makefile, SEED and PARTS from the environment.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); root=$(cd "$here/../../.." && pwd); mkdir -p "$DIR"; DIR=$(realpath "$DIR"); BIN=$(realpath "$BIN"); VENVS=$(realpath "$VENVS")
recorded() { echo "devices: skipped: $1; comparing the recorded table instead"; cd "$root"; go test ./backends -run TestMeasured -count 1; exit 0; }

need="g++ glslang-tools spirv-tools xxd ocl-icd-libopencl1 ocl-icd-opencl-dev pocl-opencl-icd libvulkan-dev mesa-vulkan-drivers"
if ! dpkg -s $need >/dev/null 2>&1; then
  [ "$(id -u)" = 0 ] || recorded "not root, and one of these packages is missing: $need"
  (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q $need) >"$DIR/apt.log" 2>&1 || recorded "apt-get failed, see $DIR/apt.log"
fi

mirror=$MNN_SOURCE
if [ ! -d "$mirror" ]; then
  mirror=$DIR/mnn.git
  [ -d "$mirror" ] || git init -q --bare "$mirror"
  for e in $ENGINES; do
    git -C "$mirror" rev-parse -q --verify "refs/tags/$e" >/dev/null || timeout 600 git -C "$mirror" fetch -q --depth 1 "$MNN_SOURCE" "refs/tags/$e:refs/tags/$e" || recorded "the sources of MNN $e cannot be fetched"
  done
fi
for e in $ENGINES; do
  out=$DIR/plugins/$e; mkdir -p "$out"
  if [ ! -f "$out/libMNN_CL.so" ] || [ ! -f "$out/libMNN_Vulkan.so" ]; then
    site=$(ls -d "$VENVS/mnn-$e"/lib/python3*/site-packages)
    rm -rf "$DIR/src-$e"; bash "$here/build.sh" source "$mirror" "$e" "$DIR/src-$e"
    for b in opencl vulkan; do bash "$here/build.sh" $b "$DIR/src-$e" "$site" "$DIR/build-$b-$e" >"$DIR/build-$b-$e.log" 2>&1; done
    cp "$DIR/build-opencl-$e/libMNN_CL.so" "$DIR/build-vulkan-$e/libMNN_Vulkan.so" "$out/"
  fi
done

make() { # NAME CHECKPOINT OPTIONS...: a package that is not verified, because random weights predict no text
  [ -d "$DIR/packages/$1" ] && return
  local name=$1 checkpoint=$2; shift 2; mkdir -p "$DIR/recipes"
  printf 'version: 1\nname: %s\nmodel: {path: %s}\nquantize: {method: rtn}\npublish: [{dir: %s}]\n' "$name" "$checkpoint" "$DIR/packages/$name" >"$DIR/recipes/$name.yaml"
  "$BIN" run "$DIR/recipes/$name.yaml" --no-verify --progress none --log-level error --set 'target.engine="3.5"' "$@" >/dev/null
}
rm -rf "$DIR/packages"
[ "$FAMILIES" = all ] && FAMILIES=$(cd "$root/pipeline/arch/testdata" && for d in */; do if [ -f "$d/golden.safetensors" ]; then echo "${d%/}"; fi; done)
for f in $FAMILIES; do make "$f-16" "$root/pipeline/arch/testdata/$f" --set quantize.bits=16; done
for bits in 2 3 4 5 6 8; do for symmetric in true false; do make "tiny-$bits-$symmetric" "$root/testdata/tiny-qwen3" --set quantize.bits=$bits --set quantize.symmetric=$symmetric; done; done
if [ -n "$ODD" ]; then
  [ "$ODD" = all ] && ODD=
  "$VENVS/transformers/bin/python" -B "$here/odd.py" "$DIR/odd" $ODD --seed "${SEED:-1}"
  for f in ${ODD:-$(ls "$DIR/odd")}; do make "$f-16" "$DIR/odd/$f" --set quantize.bits=16; done
  for f in llama-96:32 llama-128:128; do
    [ -d "$DIR/packages/${f%:*}-16" ] || continue
    for bits in 2 3 4 5 6 8; do for symmetric in true false; do
      make "${f%:*}-$bits-$symmetric" "$DIR/odd/${f%:*}" --set quantize.bits=$bits --set quantize.symmetric=$symmetric --set quantize.block=${f#*:}
    done; done
  done
fi

rm -f "$DIR/measured.jsonl"
python3 "$here/measure.py" --program "$BIN" --venvs "$VENVS" --plugins "$DIR/plugins" --out "$DIR/measured.jsonl" --engines "${ENGINES// /,}" --seed "${SEED:-1}" ${PARTS:+--parts "$PARTS"} "$DIR"/packages/*
cd "$root" && LLMEXPORT_DEVICES="$DIR/measured.jsonl" go test ./backends -run TestMeasured -count 1 -v
