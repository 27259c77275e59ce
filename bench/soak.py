#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps a server at twice its capacity for a time, with clients that leave, and looks whether it stays what it was.

    bench/soak.py BUILD [--minutes 30] [--model models/demo] [--out bench/results/DATE-serve-soak.jsonl] [--nice 19]

BUILD is a build folder with `switchyard` in it. First the capacity is measured (a closed loop of as many clients as run
at once), then requests arrive at twice that rate (Poisson): for a sixth of the time from clients that all stay, so that
both sides must count the same, then a fifth of them from clients that leave. Passes, with exit code 0, when
  memory     the resident set of the last third of the time is at most 1 MiB and 256 bytes a request above that of the second
  files      as many are open at the end as before
  nothing    is lost: every request was answered, turned away with 429, or left by its client as planned
  counters   of /metrics agree with what the clients saw, nobody runs or waits, and no block of the cache is in use
  the end    SIGTERM ends the server with 0
One row goes to the record: the sums, the checks, and samples over time.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from serve_process import ROOT, Server, bench_serve, free_port

RUNNING, QUEUED = 8, 8
INPUT, OUTPUT, LONGEST = "16:64", "16:48", 48
LEAVE = 0.2
BORN_LATER = {"switchyard_client_disconnects_total"}  # counters that appear with their first event
GROWTH, GROWTH_A_REQUEST = 1 << 20, 256


class Sampler(threading.Thread):
    """Memory, files and requests of a server, now and then."""

    def __init__(self, server: Server, every_s: float):
        super().__init__(daemon=True)
        self.server, self.every_s, self.samples, self.over = server, every_s, [], threading.Event()
        self.missed, self.error = 0, None
        self.start_s = time.monotonic()

    def run(self) -> None:
        try:
            while not self.over.wait(self.every_s):
                self.sample()
        except Exception as error:  # pylint: disable=broad-except; the run must not pass without its samples
            self.error = repr(error)

    def sample(self) -> None:
        try:
            metrics = self.server.metrics(1)
        except OSError:  # a busy machine
            self.missed += 1
            return
        self.samples.append({"s": round(time.monotonic() - self.start_s, 1), "rss": self.server.resident_bytes(),
                             "files": self.server.open_files(), "waiting": total(metrics, "switchyard_requests_waiting"),
                             "running": total(metrics, "switchyard_requests_running")})

    def covers(self, seconds: float) -> bool:
        """Four of five planned samples are there, up to the end."""
        return (self.error is None and len(self.samples) >= 0.8 * seconds / self.every_s - 1 and len(self.samples) >= 6
                and self.samples[-1]["s"] > 0.9 * seconds)


def total(metrics: dict[str, float], name: str, **labels: str) -> float:
    """The sum of the series of that name; labels that nobody had are 0, a name that nobody knows is an error."""
    series = {key: value for key, value in metrics.items() if key.split("{")[0] == name}
    if not series and name not in BORN_LATER:
        raise SystemExit(f"/metrics has no {name}: was it renamed?")
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(value for key, value in series.items() if all(label in key for label in wanted))


def counter_checks(client: dict, before: dict, after: dict) -> dict[str, bool]:
    """A client that leaves may do so before its request was read, or after its answer was complete: by so many may the
    two sides differ, and in one direction."""
    def grew(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)
    left = client["cancelled"]
    calls = {"route": "/v1/completions", "method": "POST"}
    ok, away = (grew("switchyard_http_requests_total", code=code, **calls) for code in ("200", "429"))
    every = grew("switchyard_http_requests_total", **calls)
    ended = {reason: grew("switchyard_requests_finished_total", finish_reason=reason)
             for reason in ("stop", "length", "cancelled", "error")}
    sent = client["answered"] + client["turned_away"] + left + client["failed"]
    gone = grew("switchyard_client_disconnects_total")
    return {
        "every answer is 200 or 429": every == ok + away,
        "calls answered by the server are those sent, but for those left": 0 <= sent - every <= left,
        "turned away": 0 <= away - client["turned_away"] <= left,
        "every choice that came in has ended": 0 <= sum(ended.values()) - ok <= left,
        "answered choices ended well": 0 <= ended["stop"] + ended["length"] - client["answered"] <= left,
        "no choice ended with an error": ended["error"] == 0,
        "choices were cancelled for those who left alone": ended["cancelled"] <= gone <= left,
        "tokens": 0 <= grew("switchyard_generation_tokens_total") - client["total_output_tokens"] <= left * LONGEST,
    }


def rest_checks(before: dict, after: dict) -> dict[str, bool]:
    blocks = "switchyard_kv_cache_blocks"
    every = total(before, blocks)
    return {
        "nobody runs": total(after, "switchyard_requests_running") == 0,
        "nobody waits": total(after, "switchyard_requests_waiting") == 0,
        "no block is in use": total(after, blocks, state="used") == 0,
        "no block is lost": total(after, blocks) == every > 0,
        "no connection is left": total(after, "switchyard_http_connections", state="streaming") == 0,
    }


