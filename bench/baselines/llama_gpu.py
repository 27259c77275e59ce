#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models in llama.cpp on a GPU, random weights of true geometry, beside `switchyard bench latency --random`.

    bench/baselines/llama_gpu.py [--bin FOLDER] [--jsonl FILE] [--models NAME,...] [--types bf16,f16]
                                 [--batches 1,8,64,256] [--prompts 512,4096] [--output-tokens 128] [--batch-tokens 128]
                                 [--repetitions 4] [--spread 0.5]

FOLDER is what `build_llama_cpp.sh cuda` made. llama.cpp's own programs, unchanged: llama-bench for prompts and one
sequence, llama-batched-bench for batches, all layers on the GPU, flash attention on, CUDA graphs as they are by
default; libllama_random.so gives them the weights. Rows ppN are a prompt of N tokens, with physical batches of each
--ubatch size. Rows tgN are N steps of `batch` sequences after a prompt of one token; tokens are random, and choosing
them is not in the time. Every configuration is a row, written when its program ended; of a test the best one counts.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

BEGIN = time.monotonic()
PEERS = pathlib.Path(os.environ.get("SWITCHYARD_PEERS", "~/.cache/switchyard-peers")).expanduser()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", type=pathlib.Path, default=PEERS / "llama-cuda/bin")
    parser.add_argument("--jsonl", type=pathlib.Path)
    parser.add_argument("--models", default="olmoe-1b-7b,qwen3-30b-a3b,mixtral-8x7b")
    parser.add_argument("--layers", type=int, help="this many layers alone, to try the program")
    parser.add_argument("--spread", type=float, default=0.5, help="deviations between the experts' mean logits")
    parser.add_argument("--types", default="bf16")
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--prompts", default="512,4096")
    parser.add_argument("--ubatch", default="128,512,2048", help="sizes of physical batches to try")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--batch-tokens", type=int, default=128, help="output tokens of a sequence in a batch")
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--any-device", action="store_true", help="also without a GPU, to try the program")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one of its programs")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


class Runner:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.folder = options.bin.resolve()
        library = self.folder / "libllama_random.so"
        if not library.exists():
            raise SystemExit(f"llama_gpu: no {library}: run build_llama_cpp.sh cuda, or name what it made by --bin")
        paths = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "LD_LIBRARY_PATH": ":".join(filter(None, paths))}

    def rows(self, program: str, model: str, arguments: list[str]) -> list[dict]:
        """The JSON lines of a run; those that a run had written when it failed or was stopped count."""
        command = [str(self.folder / program), "-m", model, "-ngl", "99", "-fa", "1", *arguments]
        try:
            done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=self.options.limit, check=False)
            out, why = done.stdout, f"ended with {done.returncode}: {done.stderr[-800:]}" if done.returncode else ""
        except subprocess.TimeoutExpired as stopped:
            out, why = stopped.stdout or b"", f"ran past {self.options.limit:.0f} s"
            out = out.decode(errors="replace") if isinstance(out, bytes) else out
        if why:
            print(f"{' '.join(command)}\n{why}", flush=True)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]


def llama_bench(runner: Runner, model: str) -> list[dict]:
    """Prompts at every size of physical batch, and decoding of one sequence; the model is loaded once."""
    options, sizes = runner.options, numbers(runner.options.ubatch)
    steps = options.output_tokens if 1 in numbers(options.batches) else 0
    arguments = ["-p", options.prompts or "0", "-n", str(steps), "-b", str(max(2048, *sizes)), "-ub", options.ubatch,
                 "-r", str(options.repetitions), "-o", "jsonl"]
    out = []
    if not options.prompts and not steps:
        return out
    for row in runner.rows("llama-bench", model, arguments):
        if not row["gpu_info"] and not options.any_device:
            raise SystemExit("llama_gpu: llama.cpp found no GPU: see what its programs say; --any-device goes on")
        name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        out.append({"test": name, "batch": 1, "tokens_per_s": row["samples_ts"], "program": "llama-bench",
                    "mode": f"-b {row['n_batch']} -ub {row['n_ubatch']}", "total_parameters": row["model_n_params"],
                    "weight_bytes": row["model_size"], "commit_of_peer": row["build_commit"],
                    "device_of_peer": row["gpu_info"] or row["cpu_info"]})
    return out


def worth_trying(size: int, batch: int, sizes: list[int]) -> bool:
    """A physical batch that holds a step of the batch is as good as any larger one."""
    return size < batch or size == min((other for other in sizes if other >= batch), default=0)


def batched_bench(runner: Runner, model: str) -> list[dict]:
    """Decoding of several sequences, each batch as often as --repetitions says, less one that warms up."""
    options, steps = runner.options, runner.options.batch_tokens
    batches = [batch for batch in numbers(options.batches) if batch > 1]
    out = []
    for size in numbers(options.ubatch):
        some = [batch for batch in batches if worth_trying(size, batch, numbers(options.ubatch))]
        if not some:
            continue
        each = ",".join(str(batch) for batch in some for _ in range(options.repetitions))
        positions = max(some) * (steps + 1)
        arguments = ["-npp", "1", "-ntg", str(steps), "-npl", each, "-ub", str(size), "-c", str(positions),
                     "--output-format", "jsonl"]
        found: dict[int, list[float]] = {}
        for row in runner.rows("llama-batched-bench", model, arguments):
            found.setdefault(row["pl"], []).append(row["speed_tg"])
        out += [{"test": f"tg{steps}", "batch": batch, "tokens_per_s": rates[1:] or rates,
                 "program": "llama-batched-bench", "mode": f"-ub {size}"} for batch, rates in found.items()]
    return out


def measure(runner: Runner, name: str, kind: str):
    """Yields the rows of a program when it has ended."""
    spread = runner.options.spread
    for part in (llama_bench, batched_bench):
        for row in part(runner, f"random:{name}:{kind}:{runner.options.layers or 0}:{spread}"):
            row["tokens_per_s"] = [round(rate, 2) for rate in row["tokens_per_s"]]
            row["median_tokens_per_s"] = round(statistics.median(row["tokens_per_s"]), 2)
            yield {"engine": "llama.cpp", "random": name, "random_spread": spread, "dtype": kind, **row}


def main() -> int:
    options, failed = parse(), False
    runner = Runner(options)
    file = open(options.jsonl, "w") if options.jsonl else None
    for name in options.models.split(","):
        tests = set()
        for row in (row for kind in options.types.split(",") for row in measure(runner, name, kind)):
            tests.add((row["test"], row["batch"]))
            print(f"{name:14} {row['test']:7} batch {row['batch']:4}  {row['median_tokens_per_s']:10.1f} tokens/s  "
                  f"{row['dtype']}, {row['mode']} [{time.monotonic() - BEGIN:.0f} s]", flush=True)
            if file:
                print(json.dumps(row, separators=(",", ":")), file=file, flush=True)
        failed |= len(tests) < len(numbers(options.prompts)) + len(numbers(options.batches))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
