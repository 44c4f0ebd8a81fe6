#!/bin/bash
# Builds the programs llm_demo and ppl_eval of a release of MNN for aarch64 Linux against the library of the released Python
# wheel, which exports the classes of the engine. So the engine is the stock one, and only two small files are compiled.
#
#   engine.sh RELEASE DIR SOURCE
#
# DIR/RELEASE gets the programs and libraries, DIR/root is the root for qemu-aarch64 -L. SOURCE is the address or directory of
# MNN's git repository. It needs git, pip, python3, and a cross compiler: an installed aarch64-linux-gnu-g++, or the packages of
# Debian 12, which are unpacked into DIR. record.sh records the outputs in this folder.
set -euo pipefail
release=$1 source=$3
mkdir -p "$2"; dir=$(cd "$2" && pwd); out=$dir/$release
[ -f "$out/built" ] && exit
rm -rf "$out"; mkdir -p "$out"; work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

if command -v aarch64-linux-gnu-g++ >/dev/null && [ -d /usr/aarch64-linux-gnu/lib ]; then
  ln -sfn /usr/aarch64-linux-gnu "$dir/root"; cxx=(aarch64-linux-gnu-g++); nm=aarch64-linux-gnu-nm
else
  cross=$dir/cross
  if [ ! -f "$cross/unpacked" ]; then
    rm -rf "$cross"; mkdir -p "$cross/debs"
    (cd "$cross/debs" && apt-get download -q binutils-aarch64-linux-gnu {g++,gcc,cpp}-12-aarch64-linux-gnu gcc-12-cross-base gcc-12-aarch64-linux-gnu-base \
      libc6{,-dev}-arm64-cross libstdc++{-12-dev,6}-arm64-cross libgcc-{12-dev,s1}-arm64-cross libgomp1-arm64-cross linux-libc-dev-arm64-cross >/dev/null 2>&1)
    for deb in "$cross"/debs/*.deb; do dpkg -x "$deb" "$cross"; done
    # the linker script has absolute names; with = they are relative to --sysroot
    sed -i 's#/usr/aarch64-linux-gnu/#=&#g' "$cross/usr/aarch64-linux-gnu/lib/libc.so"
    touch "$cross/unpacked"
  fi
  ln -sfn cross/usr/aarch64-linux-gnu "$dir/root"
  export PATH=$cross/usr/bin:$PATH LD_LIBRARY_PATH=$cross/usr/lib/x86_64-linux-gnu
  cxx=(aarch64-linux-gnu-g++-12 "--sysroot=$cross" -isystem "$cross/usr/aarch64-linux-gnu/include/c++/12"); nm=aarch64-linux-gnu-nm
fi

env -u LD_LIBRARY_PATH python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.11 --implementation cp --platform manylinux2014_aarch64 \
  --platform manylinux_2_17_aarch64 -d "$work" "MNN==$release"
env -u LD_LIBRARY_PATH python3 -m zipfile -e "$work"/*.whl "$work/wheel"
cp "$work"/wheel/_mnncengine*.so "$out/libMNN.so"; cp "$work"/wheel/mnn.libs/*.so* "$out/"

repository=$source
if [ ! -d "$source" ]; then
  repository=$work/mnn.git; git clone -q --bare --depth 1 --filter=blob:none --branch "$release" "$source" "$repository"
fi
llm=transformers/llm/engine
git -C "$repository" archive "$release" include 3rd_party/rapidjson tools/audio/include $llm/include $llm/src $llm/demo $llm/tools | tar -x -C "$work"

# The library is a module of Python. Its symbols must exist when it is loaded; the programs do not call them.
"$nm" -D --undefined-only "$out/libMNN.so" | awk '$2 ~ /^_?Py/ {print ".globl " $2 "\n" $2 ": .space 64"}' > "$work/python.S"
echo '.section .note.GNU-stack,"",%progbits' >> "$work/python.S"
"${cxx[@]}" -shared -nostdlib -o "$out/libpythonless.so" "$work/python.S"
for program in demo/llm_demo tools/ppl_eval; do
  nice "${cxx[@]}" -O1 -w -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0 -I"$work/include" -I"$work/tools/audio/include" -I"$work/$llm/include" -I"$work/$llm/src" \
    -I"$work/3rd_party" "$work/$llm/$program.cpp" -o "$out/${program#*/}" -Wl,--allow-shlib-undefined -L"$out" -lMNN -Wl,--no-as-needed -lpythonless
done
touch "$out/built"
