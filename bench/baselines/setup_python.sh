#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the two virtual environments of this folder under $SWITCHYARD_PEERS:
#   tools-venv   numpy and gguf, for make_gguf.py, make_random_model.py and check_greedy.py
#   kt-venv      numpy and kt-kernel, for kt_kernel_moe.py
# kt-kernel is installed without its dependencies: they bring PyTorch with CUDA (3 GB), which its
# compiled extension does not link and kt_kernel_moe.py does not import.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=bench/baselines/common.sh
source "$here/common.sh"

mkdir -p "$PEERS_DIR"
make_venv tools-venv numpy==2.4.6 gguf==0.19.0
make_venv kt-venv --no-deps numpy==2.4.6 kt-kernel==0.7.2
echo "made $PEERS_DIR/tools-venv and $PEERS_DIR/kt-venv"
