#!/bin/bash
# Measures packages on the engine's backends, compares the rules with the results, and writes these into the recorded table; see `make devices`. A part that
# cannot be had is skipped in one line, and the rest is done; with nothing left the recorded table is compared. BIN, VENVS, DIR, ENGINES, MNN_SOURCE,
# CUTLASS_SOURCE, ON, CELLS, FAMILIES and ODD come from the Makefile, SEED and PARTS from the environment.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); root=$(cd "$here/../../.." && pwd); mkdir -p "$DIR"; DIR=$(realpath "$DIR"); BIN=$(realpath "$BIN"); mkdir -p "$VENVS"; VENVS=$(realpath "$VENVS")
skip() { echo "devices: skipped: $1"; }
without() { local x; for x in $ON; do [ "$x" = "$1" ] || printf '%s ' "$x"; done; }

declare -A need=(
  [opencl]="g++ xxd ocl-icd-libopencl1 ocl-icd-opencl-dev pocl-opencl-icd"
  [vulkan]="g++ glslang-tools spirv-tools xxd libvulkan-dev mesa-vulkan-drivers"
  [cuda]="g++"
  [arm64]="qemu-user-static"
)
case " $ON " in *" cuda "*) nvidia-smi -L >/dev/null 2>&1 || { skip "cuda: no card of NVIDIA"; ON=$(without cuda); };; esac
missing() { local p; for p in "$@"; do dpkg -s "$p" >/dev/null 2>&1 || printf '%s ' "$p"; done; }
lacks=$(for b in $ON; do missing ${need[$b]}; done | xargs -n 1 | sort -u | xargs)
why="not root"
if [ -n "$lacks" ] && [ "$(id -u)" = 0 ]; then
  why="see $DIR/apt.log"; (apt-get update -q; DEBIAN_FRONTEND=noninteractive apt-get install -y -q $lacks) >"$DIR/apt.log" 2>&1 || true
fi
for b in $ON; do
  lacks=$(missing ${need[$b]}); [ -z "$lacks" ] || { skip "$b: packages cannot be installed ($why): $lacks"; ON=$(without "$b"); }
done

fetch() { # URL MIRROR TAG: into the git repository MIRROR, unless URL is one on this machine; prints which
  [ -d "$1" ] && { echo "$1"; return; }
  [ -d "$2" ] || git init -q --bare "$2"
  git -C "$2" rev-parse -q --verify "refs/tags/$3" >/dev/null || timeout 600 git -C "$2" fetch -q --depth 1 "$1" "refs/tags/$3:refs/tags/$3" 2>>"$DIR/git.log" || return
  echo "$2"
}
build() { # BACKEND ENGINE LIBRARY
  local src=$DIR/src-$2 out=$DIR/plugins/$2 mirror; mkdir -p "$out"
  [ ! -f "$out/$3" ] || { ready=1; return 0; }
  if [ ! -d "$src" ]; then
    mirror=$(fetch "$MNN_SOURCE" "$DIR/mnn.git" "$2") || { skip "$1 $2: the sources of MNN $2 cannot be fetched, see $DIR/git.log"; return; }
    rm -rf "$src.part"; bash "$here/build.sh" source "$mirror" "$2" "$src.part"; mv "$src.part" "$src"
  fi
  if [ "$1" = cuda ]; then
    mirror=$(fetch "$CUTLASS_SOURCE" "$DIR/cutlass.git" v4.0.0) || { skip "cuda $2: the sources of CUTLASS cannot be fetched, see $DIR/git.log"; return; }
    bash "$here/build.sh" cutlass "$mirror" "$src"
    command -v nvcc >/dev/null || bash "$here/build.sh" nvcc "$src" || { skip "cuda $2: NVIDIA's compiler cannot be installed"; return; }
    CUDA_ARCH=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .); export CUDA_ARCH
  fi
  bash "$here/build.sh" "$1" "$src" "$(ls -d "$VENVS/mnn-$2"/lib/python3*/site-packages)" "$DIR/build-$1-$2" >"$DIR/build-$1-$2.log" 2>&1 ||
    { skip "$1 $2: the backend cannot be built, see $DIR/build-$1-$2.log"; return; }
  cp "$DIR/build-$1-$2/$3" "$out/"; ready=1
}
ready=
for e in $ENGINES; do
  if [ ! -f "$VENVS/mnn-$e/installed" ]; then skip "the wheel of MNN $e cannot be installed"; ENGINES=$(for x in $ENGINES; do [ "$x" = "$e" ] || echo "$x"; done | xargs); continue; fi
  for b in $ON; do
    case $b in
    opencl) build opencl "$e" libMNN_CL.so;;
    vulkan) build vulkan "$e" libMNN_Vulkan.so;;
    cuda) build cuda "$e" libMNN_Cuda.so;;
    arm64) bash "$here/build.sh" arm64 "$e" "$DIR/arm64" >"$DIR/arm64-$e.log" 2>&1 && ready=1 || skip "arm64 $e: the wheel cannot be had, see $DIR/arm64-$e.log";;
    esac
  done
done
if [ -z "$ready" ]; then skip "everything; comparing the recorded table"; cd "$root"; go test ./backends -run TestMeasured -count 1; exit 0; fi

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
python3 "$here/measure.py" --program "$BIN" --venvs "$VENVS" --plugins "$DIR/plugins" --arm64 "$DIR/arm64" --out "$DIR/measured.jsonl" --engines "${ENGINES// /,}" \
  --backends "$(echo $ON | tr ' ' ,)" --cells "$CELLS" --seed "${SEED:-1}" ${PARTS:+--parts "$PARTS"} "$DIR"/packages/*
cd "$root" && LLMEXPORT_DEVICES="$DIR/measured.jsonl" go test ./backends -run TestMeasured -count 1 -v
# Only results that the rules agree with go into the table: others are a rule to write.
table=backends/testdata/devices/measured.json; prefix=today-; [ -z "${PARTS:-}" ] || prefix=three-
python3 "$here/append.py" "$table" "$prefix" "$DIR/measured.jsonl" >"$DIR/measured.json" && cp "$DIR/measured.json" "$table"
go test ./internal/depcheck -run 'TestDevicesDoc' -count 1 -update
