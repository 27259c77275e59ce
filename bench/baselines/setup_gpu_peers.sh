#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the peers of the MoE layer on a GPU into $SWITCHYARD_PEERS/gpu, without installing anything:
#   vllm/       fused_moe.py and its tables for an H200, out of vLLM's wheel from PyPI
#   deep_gemm/  DeepGEMM as the same wheel carries it: a library for PyTorch's stable ABI, and the headers of its kernels
# Needs no GPU and no PyTorch. To measure on a machine without a network, take the folder along:
#   tar -C "$SWITCHYARD_PEERS" -cJf gpu-peers.tar.xz gpu        # about 6 MB
# After a run the folder also holds what the peers compiled, so that the next run starts sooner.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=bench/baselines/common.sh
source "$here/common.sh"

readonly VLLM="vllm==0.33.0"
readonly VLLM_SHA256="4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa"

to="$PEERS_DIR/gpu"
mkdir -p "$PEERS_DIR/src" "$to"
wheel=$(find "$PEERS_DIR/src" -name 'vllm-0.33.0-*.whl' | head -1)
if [[ -z $wheel ]]; then
  "$PEERS_PYTHON" -m pip download --quiet --no-deps --only-binary :all: --dest "$PEERS_DIR/src" "$VLLM" ||
    die "cannot download $VLLM from PyPI (0.34 GB)"
  wheel=$(find "$PEERS_DIR/src" -name 'vllm-0.33.0-*.whl' | head -1)
fi
echo "$VLLM_SHA256  $wheel" | sha256sum --check --status ||
  die "$wheel has another SHA-256 than the pinned $VLLM_SHA256; remove it and try again"

"$PEERS_PYTHON" - "$wheel" "$to" <<'PYTHON'
import pathlib, sys, zipfile
wheel, to = zipfile.ZipFile(sys.argv[1]), pathlib.Path(sys.argv[2])
moe, dg = "vllm/model_executor/layers/fused_moe/", "vllm/third_party/deep_gemm/"
for name in wheel.namelist():
    if name == moe + "fused_moe.py" or (name.startswith(moe + "configs/") and name.endswith("device_name=NVIDIA_H200.json")):
        target = to / "vllm" / name.removeprefix(moe)
    elif name.startswith(dg) and not name.endswith("/"):
        target = to / "deep_gemm" / name.removeprefix(dg)
    else:
        continue
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(wheel.read(name))
PYTHON
echo "made $to: $(du -sh "$to" | cut -f1)"
