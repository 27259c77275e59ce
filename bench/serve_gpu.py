#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`switchyard serve` on a CUDA device under load: right answers, then speed, then its end.

    bench/serve_gpu.py BUILD OUT.jsonl [--models demo,olmoe-1b-7b] [--clients 1,8,32,64] [--requests 4] [--input 128] [--output 64]
    bench/serve_gpu.py --report OUT.jsonl

BUILD is a folder with `switchyard`, somewhere. For each model a server is started on the device; `demo` is models/demo, another name is a
geometry with random weights. Then
  streams   demo, in f32: all prompts of its goldens at once, four times over, streamed: each text is the reference's
  device    the server's model list and /metrics name the device and count what was made
  load      `switchyard bench serve` at each number of clients: prompts of random tokens, answers of full length, no prefix cache
  drain     SIGTERM while streams run: they end whole, new ones are turned away, and the program ends with 0
Clients and server share the host. Fails at the first thing that is not so.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from serve_process import ROOT, Server, bench_serve, free_port

FIGURES = {"tokens/s": ("output_tokens_per_s", None), "TTFT p50 ms": ("ttft_ms", "median"), "TTFT p99 ms": ("ttft_ms", "p99"),
           "ITL p50 ms": ("itl_ms", "median"), "ITL p99 ms": ("itl_ms", "p99"), "TPOT p50 ms": ("tpot_ms", "median")}


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"serve_gpu: {what}")


