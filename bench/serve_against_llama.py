#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`switchyard serve` beside llama-server: same weights, same machine, same client, in turns.

    bench/serve_against_llama.py BUILD OUT.jsonl [--models demo,olmoe-4l] [--clients 1,8,32] [--rounds 3] [--isa native|amx|avx512|avx2]
    bench/serve_against_llama.py --report OUT.jsonl

BUILD is a build folder with `switchyard`. llama-server and the GGUF of each model (bf16) come from $SWITCHYARD_PEERS; see
baselines/README.md. In each round both servers are started, measured by `switchyard bench serve` at each number of
clients, and ended, one after the other and in changing order, so that a drift of the machine meets both.

Fair: 32 sequences at once, continuous batching, the same threads, bf16 weights, f16 or f32 caches as each has by default, 512
tokens of prompt and output together for a sequence, greedy, random ids of the same seed, no prompt cache (prompts do not begin
alike), answers of full length. Clients and server share the machine.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import sys
import tempfile

from against_peers import PEERS, capped, stamp
from serve_process import ROOT, Server, bench_serve, free_port

CONTEXT = 512
FIGURES = {"tokens/s": ("output_tokens_per_s", None), "TTFT p50 ms": ("ttft_ms", "median"), "TTFT p99 ms": ("ttft_ms", "p99"),
           "ITL p50 ms": ("itl_ms", "median"), "ITL p99 ms": ("itl_ms", "p99"), "TPOT p50 ms": ("tpot_ms", "median")}


def servers(args: argparse.Namespace, model: str) -> dict[str, list]:
    """The command of each engine; the port comes last."""
    folder = ROOT / "models/demo" if model == "demo" else PEERS / "models" / model
    gguf = PEERS / "demo.gguf" if model == "demo" else PEERS / f"models/{model}.gguf"
    most = max(args.clients)
    ours = [args.build / "switchyard", "serve", folder, "--threads", args.threads, "--max-sequences", most, "--max-model-len",
            CONTEXT, "--dtype", "bf16", "--no-prefix-cache", "--port"]
    theirs = [PEERS / f"llama-{args.isa}/bin/llama-server", "-m", gguf, "-t", args.threads, "-tb", args.threads, "-np", most,
              "-c", CONTEXT * most, "-cb", "--no-webui", "--no-cache-prompt", "--cache-ram", "0", "--host", "127.0.0.1", "--port"]
    return {"switchyard": ours, "llama.cpp": theirs}


def measure(args: argparse.Namespace, model: str, engine: str, command: list, round_number: int) -> list[dict]:
    port = free_port()
    load = ["--input-tokens", args.input, "--output-tokens", args.output, "--ignore-eos", "--seed", 7 + round_number, "--vocab",
            args.vocab[model]]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = capped(args.isa) if engine == "switchyard" else {}
        with Server([*command, port], port, pathlib.Path(folder) / "log", environment=environment) as server:
            for clients in args.clients:
                requests = max(16, args.requests * clients)
                rows += bench_serve(args.build / "switchyard", server.url,
                                    ["-c", clients, "-n", requests, "--warmup", min(clients, 8), *load])
    for row in rows:
        expected = row["answered"] * row["output_tokens"][0] if row["output_tokens"][0] == row["output_tokens"][1] else None
        if row["failed"] or row["turned_away"] or row["without_usage"] or row["total_output_tokens"] != (expected or row["total_output_tokens"]):
            raise SystemExit(f"{engine}, {model}, {row['concurrency']} clients: {row['failures']}, {row['without_usage']} answers without "
                             f"usage, {row['total_output_tokens']} tokens where {expected} were asked for")
    return [{**row, "engine": engine, "model": model, "round": round_number} for row in rows]


def vocabulary(model: str) -> int:
    folder = ROOT / "models/demo" if model == "demo" else PEERS / "models" / model
    return json.loads((folder / "config.json").read_text())["vocab_size"]


def figure(row: dict, path: tuple[str, str | None]) -> float:
    value = row[path[0]]
    return value if path[1] is None else value[path[1]]


def report(record: pathlib.Path) -> None:
    """Medians over the rounds, and ours as a ratio of theirs: above 1 is better for tokens, below 1 for times."""
    cells = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in record.read_text().splitlines():
        row = json.loads(line)
        if row.get("bench") == "serve" and "engine" in row:
            for name, path in FIGURES.items():
                cells[row["model"], row["concurrency"], name][row["engine"]].append(figure(row, path))
    print("| model | clients | figure | switchyard | llama-server | ratio | rounds, least to most |")
    print("|---|---:|---|---:|---:|---:|---|")
    for (model, clients, name), engines in cells.items():
        ours, theirs = engines.get("switchyard", []), engines.get("llama.cpp", [])
        if not ours or not theirs:
            continue
        ratio = statistics.median(ours) / statistics.median(theirs) if statistics.median(theirs) else float("nan")
        spread = f"{min(ours):.4g} to {max(ours):.4g}, {min(theirs):.4g} to {max(theirs):.4g}"
        print(f"| {model} | {clients} | {name} | {statistics.median(ours):.4g} | {statistics.median(theirs):.4g} | {ratio:.2f} | {spread} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--report", type=pathlib.Path, help="print the table of a record, and end")
    parser.add_argument("--models", default="demo,olmoe-4l")
    parser.add_argument("--clients", default="1,8,32", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=3, help="of each client in a round; 16 at least of all together")
    parser.add_argument("--input", default="64:128")
    parser.add_argument("--output", default="64")
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--isa", choices=["native", "amx", "avx512", "avx2"], default="native",
                        help="which build of llama.cpp; avx512 and avx2 hold Switchyard to the same (SWITCHYARD_MAX_ISA)")
    args = parser.parse_args()
    if args.report:
        return report(args.report)
    if args.out is None:
        parser.error("BUILD and OUT are needed")
    models = args.models.split(",")
    args.vocab = {model: vocabulary(model) for model in models}
    mark = {**stamp(), "threads": int(args.threads), "cap": args.isa}
    with args.out.open("a") as out:
        for model in models:
            for round_number in range(args.rounds):
                engines = list(servers(args, model).items())
                for engine, command in engines[::-1] if round_number % 2 else engines:
                    for row in measure(args, model, engine, command, round_number):
                        print(json.dumps({**mark, **row}, separators=(",", ":")), file=out, flush=True)
                print(f"{model}: round {round_number + 1} of {args.rounds}", file=sys.stderr, flush=True)
    report(args.out)


if __name__ == "__main__":
    main()
