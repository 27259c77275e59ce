#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the profile costs (zones, phases by layer) and appends the figures to a record.

    bench/instrumentation_overhead.py BUILD OUT.jsonl [--model models/demo] [--rounds 40] [--threads 0]

BUILD is the folder of the `bench` preset. Runs with and without the profile take turns inside one engine; the ratio is
time inside steps, with over without. The promise is a ratio below 1.01 for one sequence, for sixteen and for a prompt;
it is kept when the whole 95 % interval lies below, broken when the whole interval lies above, and else undecided: run
more rounds on a quieter machine. Ends with 1 when it is broken.
"""

import argparse
import json
import pathlib
import sys

from against_peers import output_of, stamp

PROMISE = 1.01
LEAST_ROUNDS = 20  # fewer resample to an interval that means nothing
ROOT = pathlib.Path(__file__).resolve().parent.parent


def verdict(row: dict) -> str:
    if row["rounds"] < LEAST_ROUNDS:
        return "undecided"
    if row["ratio_high"] < PROMISE:
        return "kept"
    return "BROKEN" if row["ratio_low"] > PROMISE else "undecided"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    command = [arguments.build / "bench/bench_profile_overhead", arguments.model, arguments.rounds, arguments.threads]
    rows = [{**stamp(), **row} for row in output_of(command)]
    with open(arguments.out, "a") as out:
        out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    print("| steps | with / without | 95 % interval | below 1 % |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['case']} | {row['median_ratio']:.4f} | {row['ratio_low']:.4f} to {row['ratio_high']:.4f} "
              f"| {verdict(row)} |")
    return 1 if any(verdict(row) == "BROKEN" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
