#!/usr/bin/env bash
# Everything about the CUDA side on a machine with a GPU: builds, tests, sanitizes, measures, and writes records.
#   scripts/gpu_check.sh [STEP...]        default: build test sanitize measure
#     build      cmake preset cuda, with benchmarks (nothing to do when $BUILD is a bundle)
#     test       ctest -L gpu; of a bundle, its test programs
#     sanitize   compute-sanitizer over the commands of scripts/gpu_sanitize.txt
#     measure    bench_gpu_moe, bench_gpu_step, and bench latency on models of random weights
#     peers      bench/baselines/gpu_layer_peers.py; run it together with measure, its ratios want the same machine
#     models     bench/baselines/transformers_gpu.py
#     llama      bench/baselines/llama_gpu.py: llama.cpp, built for CUDA
#     profile    ncu: share of the memory, L2 and tensor peaks of the layer's kernel in a good and a bad cell
#     exercises  bench/exercises.py --device cuda: the page and its record, in $OUT
#     report     bench/gpu_report.py over the records in $OUT
# Environment:
#   BUILD      build folder, or what gpu_bundle.sh made, folder or archive; default build/cuda
#   OUT        where records and logs go; default build/gpu-check
#   PEERS      the folder that bench/baselines/setup_gpu_peers.sh made, or archives of it, with spaces between
#   LLAMA      the folder bin that build_llama_cpp.sh cuda made, or an archive of it
#   PEER_ARGS, MODEL_ARGS, LLAMA_ARGS  more arguments of gpu_layer_peers.py, transformers_gpu.py and llama_gpu.py
#   MEASURE    parts of measure; default: layer step models
#   JOBS       runs of sanitizers at a time; default: a third of the cores
#   REPEATS    runs of each decoding test of measure; default 3
#   MODELS     of measure, models and llama; default olmoe-1b-7b,qwen3-30b-a3b,mixtral-8x7b
#   CELLS      of profile: shape:tokens, with spaces between
#   LIMIT      seconds that a step may take; default 600
# Prints a table last; fails when a step did.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=$(realpath -m "${BUILD:-build/cuda}")
out=$(realpath -m "${OUT:-build/gpu-check}")
models=${MODELS:-olmoe-1b-7b,qwen3-30b-a3b,mixtral-8x7b}
limit=${LIMIT:-600}
mkdir -p "$out"
if [[ -f $build ]]; then  # once, also for the steps below
  [[ -d $out/bundle ]] || tar -C "$out" -xf "$build" || exit 1
  build=$out/bundle
fi

say() { printf '%s\n' "$*"; }
fail() { say "gpu_check: $*"; return 1; }

# program NAME: where it lies in a build folder or a bundle.
program() {
  local found
  found=$(find "$build" -type f -executable -name "$1" -not -path '*/CMakeFiles/*' -print -quit 2>/dev/null)
  [[ -n $found ]] || { say "gpu_check: no $1 in $build: build it, or name a bundle by BUILD" >&2; return 1; }
  say "$found"
}
is_bundle() { [[ -f $build/source_dir ]]; }

# Libraries of a bundle, and cuBLASLt: without a toolkit's one, that of PyTorch's packages.
find_libraries() {
  local paths=()
  is_bundle && paths+=("$build/lib")
  if ! ldconfig -p 2>/dev/null | grep -q 'libcublasLt\.so\.13'; then
    local cublas
    cublas=$(python3 -c 'import glob, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()]
print(next((p for f in folders for p in glob.glob(f + "/nvidia/**/libcublasLt.so.13", recursive=True)), ""))' 2>/dev/null)
    [[ -n $cublas ]] && paths+=("$(dirname "$cublas")")
  fi
  local IFS=:
  export LD_LIBRARY_PATH="${paths[*]}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# The tests find models, and some of them the program, by the folders that they were built in; a bundle is tried elsewhere.
link_sources() {
  is_bundle || return 0
  local built_in
  built_in=$(<"$build/source_dir")
  [[ -e $built_in ]] || { mkdir -p "$(dirname "$built_in")" && ln -s "$PWD" "$built_in"; }
  local program
  program=$(cat "$build/program_path" 2>/dev/null)
  [[ -z $program || -e $program ]] || { mkdir -p "$(dirname "$program")" && ln -s "$build/bin/switchyard" "$program"; }
}

commit() {
  if is_bundle; then cat "$build/commit"; else git describe --always --dirty --exclude '*' 2>/dev/null || say unknown; fi
}

# stamp FILE...: when, what and where, before the keys of each row.
stamp() {
  DATE=$(date -u +%F) COMMIT=$(commit) DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1) \
    DEVICE=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1) python3 - "$@" <<'PYTHON'
import json, os, pathlib, sys
head = {key: os.environ[key.upper()] for key in ("date", "commit", "device", "driver")}
for path in map(pathlib.Path, sys.argv[1:]):
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    path.write_text("".join(json.dumps({**head, **row}, separators=(",", ":")) + "\n" for row in rows))
PYTHON
}

