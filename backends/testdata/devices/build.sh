#!/bin/bash
# Engines for measuring packages on devices other than an x86 CPU.
#
#   build.sh source MIRROR TAG DIR        the files needed of MNN's tag TAG, out of a git repository MIRROR, into DIR
#   build.sh opencl DIR SITE OUT          OUT/libMNN_CL.so: the OpenCL backend of DIR as a plug-in of the released wheel in SITE
#   build.sh vulkan DIR SITE OUT          OUT/libMNN_Vulkan.so: the same for Vulkan (buffer form: the one with Attention)
#   build.sh cutlass MIRROR DIR           the headers of CUTLASS that CUDA needs, out of a git repository MIRROR of NVIDIA/cutlass, into DIR
#   build.sh nvcc DIR                     NVIDIA's compiler, from its Python wheels, into DIR
#   build.sh cuda DIR SITE OUT            OUT/libMNN_Cuda.so: the same as opencl for CUDA; DIR has those headers, too
#   build.sh arm64 VERSION OUT            OUT/python: runs Python with the released aarch64 wheel VERSION under qemu-user
#
# DIR must be of the same tag as the wheel: the plug-in shares C++ classes with it. SITE is the site-packages folder with _mnncengine*.so
# (python3 -m venv V; V/bin/pip install MNN==3.6.1 numpy tokenizers). logits.py loads the plug-in and writes or compares logits.
#
# Debian 12 packages: g++ glslang-tools spirv-tools xxd ocl-icd-libopencl1 ocl-icd-opencl-dev pocl-opencl-icd libvulkan-dev mesa-vulkan-drivers;
# for arm64: qemu-user-static. CUDA takes NVCC, else nvcc of the PATH or of `build.sh nvcc DIR`, for cards of the compute capability CUDA_ARCH, on JOBS cores. GLSLANG names another glslangValidator: GPUs with cooperative matrices need one from 13 on. Takes one to two minutes of one core each.
#
# Why this works: the wheels are built without GPU backends but export MNN's classes, and a backend built as MNN_SEP_BUILD does (a shared
# library that registers itself when loaded) runs inside the unchanged released engine. The wheels use the old C++ string ABI.
set -e
here=$(cd "$(dirname "$0")" && pwd)
what=${1:?source, opencl, vulkan, cutlass, nvcc, cuda or arm64}
common="-std=c++14 -O${OPT:-0} -fPIC -fno-rtti -fno-exceptions -fvisibility=hidden -fvisibility-inlines-hidden -w -D_GLIBCXX_USE_CXX11_ABI=0 -DMNN_USE_THREAD_POOL -DMNN_SUPPORT_TRANSFORMER_FUSE -DMNN_LOW_MEMORY -DMNN_SUPPORT_QUANT_EXTEND -DMNN_SUPPORT_DEPRECATED_OPV2 -DMNN_USE_LIB_WRAPPER"

