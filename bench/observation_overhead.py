#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what watching a server costs, and appends the figure to a record.

    bench/observation_overhead.py PROGRAM OUT.jsonl [--model models/demo] [--rounds 20] [--seconds 4] [--clients 1,8]

Two servers take turns under the same load. One is watched as closely as can be: phases, every expert in the metrics, a JSON
line for each request, and once a second what the dashboard and Prometheus ask. The other has all of it off and nobody asks.
The ratio is seconds for a token, watched over not watched; neighbouring rounds are compared, in changing order. The promise
is a ratio below 1.01; it is kept when the whole 95 % interval lies below, broken when the whole interval lies above, and
else undecided: run more rounds on a quieter machine. Ends with 1 when it is broken.
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

from against_peers import stamp

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMISE = 1.01
LEAST_ROUNDS = 10  # fewer resample to an interval that means nothing
WATCHED = ["--profile", "--metrics-expert-detail", "expert", "--log-format", "json"]
UNWATCHED = ["--no-profile", "--metrics-expert-detail", "off"]
TOKENS = 128
PROMPTS = ["The kernel provides", "Was macht der Befehl ls?", "def main():", "In the beginning", "What is a river?"]


class Server:
    def __init__(self, program: str, model: str, options: list[str], watched: bool):
        command = [program, "serve", model, "--port", "0", *options]
        self.watched = watched
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"(http://127.0.0.1:\d+)", line):
                self.url = found[1]
                break
        else:
            raise SystemExit(f"observation_overhead: the server did not start: {' '.join(command)}")
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        """Somebody reads the log, as a collector of logs would."""
        for _ in self.process.stderr:
            pass

    def ask(self, path: str, body: dict | None = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()

    def seconds_for_a_token(self, clients: int, seconds: float) -> float:
        """Under closed-loop load of that many clients, by the clock of the wall."""
        end, counts = time.perf_counter() + seconds, [0] * clients
        going = threading.Event()
        going.set()

        def client(index: int) -> None:
            number = index
            while time.perf_counter() < end:
                self.ask("/v1/completions", {"prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": TOKENS, "ignore_eos": True, "seed": number})
                counts[index] += TOKENS
                number += 1

        def watcher() -> None:
            while going.is_set():
                for path in ("/metrics", "/v1/moe/stats"):
                    self.ask(path)
                time.sleep(1)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
        watching = threading.Thread(target=watcher)
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        if self.watched:
            watching.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - start
        going.clear()
        if self.watched:
            watching.join()
        return took / sum(counts)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the medians of resamples."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[-101]


def verdict(row: dict) -> str:
    if row["rounds"] < LEAST_ROUNDS:
        return "undecided"
    if row["ratio_high"] < PROMISE:
        return "kept"
    return "BROKEN" if row["ratio_low"] > PROMISE else "undecided"


def measure(on: Server, off: Server, clients: int, rounds: int, seconds: float) -> dict:
    for server in (on, off):
        server.seconds_for_a_token(clients, seconds)  # warm
    ratios = []
    for i in range(rounds):
        order = (on, off) if i % 2 == 0 else (off, on)
        times = {server.watched: server.seconds_for_a_token(clients, seconds) for server in order}
        ratios.append(times[True] / times[False])
    low, high = interval(ratios)
    return {"bench": "observation_overhead", "case": f"{clients} clients", "rounds": rounds, "median_ratio": statistics.median(ratios),
            "ratio_low": low, "ratio_high": high, "watched": WATCHED, "unwatched": UNWATCHED}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--clients", default="1,8")
    arguments = parser.parse_args()
    rows, servers = [], []
    try:
        for options, watched in ((WATCHED, True), (UNWATCHED, False)):
            servers.append(Server(arguments.program, arguments.model, options, watched))
        for clients in map(int, arguments.clients.split(",")):
            rows.append({**stamp(), **measure(*servers, clients, arguments.rounds, arguments.seconds)})
    finally:
        for server in servers:
            server.stop()
    with open(arguments.out, "a") as out:
        out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    print("| load | watched / not | 95 % interval | below 1 % |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['case']} | {row['median_ratio']:.4f} | {row['ratio_low']:.4f} to {row['ratio_high']:.4f} | {verdict(row)} |")
    return 1 if any(verdict(row) == "BROKEN" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
