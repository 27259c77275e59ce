#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/benchmarks.md from a record of against_peers.py.

    bench/report.py bench/results/RECORD.jsonl

Ratios compare medians over the rounds of one record; the spread is (largest - smallest) / median over the rounds. A
ratio above 1 means that Switchyard is faster.
"""

import collections
import json
import statistics
import sys


def median_and_spread(values: list[float]) -> tuple[float, float]:
    middle = statistics.median(values)
    return middle, (max(values) - min(values)) / middle


def layer_table(rows: list[dict]) -> None:
    times = collections.defaultdict(list)
    floors = collections.defaultdict(list)
    for row in rows:
        if "median_ms" not in row:
            continue
        key = (row["shape"], row["tokens"])
        times[key, row["engine"]].append(row["median_ms"])
        if "measured_over_floor" in row:
            floors[key].append(row["measured_over_floor"])
    peers = sorted({engine for _, engine in times} - {"switchyard"})
    heads = [f"{peer} ms | ratio" for peer in peers]
    print("| shape | T | switchyard ms (spread) | measured/floor | " + " | ".join(heads) + " |")
    print("|" + "---|" * (4 + 2 * len(peers)))
    for key in dict.fromkeys(k for k, _ in times):
        if (key, "switchyard") not in times:
            continue
        ours, spread = median_and_spread(times[key, "switchyard"])
        cells = [key[0], str(key[1]), f"{ours:.2f} ({spread:.0%})",
                 f"{statistics.median(floors[key]):.2f}" if floors[key] else "-"]
        for peer in peers:
            if (key, peer) in times:
                theirs, _ = median_and_spread(times[key, peer])
                cells += [f"{theirs:.2f}", f"**{theirs / ours:.2f}**"]
            else:
                cells += ["-", "-"]
        print("| " + " | ".join(cells) + " |")


def model_table(rows: list[dict]) -> None:
    rates = collections.defaultdict(list)
    for row in rows:
        rates[(row["model"], row["test"]), row["engine"]].append(row["median_tps"])
    peers = sorted({engine for _, engine in rates} - {"switchyard"})
    print("| model | test | switchyard tok/s (spread) | " + " | ".join(f"{p} tok/s | ratio" for p in peers) + " |")
    print("|" + "---|" * (3 + 2 * len(peers)))
    for key in dict.fromkeys(k for k, _ in rates):
        ours, spread = median_and_spread(rates[key, "switchyard"])
        cells = [*key, f"{ours:.1f} ({spread:.0%})"]
        for peer in peers:
            if (key, peer) in rates:
                theirs, _ = median_and_spread(rates[key, peer])
                cells += [f"{theirs:.1f}", f"**{ours / theirs:.2f}**"]
            else:
                cells += ["-", "-"]
        print("| " + " | ".join(cells) + " |")


def undisturbed_share(rows: list[dict]) -> None:
    """What a busy core leaves of our rates, where the record holds both kinds of rows."""
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        if row["engine"] != "switchyard":
            continue
        if "median_tps" in row:
            values[row["model"], row["test"]][row["rival"]].append(row["median_tps"])
        elif "median_ms" in row:
            values[row["shape"], f"T = {row['tokens']}"][row["rival"]].append(1e3 / row["median_ms"])
    print("| what | alone, per s | beside a busy process | share |\n|---|---|---|---|")
    for key, both in values.items():
        if len(both) == 2:
            alone, beside = (statistics.median(both[rival]) for rival in (False, True))
            print(f"| {key[0]}, {key[1]} | {alone:.4g} | {beside:.4g} | **{beside / alone:.2f}** |")


def print_record(rows: list[dict]) -> None:
    """Ceilings, layers and models of rows that ran under one instruction set."""
    ceilings = [row["ceilings"] for row in rows if "ceilings" in row]
    if ceilings:
        ceiling_table(ceilings)
    layers = [row for row in rows if row.get("part") == "layers"]
    models = [row for row in rows if row.get("part") == "models"]
    if layers:
        print("MoE layers alone, 4 layers, bf16\n")
        layer_table(layers)
        print()
    if models:
        print("Whole models, bf16\n")
        model_table(models)
        print()


def ceiling_table(ceilings: list[dict]) -> None:
    names = {"read_gbps_one": "read, one thread, GB/s", "read_gbps_all": "read, all threads, GB/s",
             "amx_gflops": "AMX bf16, all threads, GFLOP/s", "fma_gflops": "f32 FMA, all threads, GFLOP/s"}
    print("| ceiling | median (spread) |\n|---|---|")
    for key, name in names.items():
        if any(c[key] for c in ceilings):
            middle, spread = median_and_spread([c[key] for c in ceilings])
            print(f"| {name} | {middle:.1f} ({spread:.0%}) |")
    print()


def main() -> None:
    rows = [json.loads(line) for path in sys.argv[1:] for line in open(path)]
    first = rows[0]
    print(f"{first['date']}, commit {first['commit']}, {first['cpu']}, {first['cores']} cores\n")
    for cap in dict.fromkeys(row.get("cap", "native") for row in rows):
        if cap != "native":
            print(f"### Instruction set: {cap}\n")
        print_record([row for row in rows if row.get("cap", "native") == cap and not row.get("rival")])
    if any(row.get("rival") for row in rows):
        print("### Beside one busy process\n")
        undisturbed_share(rows)


if __name__ == "__main__":
    main()
