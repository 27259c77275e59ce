# SPDX-License-Identifier: Apache-2.0
# Shared by the build scripts of this folder: where the peers live, which versions, how a source is
# fetched. Everything that is downloaded or built goes to one folder outside the repository.
# shellcheck shell=bash disable=SC2034

readonly LLAMA_SDIST="llama_cpp_python-0.3.36"
readonly LLAMA_SHA256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
readonly IK_SDIST="ik_llama_cpp_python-0.1.5"
readonly IK_SHA256="33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad"

PEERS_DIR="${SWITCHYARD_PEERS:-$HOME/.cache/switchyard-peers}"
PEERS_CC="${PEERS_CC:-clang-14}"
PEERS_CXX="${PEERS_CXX:-clang++-14}"
PEERS_NVCC="${PEERS_NVCC:-/usr/local/cuda/bin/nvcc}"
PEERS_JOBS="${PEERS_JOBS:-$(nproc)}"
PEERS_PYTHON="${PEERS_PYTHON:-python3}"

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

need() {
  command -v "$1" >/dev/null || die "$1 is missing; $2"
}

# fetch_sdist NAME SHA256: downloads and unpacks the source distribution NAME into $PEERS_DIR/src
# once, and refuses an archive whose hash is not the pinned one.
fetch_sdist() {
  local name="$1" sha="$2" archive="$PEERS_DIR/src/$1.tar.gz"
  local package="${name%-*}" version="${name##*-}"
  mkdir -p "$PEERS_DIR/src"
  if [[ ! -f $archive ]]; then
    "$PEERS_PYTHON" -m pip download --quiet --no-deps --no-binary "${package//_/-}" \
      --dest "$PEERS_DIR/src" "${package//_/-}==$version" ||
      die "cannot download $name from PyPI"
  fi
  echo "$sha  $archive" | sha256sum --check --status ||
    die "$archive has another SHA-256 than the pinned $sha; remove it and try again"
  [[ -d $PEERS_DIR/src/$name ]] || tar -C "$PEERS_DIR/src" -xzf "$archive"
}

# isa_flags ISA: the CMake switches that cap ggml's instruction set. `native` lets the compiler look
# at this machine (AMX included), `amx` is for a machine with AMX that does not build, the others make the
# caps that SWITCHYARD_MAX_ISA also knows. `cuda` is for one H100 or H200 in a machine with AVX-512.
isa_flags() {
  case "$1" in
    native) echo "-DGGML_NATIVE=ON" ;;
    amx)
      echo "$(isa_flags avx512) -DGGML_AMX_TILE=ON -DGGML_AMX_INT8=ON -DGGML_AMX_BF16=ON"
      ;;
    avx512)
      echo "-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON" \
        "-DGGML_AVX512_BF16=ON"
      ;;
    avx2) echo "-DGGML_NATIVE=OFF" ;;
    cuda)
      echo "-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_OPENMP=OFF -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF" \
        "-DCMAKE_CUDA_ARCHITECTURES=90-real -DCMAKE_CUDA_COMPILER=$PEERS_NVCC" \
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined"  # for a machine without the driver
      ;;
    *) die "unknown ISA '$1'; expected native, amx, avx512, avx2 or cuda" ;;
  esac
}

# make_venv NAME PACKAGE...: a virtual environment under $PEERS_DIR with exactly these packages.
make_venv() {
  local venv="$PEERS_DIR/$1"
  shift
  [[ -x $venv/bin/python ]] || "$PEERS_PYTHON" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}
