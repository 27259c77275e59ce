#!/usr/bin/env bash
# Runs every fuzz target of a build folder for some seconds each, from its corpus, as many at once as there are cores.
# Usage: run_fuzz.sh BUILD SECONDS. Fails when a target does, with the end of its log.
set -euo pipefail
build=$(realpath "$1")
seconds=$2
cd "$(dirname "$0")/../fuzz"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run_target() {
  local target=$1 name
  name=$(basename "$target")
  local corpus="corpus/${name#fuzz_}" log="$scratch/$name.log"
  mkdir -p "$scratch/$name"
  if ! "$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$scratch/" "$scratch/$name" $([[ -d $corpus ]] && echo "$corpus") 2> "$log"; then
    tail -40 "$log"
    echo "== $name FAILED"
    return 1
  fi
  echo "== $name, $seconds s: $(grep -oP 'stat::number_of_executed_units: +\K\d+' "$log") runs," \
    "peak $(grep -oP 'stat::peak_rss_mb: +\K\d+' "$log") MB"
}
export -f run_target
export seconds scratch

targets=$(find "$build/fuzz" -maxdepth 1 -type f -executable -name 'fuzz_*' | sort)
[[ -n $targets ]] || { echo "no fuzz targets in $build/fuzz"; exit 1; }
xargs -P "$(nproc)" -I{} bash -c 'run_target {}' <<< "$targets"
