#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Switchyard and its CPU peers side by side in one run and appends every row to a record.

    bench/against_peers.py BUILD OUT.jsonl [--part layers|models] [--rounds 3] [--shapes ...] [--models ...]
                           [--isa native|amx|avx512|avx2] [--rival] [--alone]

BUILD is the folder of the `bench` preset (with bench/bench_kernels and switchyard). Peers and models come from
$SWITCHYARD_PEERS (see baselines/README.md). Engines take turns within each round, so that a drift of the machine meets
all of them; a row is one engine's figure of one round. `bench/report.py OUT.jsonl` prints medians and ratios.

--isa avx512 or avx2 caps Switchyard (SWITCHYARD_MAX_ISA) and takes the peers built for that cap; engines without such a
build are left out. --rival keeps one core busy with another process, beside which ours must keep at least half of its
undisturbed rate (report.py prints the share when the record holds both); --alone leaves the peers out.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(os.environ.get("SWITCHYARD_PEERS", pathlib.Path.home() / ".cache/switchyard-peers"))


def output_of(command: list[str], environment: dict[str, str] | None = None) -> list[dict]:
    """The JSON objects that a command prints, one a line; a failing command ends the run with its last words."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise SystemExit(f"{command}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def stamp() -> dict:
    """What every row says about when, what and where."""
    commit = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True, check=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"date": datetime.date.today().isoformat(), "commit": commit, "cpu": cpu, "cores": os.cpu_count()}


def capped(isa: str) -> dict[str, str]:
    """The environment that holds Switchyard to an instruction set."""
    return {"SWITCHYARD_MAX_ISA": isa} if isa in ("avx512", "avx2") else {}


def layer_engines(build: pathlib.Path, shape: str, args: argparse.Namespace) -> list[tuple[list, dict]]:
    """Commands that time the MoE layers alone, ours first."""
    isa, tokens, threads = args.isa, args.tokens, args.threads
    runs = ["--runs", args.layer_runs] if args.layer_runs else []
    ours = [build / "bench/bench_kernels", "--shape", shape, "--tokens", tokens, "--threads", threads, *runs]
    engines = [(ours, capped(isa)),
               ([PEERS / f"llama-{isa}/bin/peer_ggml_moe", "--shape", shape, "--dtype", "bf16", "--tokens", tokens,
                 "--threads", threads, *runs], {})]
    kt_python = PEERS / "kt-venv/bin/python"
    if kt_python.exists() and isa in ("native", "amx"):
        engines.append(([kt_python, HERE / "baselines/kt_kernel_moe.py", "--shape", shape, "--tokens", tokens,
                         "--threads", threads, *runs], {}))
    return engines


def model_engines(build: pathlib.Path, model: str, threads: str, runs: str, isa: str) -> list[tuple[list, dict]]:
    """Commands that time a whole model, ours first. ik_llama.cpp does not know OLMoE."""
    folder = HERE.parent / "models/demo" if model == "demo" else PEERS / "models" / model
    gguf = PEERS / f"models/{model}.gguf" if model != "demo" else PEERS / "demo.gguf"
    ours = [build / "switchyard", "bench", "latency", folder, "-p", "64,512", "-n", "128", "-r", runs, "--threads",
            threads, "-o", "jsonl"]
    bench = HERE / "baselines/llama_bench.py"
    sizes = ["-p", "64,512", "-n", "128", "-r", runs, "-t", threads]
    engines = [(ours, capped(isa)), ([bench, "llama.cpp", PEERS / f"llama-{isa}/bin/llama-bench", gguf, *sizes], {})]
    ik = PEERS / f"ik-{isa}/bin/llama-bench"
    if ik.exists() and not model.startswith("olmoe"):
        engines.append(([bench, "ik_llama.cpp-rtr", ik, gguf, *sizes, "--", "-rtr", "1"], {}))
    return engines


class Rival:
    """A process that keeps the first core busy while it lives."""

    def __init__(self, wanted: bool):
        self.process = None
        if wanted:
            core = min(os.sched_getaffinity(0))
            self.process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"])

    def __enter__(self) -> "Rival":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def normalise(row: dict, part: str, name: str) -> dict:
    """One vocabulary for all engines' rows."""
    if part == "layers":
        return {**row, "part": part, "shape": name}
    if "engine" not in row:  # ours
        return {"part": part, "engine": "switchyard", "model": name, "test": row["test"], "dtype": row["dtype"],
                "threads": row["threads"], "kernel": row["kernel"],
                "median_tps": row.get("median_tokens_per_s", row["mean_tokens_per_s"]),
                "mean_tps": row["mean_tokens_per_s"], "stddev_tps": row["deviation_tokens_per_s"]}
    return {**row, "part": part, "model": name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--part", choices=["layers", "models"], action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", default="5", help="repetitions of llama-bench and of ours, each round")
    parser.add_argument("--layer-runs", help="runs of a layer benchmark in a round (default: its own choice)")
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--tokens", default="1,16,64,512")
    parser.add_argument("--shapes", default="olmoe,mixtral-like,qwen3-30b-a3b")
    parser.add_argument("--models", default="demo,olmoe-4l")
    parser.add_argument("--isa", choices=["native", "amx", "avx512", "avx2"], default="native")
    parser.add_argument("--rival", action="store_true", help="keep one core busy with another process")
    parser.add_argument("--alone", action="store_true", help="ours only")
    args = parser.parse_args()

    mark = {**stamp(), "cap": args.isa, "rival": args.rival}
    jobs = []
    if "layers" in (args.part or ["layers"]):
        jobs += [("layers", s, layer_engines(args.build, s, args)) for s in args.shapes.split(",")]
    if "models" in (args.part or ["models"]):
        jobs += [("models", m, model_engines(args.build, m, args.threads, args.runs, args.isa))
                 for m in args.models.split(",")]
    with args.out.open("a") as out, Rival(args.rival):
        for part, name, engines in jobs:
            for round_number in range(args.rounds):
                for command, environment in engines[:1] if args.alone else engines:
                    for row in output_of(command, environment):
                        row = {**mark, "round": round_number, **normalise(row, part, name)}
                        print(json.dumps(row, separators=(",", ":")), file=out, flush=True)
                print(f"{part} {name}: round {round_number + 1} of {args.rounds}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
