#!/usr/bin/env bash
# Runs every fuzz target of a build folder for some seconds each, from its corpus. Usage: run_fuzz.sh BUILD SECONDS
set -euo pipefail
build=$(realpath "$1")
seconds=$2
cd "$(dirname "$0")/../fuzz"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for target in "$build"/fuzz/fuzz_*; do
  [[ -x $target && ! -d $target ]] || continue
  name=$(basename "$target")
  corpus="corpus/${name#fuzz_}"
  mkdir -p "$scratch/$name"
  echo "== $name, $seconds s"
  "$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$scratch/" "$scratch/$name" $([[ -d $corpus ]] && echo "$corpus") \
    2> "$scratch/log" || { tail -40 "$scratch/log"; exit 1; }
  grep -E "stat::number_of_executed_units|stat::peak_rss_mb|DONE" "$scratch/log" || tail -3 "$scratch/log"
done
