#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Our own figures without peers: MoE layers alone, then the demonstration model. Usage: bench/run.sh BUILD
# Beside peers: bench/against_peers.py BUILD bench/results/RECORD.jsonl
set -euo pipefail
build=$1
cd "$(dirname "$0")/.."
for shape in olmoe mixtral-like qwen3-30b-a3b; do
  "$build/bench/bench_kernels" --shape "$shape" --tokens 1,16,64,512
done
"$build/switchyard" bench latency models/demo -p 64,512 -n 128 -r 5