setup() { # DIR SITE OUT
  src=$(realpath "$1"); engine=$(ls "$(realpath "$2")"/_mnncengine*.so | head -1); out=$(realpath -m "$3"); o=$out/o
  rm -rf "$o"; mkdir -p "$o"
  common="$common -I$src/include -I$src/source -I$src/express -I$src/schema/current -I$src/3rd_party -I$src/3rd_party/flatbuffers/include -I$src/3rd_party/half -I$src/3rd_party/OpenCLHeaders"
}
unit() { # NAME: compiles $out/NAME.cpp
  nice -n 10 g++ $common $flags -c "$out/$1.cpp" -o "$o/$1.o"
}
finish() { # LIBRARY
  g++ -shared -o "$out/$1" "$o"/*.o $libs -ldl -lpthread
  nm -D --undefined-only -C "$out/$1" | sed 's/^ *U //' | grep -E '^MNN|^glsl' | sort -u > "$out/needs" || true
  nm -D --defined-only -C "$engine" | cut -c20- | sort -u > "$out/has"
  if comm -23 "$out/needs" "$out/has" | grep .; then echo "the wheel does not export the above: add its source file" >&2; exit 1; fi
  ls -l "$out/$1"
}

extract() { # MIRROR TAG DIR PATHS...
  python3 - "$@" <<'P'
import os, subprocess, sys   # blob by blob: a fetched snapshot can lack its largest files, and git archive stops at the first
r, ref, dst, *want = sys.argv[1:]
ls = subprocess.run(["git", "-C", r, "ls-tree", "-r", ref, "--"] + want, capture_output=True, text=True, check=True).stdout.splitlines()
p = subprocess.Popen(["git", "-C", r, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for l in ls:
    meta, path = l.split("\t"); p.stdin.write((meta.split()[2] + "\n").encode()); p.stdin.flush(); head = p.stdout.readline().split()
    if head[-1] == b"missing": print("not in the snapshot:", path); continue
    data = p.stdout.read(int(head[2])); p.stdout.read(1); f = os.path.join(dst, path); os.makedirs(os.path.dirname(f), exist_ok=True); open(f, "wb").write(data)
P
}

case $what in
source)
  extract "$2" "$3" "$4" include schema express 3rd_party/flatbuffers 3rd_party/half 3rd_party/OpenCLHeaders 3rd_party/rapidjson source transformers/llm/engine
  # a CPU implementation of OpenCL is a device too:
  sed -i 's/getDevices(CL_DEVICE_TYPE_GPU/getDevices(CL_DEVICE_TYPE_ALL/' "$4/source/backend/opencl/core/runtime/OpenCLRuntime.cpp"
  ;;

opencl)
  setup "$2" "$3" "$4"; b=$src/source/backend/opencl; c=$b/execution/cl
  # OPENCL_FALLBACK_LOG prints every op that the backend hands to the CPU
  flags="-DMNN_OPENCL_SEP_BUILD -DMNN_OPENCL_SVM_ENABLE -DMNN_SUPPORT_INTEL_SUBGROUP -DCL_HPP_TARGET_OPENCL_VERSION=110 -DOPENCL_FALLBACK_LOG -I$b/schema/current -I$c"
  [ -f "$c/opencl_source_map.hpp" ] || (cd "$c" && python3 opencl_codegen.py "$c/")
  grep -q 'pragma once' "$c/opencl_source_map.hpp" || sed -i '1i #pragma once' "$c/opencl_source_map.hpp"
  inc() { for f in "$@"; do [ -f "$f" ] && echo "#include \"$f\""; done; true; }
  inc "$b"/core/runtime/*.cpp "$b"/core/{BufferConvertor,BufferPool,ImageBufferConvertor,ImagePool,MmapPool,OpenCLBackend,OpenCLOPRegister}.cpp "$b"/execution/image/CommonExecution.cpp "$src"/source/core/MNNFileUtils.cpp > "$out/core.cpp"
  ls "$b"/execution/buffer/*.cpp | grep -v -E 'Deconv|GridSample|GroupNorm|Interp|Pool|SelfAttention|SplitGelu|InputTrans' | while read -r f; do inc "$f"; done > "$out/ops.cpp"
  inc "$b/core/OpenCLGemmTune.cpp" > "$out/tune.cpp"; inc "$b/core/OpenCLRunningUtils.cpp" > "$out/utils.cpp"   # these two depend on the order of their includes
  (echo "#include \"$c/opencl_source_map.hpp\""; for f in "$c"/*_mnn_cl.cpp; do sed '/#include "opencl_source_map.hpp"/d' "$f"; done) > "$out/kernels.cpp"
  for u in core ops tune utils kernels; do unit $u; done
  finish libMNN_CL.so
  ;;

vulkan)
  setup "$2" "$3" "$4"; b=$src/source/backend/vulkan
  flags="-I$b -I$b/include -I$b/component -I$b/runtime -I$b/schema/current -I$b/buffer/execution -I$b/buffer/backend -I$b/buffer -I$b/buffer/shaders"
  if [ ! -f "$b/buffer/compiler/AllShader.cpp" ]; then
    mkdir -p "$out/bin"
    cat > "$out/bin/glslangValidator" <<'E'
#!/bin/bash
# a shader that this compiler cannot compile (cooperative matrices, before glslang 13) becomes an empty one: devices without that extension never use it
glslang=${GLSLANG:-/usr/bin/glslangValidator}
"$glslang" "$@" && exit 0
echo "empty: $*"; printf '#version 450\nlayout(local_size_x=1) in;\nvoid main(){}\n' > "${@: -1}.comp"; "$glslang" -V "${@: -1}.comp" -o "${@: -1}"; rm -f "${@: -1}.comp"
E
    chmod +x "$out/bin/glslangValidator"
    (cd "$b/buffer/compiler" && PATH=$out/bin:$PATH nice -n 10 python3 makeshader.py > "$out/shaders.log" 2>&1)
  fi
  python3 - "$b/buffer/compiler/AllShader.cpp" "$out" <<'P'
import re, sys   # the arrays as an assembler file: compiling 9 MB of them as C++ takes minutes
src, out = open(sys.argv[1]).read(), sys.argv[2]
data, s, off = open(out + "/shaders.bin", "wb"), open(out + "/shaders.S", "w"), 0
s.write(".section .rodata\n")
for m in re.finditer(r"const unsigned char (\w+)\[\] = \{(.*?)\};\s*(?:const )?unsigned int (\w+) = (\d+);", src, re.S):
    b = bytes(int(x, 16) for x in m.group(2).replace("\n", "").replace(" ", "").split(",") if x); assert len(b) == int(m.group(4))
    pad = -off % 16; data.write(b"\0" * pad + b); off += pad
    s.write(f'.globl {m.group(1)}\n.hidden {m.group(1)}\n.balign 16\n{m.group(1)}: .incbin "{out}/shaders.bin",{off},{len(b)}\n.balign 4\n.globl {m.group(3)}\n.hidden {m.group(3)}\n{m.group(3)}: .long {len(b)}\n'); off += len(b)
s.write('.section .note.GNU-stack,"",@progbits\n')
P
  gcc -c "$out/shaders.S" -o "$o/shaders.o"
  for f in "$b"/component/*.cpp "$b"/runtime/*.cpp; do echo "#include \"$f\""; done > "$out/core.cpp"
  n=0; for f in "$b"/buffer/backend/*.cpp "$b"/buffer/execution/*.cpp; do case $f in *Deconv*|*GridSample*|*Interp*|*PRelu*|*Pool*|*ROI*|*Render*|*Texture*) continue;; esac
    n=$((n+1)); names="gResistor ConstBuffer GpuParam Param QuantMetaPrepareParams QuantWeightPrepareParams _alignUp4 _getShaderName _prepareQuantBuffersGPU _prepareQuantBuffers"   # each file has its own
    for v in $names; do echo "#define $v ${v}_$n"; done; echo "#include \"$f\""; for v in $names; do echo "#undef $v"; done; done > "$out/ops.cpp"
  echo "#include \"$b/buffer/compiler/VulkanShaderMap.cpp\"" > "$out/map.cpp"; echo "#include \"$src/source/core/MNNFileUtils.cpp\"" > "$out/files.cpp"
  for u in core ops map files; do unit $u; done
  finish libMNN_Vulkan.so
  ;;

cutlass) extract "$2" v4.0.0 "$3" include;;   # the release that CMakeLists.txt of the backend names

nvcc)
  [ -x "$2/nvidia/cu13/bin/nvcc" ] || python3 -m pip install -q --no-deps --target "$2" nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96
  ;;

cuda)
  setup "$2" "$3" "$4"; b=$src/source/backend/cuda
  nvcc=${NVCC:-$(command -v nvcc || echo "$src/nvidia/cu13/bin/nvcc")}; home=$(dirname "$(dirname "$(realpath "$nvcc")")")
  # Of cuSOLVER the backend uses nothing, of cuBLAS a handle that no kernel takes: their packages have 600 MB.
  mkdir -p "$out/empty"; echo '#pragma once' > "$out/empty/cusolverDn.h"
  cat > "$out/empty/cublas_v2.h" <<'E'
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef void *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0 };
inline cublasStatus_t cublasCreate(cublasHandle_t *h) { *h = nullptr; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
E
  # CUTLASS is C++17 and has exceptions.
  common=$(echo "$common" | sed 's/-std=c++14//; s/-fno-exceptions//; s/ -f[a-z-]*/ -Xcompiler&/g; s/-Xcompiler -f/-Xcompiler=-f/g')
  # Attention calls kernels of another file, which CUDA 13 keeps to it unless told otherwise.
  flags="-x cu -std=c++17 -static-global-template-stub=false -D_FORCE_INLINES -gencode arch=compute_${CUDA_ARCH:-90},code=sm_${CUDA_ARCH:-90} -I$out/empty -I$b -I$home/include"
  for n in 75 80 86 87 89; do flags="$flags -DMNN_CUDA_ENABLE_SM$n"; done
  # What was compiled before stays, as it takes half an hour of one core. Left out is what language models do not use: pictures, int8 tensors, bf16, and
  # the kernels of Stable Diffusion. The largest files come first.
  o=$out/objects; libs="-L$home/lib64 -L$home/lib -lcudart_static -lrt"; mkdir -p "$o"
  find "$b" -name '*.cu' -o -name '*.cpp' | grep -v -E '/(int8|bf16|plugin|render|compiler)/|GridSample|Interp|PoolExecution|PReLU' | xargs ls -S |
    nvcc=$nvcc flags="$common $flags" o=$o xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'f={}; t=$o/$(basename $f).o; [ $t -nt $f ] || { nice -n 10 $nvcc $flags -c $f -o $t.part && mv $t.part $t; }'
  finish libMNN_Cuda.so
  ;;

arm64)
  version=$2; out=$(realpath -m "$3"); mkdir -p "$out"/{lists/partial,debs,wheels}
  a="-oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists=$out/lists"
  if [ ! -x "$out/root/usr/bin/python3.11" ]; then
    apt-get $a update -q; (cd "$out/debs" && apt-get $a download -q python3.11-minimal libpython3.11-minimal libpython3.11-stdlib python3.11 libc6 libstdc++6 libgcc-s1 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libcrypt1 libgomp1)
    for f in "$out"/debs/*.deb; do dpkg -x "$f" "$out/root"; done
  fi
  pip download -q --no-deps --only-binary=:all: --python-version 3.11 --implementation cp --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 -d "$out/wheels" "MNN==$version" "numpy<2.4"
  mkdir -p "$out/site-$version"; for w in "$out"/wheels/mnn-$version-*.whl "$out"/wheels/numpy-*.whl; do python3 -m zipfile -e "$w" "$out/site-$version"; done
  cat > "$out/python-$version" <<E
#!/bin/bash
# CPU=max (fp16, sdot, i8mm), cortex-a76 (fp16, sdot), cortex-a72 (neither)
QEMU_LD_PREFIX=$out/root PYTHONHOME=$out/root/usr PYTHONPATH=$out/site-$version OPENBLAS_NUM_THREADS=1 exec nice -n 10 qemu-aarch64-static -cpu \${CPU:-max} $out/root/usr/bin/python3.11 "\$@"
E
  chmod +x "$out/python-$version"; "$out/python-$version" -c 'import platform, MNN.llm; print(platform.machine(), "ready")'
  ;;
esac