step_build() {
  if is_bundle; then say "$build is a bundle"; return 0; fi
  cmake --preset cuda -B "$build" -DSWITCHYARD_BENCH=ON && cmake --build "$build" -j "$(nproc)"
}

# Tests skip themselves without a device, and a skipped one counts as passed: so ask for the device first, and count the skipped.
step_test() {
  [[ -n $(nvidia-smi -L 2>/dev/null) ]] || { fail "nvidia-smi -L lists no GPU: there is nothing to test"; return; }
  local failed=0 test log=$out/test.last
  if ! is_bundle; then
    ctest --test-dir "$build" -L gpu --output-on-failure || failed=1
    cp "$build/Testing/Temporary/LastTest.log" "$log" || failed=1
  else
    link_sources
    : >"$log"
    for test in "$build"/bin/test_*; do
      say "== $(basename "$test")"
      "$test" --gtest_brief=1 2>&1 | tee -a "$log"
      ((PIPESTATUS[0] == 0)) || failed=1
    done
  fi
  count_skipped "$log" || failed=1
  rm -f "$log"
  return "$failed"
}

# count_skipped LOG: fails when tests were skipped for another reason than that they are for other devices.
count_skipped() {
  local skipped allowed
  skipped=$(awk '/^\[  SKIPPED \] [0-9]+ test/ { sum += $4 } END { print sum + 0 }' "$1")
  allowed=$(grep -c '^for sm_90 alone' "$1")
  say "tests skipped: $skipped, of them for other devices: $allowed"
  ((skipped <= allowed)) || fail "tests were skipped on a machine with a GPU: see SKIPPED above"
}

