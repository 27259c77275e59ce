#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds ik_llama.cpp's llama-bench from the source distribution that ik-llama-cpp-python publishes
# on PyPI.
#
#   build_ik_llama_cpp.sh [native|avx512|avx2]     (default native)
#
# Result: $SWITCHYARD_PEERS/ik-<isa>/bin/llama-bench.
# GCC here: clang 14 rejects a const member without initialiser in its k-quant kernels, and without
# AMX code the fault of GCC 12 that matters to llama.cpp cannot strike.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=bench/baselines/common.sh
source "$here/common.sh"

isa="${1:-native}"
cc="${PEERS_IK_CC:-gcc}"
cxx="${PEERS_IK_CXX:-g++}"
build="$PEERS_DIR/ik-$isa"
source_dir="$PEERS_DIR/src/$IK_SDIST/vendor/ik_llama.cpp"
isa_text="$(isa_flags "$isa")"
read -r -a isa_options <<<"$isa_text"

need cmake "apt-get install cmake"
need ninja "apt-get install ninja-build"
need "$cxx" "apt-get install g++, or set PEERS_IK_CC and PEERS_IK_CXX"

fetch_sdist "$IK_SDIST" "$IK_SHA256"

# The archive leaves out the CMake script that stamps the version; a shorter one stands in.
mkdir -p "$source_dir/common/cmake"
cat >"$source_dir/common/cmake/build-info-gen-cpp.cmake" <<EOF
set(BUILD_NUMBER 0)
set(BUILD_COMMIT $IK_SDIST)
set(BUILD_COMPILER $cxx)
set(BUILD_TARGET Linux)
configure_file(common/build-info.cpp.in common/build-info.cpp @ONLY)
EOF

# Its hundred megabytes of warnings are not ours to read. The flash-attention kernels for
# every quantised cache type take long to compile and no run here uses them: the cache is f16.
nice -n 5 cmake -S "$source_dir" -B "$build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w \
  -DBUILD_SHARED_LIBS=ON -DGGML_OPENMP=ON "${isa_options[@]}" -DGGML_NCCL=OFF \
  -DGGML_IQK_FA_ALL_QUANTS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=ON \
  -DLLAMA_BUILD_SERVER=OFF \
  >"$build.configure.log" 2>&1 || die "configuration failed, see $build.configure.log"
nice -n 5 ninja -C "$build" -j "$PEERS_JOBS" llama-bench >"$build.build.log" 2>&1 ||
  die "build failed, see $build.build.log"

"$build/bin/llama-bench" --help >/dev/null || die "the build does not run on this machine"
echo "built $build/bin with $("$cxx" --version | head -n 1)"
