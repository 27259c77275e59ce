#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds llama.cpp's llama-bench, llama-server, libllama and ggml, and two small programs of ours on top of them,
# from the source distribution that llama-cpp-python publishes on PyPI.
#
#   build_llama_cpp.sh [native|amx|avx512|avx2|cuda]      (default native)
#
# Result: $SWITCHYARD_PEERS/llama-<isa>/bin/{llama-bench,llama-server,llama_greedy,peer_ggml_moe}; of cuda,
# which needs no GPU here: {llama-bench,llama-batched-bench,libllama_random.so}, stripped to be taken along.
# clang, not GCC 12: GCC 12 drops the store of the AMX tile configuration, so that its build dies
# with an invalid opcode at the first quantised product. clang 14 spells the AMX macros without the
# underscore that the sources ask for, which would leave AMX out in silence: they are defined here.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=bench/baselines/common.sh
source "$here/common.sh"

isa="${1:-native}"
build="$PEERS_DIR/llama-$isa"
source_dir="$PEERS_DIR/src/$LLAMA_SDIST/vendor/llama.cpp"
isa_text="$(isa_flags "$isa")"
read -r -a isa_options <<<"$isa_text"

if [[ $isa == cuda ]]; then  # nvcc wants GCC, and no AMX is in play
  PEERS_CC="${PEERS_CUDA_CC:-cc}" PEERS_CXX="${PEERS_CUDA_CXX:-c++}"
  programs=(llama-bench llama-batched-bench)
  need "$PEERS_NVCC" "install CUDA 13, or set PEERS_NVCC"
else
  programs=(llama-bench llama-server)
fi

need cmake "apt-get install cmake"
need ninja "apt-get install ninja-build"
need "$PEERS_CXX" "apt-get install clang-14 libomp-14-dev, or set PEERS_CC and PEERS_CXX"

fetch_sdist "$LLAMA_SDIST" "$LLAMA_SHA256"

flags=""
macros="$("$PEERS_CXX" -march=native -dM -E -x c++ /dev/null)"
if [[ $isa == amx || ($isa == native && $macros == *__AMXINT8__* && $macros != *__AMX_INT8__*) ]]; then
  flags="-D__AMX_TILE__=1 -D__AMX_INT8__=1 -D__AMX_BF16__=1"
fi

# The version is stamped from the git data that the archive carries; git refuses folders of another
# owner unless told otherwise, and a missing stamp must not fail the build.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

nice -n 5 cmake -S "$source_dir" -B "$build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$PEERS_CC" -DCMAKE_CXX_COMPILER="$PEERS_CXX" \
  -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
  -DBUILD_SHARED_LIBS=ON -DGGML_OPENMP=ON "${isa_options[@]}" \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON \
  -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
  >"$build.configure.log" 2>&1 || die "configuration failed, see $build.configure.log"
nice -n 5 ninja -C "$build" -j "$PEERS_JOBS" "${programs[@]}" >"$build.build.log" 2>&1 ||
  die "build failed, see $build.build.log"

# A build for a GPU is taken along: stripped, with what makes weights there. It needs the driver even to run on the CPU.
if [[ $isa == cuda ]]; then
  nice -n 5 "$PEERS_CXX" -std=c++20 -O2 -Wall -Wextra -fPIC -shared \
    -I"$source_dir/include" -I"$source_dir/ggml/include" "$here/llama_random.cpp" \
    -L"$build/bin" -lllama -lggml-base -ldl "-Wl,-rpath,\$ORIGIN" -o "$build/bin/libllama_random.so"
  find "$build/bin" -type f -exec strip --strip-unneeded {} +
  if ldconfig -p | grep -q 'libcuda\.so\.1'; then
    LD_PRELOAD="$build/bin/libllama_random.so" "$build/bin/llama-bench" -m random:tiny-olmoe -p 8 -n 1 -r 1 \
      >/dev/null 2>&1 || die "a small model of random weights failed; the build does not run on this machine"
  fi
  echo "built $build/bin with $("$PEERS_NVCC" --version | grep -o 'release [^,]*')"
  exit
fi

for program in llama_greedy peer_ggml_moe; do
  nice -n 5 "$PEERS_CXX" -std=c++20 -O2 -Wall -Wextra \
    -I"$source_dir/include" -I"$source_dir/ggml/include" "$here/$program.cpp" \
    -L"$build/bin" -lllama -lggml -lggml-cpu -lggml-base -Wl,-rpath,"$build/bin" \
    -o "$build/bin/$program"
done

# A wrong instruction set shows here, not in the middle of a benchmark. Expert products never use
# AMX; check_greedy.py on a q8_0 model does, see README.md.
for dtype in bf16 q8_0 q4_K; do
  "$build/bin/peer_ggml_moe" --shape tiny --dtype "$dtype" --tokens 1,64 --runs 2 \
    >/dev/null 2>&1 || die "the $dtype smoke test failed; the build does not run on this machine"
done
"$build/bin/llama-bench" --version 2>&1 | head -n 1
echo "built $build/bin with $("$PEERS_CXX" --version | head -n 1)"