# A line is [TOOL,TOOL...] [--OPTION=VALUE...] PROGRAM ARGUMENT...; without tools, all three; '#' begins a comment. Each tool of each
# line is a job of its own, $JOBS at a time: the tools keep the host busier than the device.
step_sanitize() {
  command -v compute-sanitizer >/dev/null || { fail "compute-sanitizer is not on the PATH"; return; }
  [[ -f scripts/gpu_sanitize.txt ]] || { fail "scripts/gpu_sanitize.txt is missing"; return; }
  link_sources
  local line tool tools words path options number=0 most=${JOBS:-$(($(nproc) / 3 > 1 ? $(nproc) / 3 : 1))}
  rm -f "$out"/sanitize.job* "$out/sanitizer.txt"
  while IFS= read -r line; do
    line=${line%%#*}
    read -ra words <<<"$line"
    ((${#words[@]} > 0)) || continue
    tools=memcheck,racecheck,synccheck options=()
    if [[ ${words[0]} =~ ^(memcheck|racecheck|synccheck|initcheck)(,|$) ]]; then
      tools=${words[0]}
      words=("${words[@]:1}")
    fi
    while [[ ${words[0]:-} == --* ]]; do
      options+=("${words[0]}")
      words=("${words[@]:1}")
    done
    path=$(program "$(basename "${words[0]:-no_program}")") || path=
    for tool in ${tools//,/ }; do
      while (($(jobs -rp | wc -l) >= most)); do wait -n; done
      number=$((number + 1))
      sanitize_job "$out/sanitize.job$number" "$tool" "$path" "${options[@]}" -- "${words[@]:1}" &
    done
  done <scripts/gpu_sanitize.txt
  wait
  cat "$out"/sanitize.job*.log >"$out/sanitizer.txt"
  local passed
  passed=$(cat "$out"/sanitize.job*.passed 2>/dev/null | wc -l)
  rm -f "$out"/sanitize.job*
  say "sanitizers: $passed of $number jobs passed"
  ((passed == number && number > 0))
}

# sanitize_job RECORD TOOL PROGRAM OPTION... -- ARGUMENT...: RECORD.log, RECORD.passed, and a line. A job in which no test ran has passed only if they
# are for other devices.
sanitize_job() {
  local record=$1 tool=$2 path=$3 options=() begin=$SECONDS result=FAILED what
  shift 3
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  what=("$tool" "${options[@]}" "$(basename "$path")" "$@")
  say "==== ${what[*]}" >"$record.log"
  if [[ -n $path ]] && compute-sanitizer --tool "$tool" --error-exitcode 9 "${options[@]}" "$path" "$@" >>"$record.log" 2>&1 &&
    grep -qE '^\[  PASSED  \] [1-9]|^for sm_90 alone' "$record.log"; then
    result=ok
    say "$tool" >"$record.passed"
  fi
  say "$result, $((SECONDS - begin)) s, ${what[*]}:" \
    "$(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY|\[  (PASSED|FAILED)' "$record.log" | sed -E 's/^=+ //' | paste -sd' ')"
  [[ $result == ok ]] || tail -5 "$record.log"
}

step_measure() {
  local failed=0 part
  for part in ${MEASURE:-layer step models}; do "measure_$part" || failed=1; done
  return "$failed"
}

measure_layer() {
  local path
  path=$(program bench_gpu_moe) && "$path" --jsonl "$out/gpu-moe.jsonl" && stamp "$out/gpu-moe.jsonl"
}

measure_step() {
  local path
  path=$(program bench_gpu_step) && "$path" --jsonl "$out/gpu-step.jsonl" && stamp "$out/gpu-step.jsonl"
}

measure_models() {
  local failed=0 path model
  path=$(program switchyard) || return 1
  : >"$out/gpu-models.jsonl"
  for model in ${models//,/ }; do
    measure_model "$path" "$model" >>"$out/gpu-models.jsonl" || failed=1
  done
  stamp "$out/gpu-models.jsonl" && grep -oE '"random":"[^"]*"|"random_spread":[0-9.]+|"load_imbalance":[0-9.]+|"test":"[^"]*"|"batch":[0-9]+|"median_tokens_per_s":[0-9.]+' \
    "$out/gpu-models.jsonl" | paste -sd' ' | sed 's/ "random"/\n"random"/g'
  return "$failed"
}

# Prompts, those of 512 also with less even loads, then decoding: short sequences leave room for many of them. OLMoE has 4096 positions, one
# of them for the answer.
measure_model() {
  local long=4096 spread
  [[ $2 == olmoe* ]] && long=4095
  "$1" bench latency --device cuda --random "$2" -p "512,$long" -n 0 -r 4 --max-model-len $((long + 1)) \
    --max-step-tokens 4096 -o jsonl || return 1
  for spread in 1 2; do
    "$1" bench latency --device cuda --random "$2" --random-spread "$spread" -p 512 -n 0 -r 3 --max-model-len 1024 \
      --max-step-tokens 512 -o jsonl || return 1
  done
  "$1" bench latency --device cuda --random "$2" -p 0 -n 128 -r "${REPEATS:-3}" --max-model-len 256 --batch 1,8,64,256 \
    --floor -o jsonl
}

# Unpacked archives lie beside the records for the time of the step; what the peers compiled comes back as one more archive.
step_peers() {
  local peers=${PEERS:-${SWITCHYARD_PEERS:-$HOME/.cache/switchyard-peers}/gpu} archive unpacked=
  for archive in $peers; do
    [[ -f $archive ]] || continue
    unpacked=$out/peers
    mkdir -p "$unpacked" && tar -C "$unpacked" -xf "$archive" || return 1
  done
  [[ -n $unpacked ]] && peers=$unpacked/gpu
  python3 bench/baselines/gpu_layer_peers.py --peers "$peers" ${PEER_ARGS:-} \
    --jsonl "$out/gpu-peers.jsonl"
  local result=$?
  [[ -s $out/gpu-peers.jsonl ]] && stamp "$out/gpu-peers.jsonl"
  if [[ -n $unpacked ]]; then
    (cd "$unpacked" && tar -cJf "$out/gpu-peers-compiled.tar.xz" gpu/*_cache gpu/*.so)
    rm -rf "$unpacked"
  fi
  return "$result"
}

step_models() {
  python3 bench/baselines/transformers_gpu.py --models "$models" ${MODEL_ARGS:-} --jsonl "$out/gpu-transformers.jsonl"
  local result=$?
  [[ -s $out/gpu-transformers.jsonl ]] && stamp "$out/gpu-transformers.jsonl"
  return "$result"
}

step_llama() {
  local bin=${LLAMA:-${SWITCHYARD_PEERS:-$HOME/.cache/switchyard-peers}/llama-cuda/bin} result
  if [[ -f $bin ]]; then
    mkdir -p "$out/llama" && tar -C "$out/llama" -xf "$bin" || return 1
    bin=$out/llama/bin
  fi
  python3 bench/baselines/llama_gpu.py --bin "$bin" --models "$models" ${LLAMA_ARGS:-} --jsonl "$out/gpu-llama.jsonl"
  result=$?
  rm -rf "$out/llama"
  [[ -s $out/gpu-llama.jsonl ]] && stamp "$out/gpu-llama.jsonl"
  return "$result"
}

# Of the first launches of the layer's own kernel, apart from routing and combine. The name of the tensor metric differs
# between chips, so ncu is asked for it.
step_profile() {
  command -v ncu >/dev/null || { fail "ncu is not on the PATH"; return; }
  local path metrics cell tensor failed=0
  path=$(program bench_gpu_moe) || return 1
  tensor=$(ncu --query-metrics 2>/dev/null | grep -oE '^sm__(inst_executed_)?pipe_tensor[a-z_]*' | sort -u |
    grep -E '^sm__pipe_tensor_cycles_active$|^sm__inst_executed_pipe_tensor$' | tail -1)
  metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,lts__throughput.avg.pct_of_peak_sustained_elapsed,lts__t_sectors_op_read.sum
  metrics+=${tensor:+,$tensor.avg.pct_of_peak_sustained_active}
  say "cell; kernel: us, GB read, memory's share of its peak in %, tensor pipe's in %, L2's in %, GB read from L2" | tee "$out/profile.txt"
  for cell in ${CELLS:-Mixtral-8x7B:64 OLMoE-1B-7B:1024}; do
    ncu --clock-control none --metrics "$metrics" --csv --print-units base --kernel-name 'regex:run_layer|moe_ffn_kernel' \
      --launch-count 2 "$path" --shape "${cell%:*}" --tokens "${cell#*:}" >"$out/profile.last" 2>&1 || failed=1
    grep -E '^"' "$out/profile.last" | CELL=$cell python3 -c '
import csv, os, sys
launches = {}
for row in csv.DictReader(sys.stdin):
    values = launches.setdefault((row["ID"], row["Kernel Name"].split("(")[0]), {})
    values[row["Metric Name"].split(".")[0]] = float(row["Metric Value"].replace(",", ""))
for (_, kernel), v in launches.items():
    tensor = next((v[name] for name in v if "tensor" in name), float("nan"))
    print("{}; {}: {:.1f}, {:.3f}, {:.1f}, {:.1f}, {:.1f}, {:.3f}".format(
          os.environ["CELL"], kernel, v["gpu__time_duration"] / 1e3, v["dram__bytes_read"] / 1e9, v["dram__throughput"],
          tensor, v["lts__throughput"], v["lts__t_sectors_op_read"] * 32 / 1e9))
sys.exit(not launches)' | tee -a "$out/profile.txt" || { failed=1; tail -5 "$out/profile.last"; }
  done
  rm -f "$out/profile.last"
  return "$failed"
}

step_exercises() {
  local path
  path=$(program switchyard) || return 1
  python3 bench/exercises.py --device cuda --out "$out" "$(dirname "$path")" || return 1
  sed -i "1s/\"commit\":\"unknown\"/\"commit\":\"$(commit)\"/" "$out"/*-cuda-exercises.jsonl
}

step_report() {
  python3 bench/gpu_report.py "$out"/gpu-*.jsonl --all-peers | tee "$out/report.md"
}

run_step() {
  local begin=$SECONDS result=ok
  say "==== $1"
  timeout "$limit" bash scripts/gpu_check.sh --inner "$1" 2>&1 | tee -a "$out/gpu_check.log"
  local codes=("${PIPESTATUS[@]}")
  ((codes[0] == 0)) || { result=FAILED; failures=$((failures + 1)); }
  ((codes[0] != 124)) || result="OUT OF TIME"
  table+=$(printf '| %-9s | %-11s | %5s |' "$1" "$result" "$((SECONDS - begin))")$'\n'
}

find_libraries
if [[ ${1:-} == --inner ]]; then
  "step_$2"
  exit
fi
(($# > 0)) || set -- build test sanitize measure
failures=0
table=
: >"$out/gpu_check.log"
for step in "$@"; do
  declare -F "step_$step" >/dev/null || { fail "no step '$step'; see the top of $0"; exit 2; }
done
for step in "$@"; do run_step "$step"; done
say ""
say "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1); commit $(commit); records in $out"
printf '| step      | result      |     s |\n|---|---|---|\n%s' "$table"
exit $((failures > 0))