def wait_quiet(server: Server) -> dict[str, float]:
    """The counters when the last requests of clients that left have gone."""
    for _ in range(300):
        metrics = server.metrics()
        if total(metrics, "switchyard_requests_running") + total(metrics, "switchyard_requests_waiting") == 0:
            return metrics
        time.sleep(0.1)
    return server.metrics()


def growth_of(samples: list[dict]) -> int:
    """Bytes, from the middle third to the last."""
    third = len(samples) // 3
    if third == 0:
        return 0
    middle, last = samples[third:2 * third], samples[2 * third:]
    return int(statistics.median(s["rss"] for s in last) - statistics.median(s["rss"] for s in middle))


def load(args: argparse.Namespace, server: Server, rate: float, seconds: float, leave: float, seed: int) -> dict:
    return bench_serve(args.build / "switchyard", server.url,
                       ["--request-rate", f"{rate:.2f}", "--duration", seconds, "--cancel-rate", leave, "--seed", seed, "--warmup", 0,
                        "--timeout", 300, "--input-tokens", INPUT, "--output-tokens", OUTPUT, "--ignore-eos"], args.nice)[0]


def soak(args: argparse.Namespace, server: Server) -> dict:
    capacity = bench_serve(args.build / "switchyard", server.url,
                           ["-c", RUNNING, "-n", 12 * RUNNING, "--input-tokens", INPUT, "--output-tokens", OUTPUT, "--ignore-eos"],
                           args.nice)[0]["requests_per_s"]
    start, files = wait_quiet(server), server.open_files()
    seconds = args.minutes * 60
    sampler = Sampler(server, max(seconds / 180, 1))
    sampler.start()
    steady = load(args, server, 2 * capacity, seconds / 6, 0, 1)
    between = wait_quiet(server)
    client = load(args, server, 2 * capacity, seconds * 5 / 6, LEAVE, 2)
    sampler.over.set()
    sampler.join()
    after = wait_quiet(server)
    time.sleep(1)
    growth = growth_of(sampler.samples)
    requests = sum(row[kind] for row in (steady, client) for kind in ("answered", "turned_away", "cancelled", "failed"))
    checks = {
        "samples cover the time": sampler.covers(seconds),
        "memory is flat": growth <= GROWTH + GROWTH_A_REQUEST * requests / 3,
        "no file is left open": server.open_files() <= files,
        "nothing failed": steady["failed"] + client["failed"] == 0,
        "no connection was closed under a request": steady["resent"] + client["resent"] == 0,
        "something was answered, turned away and left": min(client["answered"], client["turned_away"], client["cancelled"]) > 0,
        **{f"all stay: {name}": good for name, good in counter_checks(steady, start, between).items()},
        **counter_checks(client, between, after), **rest_checks(start, after)}
    return {"bench": "soak", "minutes": args.minutes, "model": args.model, "running": RUNNING, "queued": QUEUED,
            "capacity_requests_per_s": capacity, "growth_bytes": growth, "missed_samples": sampler.missed, "sampler_error": sampler.error,
            "checks": checks, "steady": steady, "client": client, "counters": {k: v for k, v in after.items() if k.startswith((
                "switchyard_http_requests_total", "switchyard_requests_", "switchyard_client_disconnects"))
                and "_bucket" not in k}, "samples": sampler.samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--nice", type=int, default=19)
    args = parser.parse_args()
    today = datetime.date.today().isoformat()
    out = args.out or ROOT / f"bench/results/{today}-serve-soak.jsonl"
    port = free_port()
    command = [args.build / "switchyard", "serve", ROOT / args.model, "--port", port, "--threads", args.threads,
               "--max-sequences", RUNNING, "--max-queued-requests", QUEUED]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "server.log"
        with Server(command, port, log, nice=args.nice) as server:
            row = soak(args, server)
            row["checks"]["SIGTERM ends it with 0"] = server.end() == 0
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip()
    row = {"date": today, "commit": commit, "cores": os.cpu_count(), **row}
    with out.open("a") as record:
        print(json.dumps(row, separators=(",", ":")), file=record)
    for check, good in row["checks"].items():
        print(f"{'ok  ' if good else 'FAIL'} {check}")
    client = row["client"]
    print(f"{client['answered']} answered, {client['turned_away']} turned away, {client['cancelled']} left, {client['failed']} failed; "
          f"memory grew by {row['growth_bytes'] / 2**20:.1f} MiB; {out}")
    sys.exit(0 if all(row["checks"].values()) else 1)


if __name__ == "__main__":
    main()
