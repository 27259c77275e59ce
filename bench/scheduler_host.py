#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the host time of a decoding step outside the model and appends the figures to a record.

    bench/scheduler_host.py BUILD OUT.jsonl [--sequences 256] [--steps 2000] [--repetitions 9]

BUILD is the folder of the `bench` preset. Microseconds are the median of the repetitions' medians; instructions are
those of callgrind, counted between a short and a long run, so that the start cancels out (left out without valgrind).
The promise is 50 us a step at 256 sequences, for a whole turn of the loop, and for the scheduler alone beside an urgent
request that waits in vain. Ends with 1 when it is broken.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

from against_peers import output_of, stamp

PROMISE_US = 50
SHORT_STEPS, LONG_STEPS = 64, 192


def instructions(program: pathlib.Path, case: str, sequences: int, steps: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, case, sequences, steps, 1]
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repetitions", type=int, default=9)
    arguments = parser.parse_args()
    program = arguments.build / "bench/bench_scheduler"
    rows = [{**stamp(), **row} for row in
            output_of([program, "all", arguments.sequences, arguments.steps, arguments.repetitions])]
    if shutil.which("valgrind"):
        for row in rows:
            short, long = (instructions(program, row["case"], arguments.sequences, steps)
                           for steps in (SHORT_STEPS, LONG_STEPS))
            row["instructions_per_step"] = (long - short) // (LONG_STEPS - SHORT_STEPS)
    with open(arguments.out, "a") as out:
        out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    print("| case | us a step | lowest to highest median | p99 | instructions a step |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['case']} | {row['us_per_step']:.1f} | {row['us_lowest']:.1f} to {row['us_highest']:.1f} "
              f"| {row['us_p99']:.1f} | {row.get('instructions_per_step', '-')} |")
    return 1 if any(row["us_per_step"] > PROMISE_US for row in rows if row["case"] in ("turn", "urgent")) else 0


if __name__ == "__main__":
    sys.exit(main())