class Stream(threading.Thread):
    """One streamed completion: its text, its finish reason, and how many pieces came."""

    def __init__(self, url: str, prompt: str | list[int], tokens: int):
        super().__init__()
        self.body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
        self.url, self.text, self.finish, self.pieces, self.error = url, "", None, 0, None
        self.begun = threading.Event()

    def run(self) -> None:
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(self.body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                for line in answer:
                    if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                        continue
                    choice = json.loads(line[6:])["choices"][0]
                    self.text += choice["text"]
                    self.finish = choice["finish_reason"] or self.finish
                    self.pieces += 1
                    self.begun.set()
        except (OSError, urllib.error.URLError) as error:
            self.error = error
        self.begun.set()


def run_all(streams: list[Stream]) -> None:
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()


def command_of(args: argparse.Namespace, model: str, dtype: str) -> list:
    what = [ROOT / "models/demo"] if model == "demo" else ["--random", model]
    return [args.program, "serve", *what, "--device", "cuda", "--dtype", dtype, "--max-sequences", max(args.clients), "--max-model-len",
            args.input + args.output + 64, "--no-prefix-cache"]


def serve(args: argparse.Namespace, model: str, dtype: str) -> Server:
    port = free_port()
    log = args.out.with_suffix(f".{model}-{dtype}.log")
    return Server([*command_of(args, model, dtype), "--port", port], port, log)


def check_streams(args: argparse.Namespace) -> None:
    goldens = json.loads((ROOT / "models/demo/golden/logits.json").read_text())["prompts"] * 4
    with serve(args, "demo", "f32") as server:
        streams = [Stream(server.url, golden["prompt"], len(golden["greedy"])) for golden in goldens]
        run_all(streams)
        for golden, stream in zip(goldens, streams):
            check(stream.error is None, f"a stream broke: {stream.error}")
            check(stream.text == golden["greedy_text"], f"{golden['prompt']!r}: {stream.text!r}, the reference {golden['greedy_text']!r}")
            check(stream.finish == "length", f"finish_reason {stream.finish}")
        check(server.end() == 0, "SIGTERM did not end the server with 0")
    print(f"streams: {len(streams)} at once, each the reference's text; {sum(s.pieces for s in streams)} pieces", flush=True)


def check_device(server: Server, made: int) -> None:
    listed = json.loads(server.get("/v1/models"))
    check("cuda" in json.dumps(listed), f"the model list does not name the device: {listed}")
    metrics = server.metrics()
    check(metrics["switchyard_generation_tokens_total"] >= made, "/metrics counts fewer tokens than were answered")
    phase = sum(v for name, v in metrics.items() if name.startswith("switchyard_phase_seconds_total") and "device" in name)
    check(phase > 0, "/metrics has no time on the device")
    print(f"device: named, {metrics['switchyard_generation_tokens_total']:.0f} tokens counted, {phase:.2f} s on the device", flush=True)


def measure(args: argparse.Namespace, model: str, server: Server) -> list[dict]:
    rows = []
    for clients in args.clients:
        rows += bench_serve(args.program, server.url,
                            ["-c", clients, "-n", args.requests * clients, "--warmup", clients, "--input-tokens", args.input,
                             "--output-tokens", args.output, "--ignore-eos", "--seed", 7], patience_s=120)
        row = rows[-1]
        row["served"] = model
        check(row["failed"] == 0 and row["answered"] == args.requests * clients, f"{row['failures']}")
        check(row["total_output_tokens"] == row["answered"] * args.output, "answers are not of full length")
        print(model, clients, *(f"{name} {value_of(row, name):.4g}" for name in FIGURES), sep=", ", flush=True)
    return rows


def drain(server: Server, output: int) -> None:
    streams = [Stream(server.url, [11 + i, 12, 13], output) for i in range(8)]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.begun.wait(60)
    running = sum(stream.finish is None for stream in streams)
    server.process.send_signal(signal.SIGTERM)
    late = Stream(server.url, [5, 6], 4)
    time.sleep(0.001)
    late.run()
    for stream in streams:
        stream.join()
    check(all(s.finish == "length" and s.error is None for s in streams), "SIGTERM cut a stream off")
    check(late.error is not None, "a request was taken after SIGTERM")
    code = server.process.wait(60)  # a second signal would end it at once
    check(code == 0, f"the server ended with {code}")
    print(f"drain: {running} streams were running at SIGTERM and ended whole; a later one was turned away; exit code 0", flush=True)


def run(args: argparse.Namespace) -> None:
    with args.out.open("a") as out:
        if "demo" in args.models:
            check_streams(args)
        for model in args.models:
            with serve(args, model, "bf16") as server:
                rows = measure(args, model, server)
                check_device(server, sum(row["total_output_tokens"] for row in rows))
                drain(server, args.output)
            for row in rows:
                out.write(json.dumps({**stamp(args.commit), **row}, separators=(",", ":")) + "\n")


def say(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.split("\n")[0]
    except OSError:
        return ""


def stamp(commit: str) -> dict[str, str]:
    """When, what and where, as in the records of scripts/gpu_check.sh."""
    smi = ["nvidia-smi", "--format=csv,noheader"]
    commit = commit or say(["git", "describe", "--always", "--dirty", "--exclude", "*"]) or "unknown"
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit, "device": say([*smi, "--query-gpu=name"]),
            "driver": say([*smi, "--query-gpu=driver_version"])}


def value_of(row: dict, figure: str) -> float:
    key, part = FIGURES[figure]
    return row[key][part] if part else row[key]


def report(path: pathlib.Path) -> None:
    print("| model, clients | " + " | ".join(FIGURES) + " |\n|---" + "|---" * len(FIGURES) + "|")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        values = (value_of(row, name) for name in FIGURES)
        print(f"| {row['served']}, {row['concurrency']} | " + " | ".join(f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in values) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--models", default="demo,olmoe-1b-7b", type=lambda text: text.split(","))
    parser.add_argument("--clients", default=[1, 8, 32, 64], type=lambda text: [int(c) for c in text.split(",")])
    parser.add_argument("--requests", default=4, type=int, help="of each client")
    parser.add_argument("--input", default=128, type=int)
    parser.add_argument("--output", default=64, type=int)
    parser.add_argument("--commit", default="", help="of BUILD, where no git can tell")
    args = parser.parse_args()
    if args.report:
        return report(args.build)
    if args.out is None:
        parser.error("OUT.jsonl is missing")
    args.program = next((p for p in sorted(args.build.rglob("switchyard")) if p.is_file()), None)
    check(args.program is not None, f"no switchyard in {args.build}: build it")
    run(args)


if __name__ == "__main__":
    sys.exit(main())
