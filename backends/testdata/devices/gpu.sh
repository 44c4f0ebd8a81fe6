#!/bin/bash
# Packs what a machine with a real GPU needs to compare packages on it with our CPU logits: that machine needs Python with numpy and its driver.
#
#   gpu.sh PROGRAM SITE PLUGINS OUT      then carry OUT there and run OUT/run.sh, which prints a table
#
# PROGRAM is llmexport. SITE has the wheel of the engine, unpacked, for the Python of that machine; PLUGINS the libraries of the same release that
# build.sh made, the Vulkan one with GLSLANG set. CUDA is a folder with what its commands source and cutlass write, from which that machine builds the
# backend for CUDA, if it has nvcc and PLUGINS lacks it. FAMILIES are checkpoints for packages of 16 bits, QUANTIZED those for 4 and 8 bits, too, PACKED
# those for the C4 form, BOUNDED those for a bounded context. BACKENDS is target.backends of packages without such a bound, as in '[cpu, cuda]'.
# DEBS is a folder of packages with the loaders of Vulkan and OpenCL, if that machine has none.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); root=$(cd "$here/../../.." && pwd)
program=$(realpath "$1"); site=$2; plugins=$3; mkdir -p "$4"
families=${FAMILIES:-llama gpt2 mistral phi3 gemma2 gemma3_text qwen3_moe mixtral deepseek_v3 gpt_oss lfm2 bamba qwen3_5_text qwen3_next}
quantized=${QUANTIZED:-llama gemma3_text qwen3_moe lfm2 qwen3_5_text}
packed=${PACKED-llama gemma3_text qwen3_moe}; bounded=${BOUNDED-mistral gemma2 gpt_oss}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; out=$work/kit
mkdir -p "$out/packages" "$out/site" "$out/debs"
cp -r "$site"/_mnncengine*.so "$site"/MNN "$site"/*.libs "$out/site/"; cp "$here"/{logits.py,gpu.py,build.sh} "$out/"
find "$plugins" -maxdepth 1 -name 'libMNN_*.so' -exec cp {} "$out/" \;
basename "$site"/mnn-*.dist-info .dist-info >"$out/release"
[ -z "${CUDA:-}" ] || (cd "$CUDA" && find . -name '*.h' -o -name '*.hpp' -o -name '*.cuh' -o -name '*.inl' -o -path './source/backend/cuda/*' -type f -a -not -path '*/plugin/*' | tar -cf - -T -) | (mkdir "$out/cuda"; tar -C "$out/cuda" -xf -)
[ -z "${DEBS:-}" ] || cp "$DEBS"/*.deb "$out/debs/"
go build -C "$root" -o "$work/logits" ./internal/logits

add() { # NAME CHECKPOINT OPTIONS...
  local name=$1 checkpoint=$2; shift 2
  printf 'version: 1\nname: %s\nmodel: {path: %s}\nquantize: {method: rtn, block: auto}\npublish: [{dir: %s}]\n' "$name" "$checkpoint" "$out/packages/$name" >"$work/recipe.yaml"
  "$program" run "$work/recipe.yaml" --no-verify --progress none --log-level error --set 'target.engine="3.5"' ${BACKENDS:+--set "target.backends=$BACKENDS"} "$@" >/dev/null
  python3 - "$name" "$checkpoint/config.json" >"$out/packages/$name.json" <<'P'
import json, random, sys
r, config = random.Random(sys.argv[1]), json.load(open(sys.argv[2])); n = config.get("text_config", config)["vocab_size"]
print(json.dumps([[r.randrange(n) for _ in range(96)]]))
P
  "$work/logits" "$out/packages/$name" "$out/packages/$name.json" "$out/packages/$name.npy"
  "$program" devices --json "$out/packages/$name" >"$out/packages/$name.devices.json"
}
for f in $families; do add "$f-16" "$root/pipeline/arch/testdata/$f" --set quantize.bits=16; done
for f in $quantized; do for bits in 4 8; do add "$f-$bits" "$root/pipeline/arch/testdata/$f" --set quantize.bits=$bits; done; done
for f in $packed; do add "$f-16-c4" "$root/pipeline/arch/testdata/$f" --set quantize.bits=16 --set 'target.engine="3.6.1"' --set target.form=c4; done
for f in $bounded; do add "$f-16-bounded" "$root/pipeline/arch/testdata/$f" --set quantize.bits=16 --set 'target.engine="3.6.1"' --set 'target.backends=[cpu, opencl, cuda]' --set target.context=128; done
for bits in 2 3 5 6; do add "llama-$bits" "$root/pipeline/arch/testdata/llama" --set quantize.bits=$bits; done
for bits in 2 3 4 5 8; do add "llama-$bits-symmetric" "$root/pipeline/arch/testdata/llama" --set quantize.bits=$bits --set quantize.symmetric=true; done
for bits in 4 8; do add "tiny-$bits" "$root/testdata/tiny-qwen3" --set quantize.bits=$bits; done
rm -rf "$out/.llmexport"
tar -C "$out" -cJf "$4/kit.tar.xz" .
cat >"$4/run.sh" <<'R'
#!/bin/bash
# Unpacks the kit, builds the backend for CUDA if its sources are there, and prints the table; loaders come to / where there are none. Arguments are those of gpu.py.
set -e
here=$(cd "$(dirname "$0")" && pwd); work=${KIT:-/tmp/kit}; mkdir -p "$work"; python3 -m tarfile -e "$here/kit.tar.xz" "$work"
if [ -d "$work/cuda" ]; then bash "$work/build.sh" cuda "$work/cuda" "$work/site" "$work/build" >"$work/build.log" 2>&1 && cp "$work/build/libMNN_Cuda.so" "$work/" || tail -30 "$work/build.log"; fi
for l in vulkan OpenCL; do ldconfig -p | grep -q "lib$l.so.1" || for f in "$work"/debs/*; do dpkg -x "$f" /; done; done; ldconfig
n=/usr/local/nvidia; [ -f $n/share/vulkan/icd.d/nvidia_icd.json ] && export VK_ICD_FILENAMES=${VK_ICD_FILENAMES:-$n/share/vulkan/icd.d/nvidia_icd.json}
# The engine opens libvulkan.so, which only packages for developers have.
one=$(ldconfig -p | awk '/libvulkan.so.1 / {print $NF; exit}')
[ -z "$one" ] || { mkdir -p "$work/lib"; ln -sf "$one" "$work/lib/libvulkan.so"; export LD_LIBRARY_PATH=$work/lib:${LD_LIBRARY_PATH:-}; }
# Other platforms of OpenCL, such as pocl, stay out of it.
lib=$(ls $n/lib64/libnvidia-opencl.so.1 /usr/lib/x86_64-linux-gnu/libnvidia-opencl.so.1 2>/dev/null | head -1 || true)
[ -z "$lib" ] || { mkdir -p "$work/icd"; echo "$lib" >"$work/icd/nvidia.icd"; export OCL_ICD_VENDORS=$work/icd OCL_ICD_FILENAMES=$lib; }
cd "$work" && PYTHONPATH=$work/site exec python3 gpu.py "$@"
R
chmod +x "$4/run.sh"; ls -l "$4"
