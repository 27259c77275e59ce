#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the exercises A to F on this machine, keeps every row in a record, and writes docs/exercises.md with its figures.

    bench/exercises.py [BUILD]                  measure, then write the page (about ten minutes on two cores)
    bench/exercises.py --device cuda [BUILD]    measure A, B and E on a GPU, then write the page from the last record of the CPU
    bench/exercises.py --only A                 measure one exercise and print its part of the page
    bench/exercises.py --from RECORD.jsonl      only write the page and figures again
    bench/exercises.py --quick --out FOLDER     tiny sizes into a folder of its own: proves that all of this works

BUILD is a release build folder (default build/release). Figures need matplotlib (scripts/install_deps.sh --plots); with
--quick they are left out where it is missing. The page's text is bench/exercises.md.in; numbers come from the record.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import exercise_page  # noqa: E402  (beside this file)
import exercise_runs  # noqa: E402


def stamp() -> dict:
    """What a record says about when, what and where."""
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip() or "unknown"
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"date": datetime.date.today().isoformat(), "commit": commit, "cpu": cpu, "cores": os.cpu_count()}


def measure(program: pathlib.Path, work: pathlib.Path, sizes: exercise_runs.Sizes, record: pathlib.Path,
            names: list[str]) -> None:
    runner = exercise_runs.Runner(program, work, sizes)
    runner.trace_file.unlink(missing_ok=True)
    with record.open("w") as out:
        def write(row: dict) -> None:
            print(json.dumps(row, separators=(",", ":")), file=out, flush=True)

        write({"part": "machine", **stamp(), "ceilings": runner.ceilings()})
        for name, exercise in exercise_runs.EXERCISES.items():
            if name not in names:
                continue
            start, first = time.monotonic(), len(runner.commands)
            for row in exercise(runner):
                write(row)
            write({"exercise": name, "part": "commands", "commands": runner.commands[first:],
                   "seconds": round(time.monotonic() - start)})
            print(f"exercise {name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def draw(record: pathlib.Path, figures: pathlib.Path, needed: bool) -> None:
    done = subprocess.run([sys.executable, HERE / "plots/plot.py", record, figures], capture_output=True, text=True,
                          check=False)
    if done.returncode == 0:
        return
    missing = "No module named 'matplotlib'" in done.stderr
    if needed or not missing:
        hint = "\nscripts/install_deps.sh --plots, then .venv/bin/python bench/exercises.py" if missing else ""
        raise SystemExit(f"plots/plot.py ended with {done.returncode}:\n{done.stderr[-2000:]}{hint}")
    print("figures are left out: matplotlib is not installed", file=sys.stderr)


def measure_one(name: str, program: pathlib.Path, sizes: exercise_runs.Sizes) -> None:
    names = [name, exercise_runs.NEEDS.get(name, name)]
    with tempfile.TemporaryDirectory() as work:
        record = pathlib.Path(work) / "record.jsonl"
        measure(program, pathlib.Path(work), sizes, record, names)
        print(exercise_page.render(record, record.name, section=name))


def latest(device: str) -> pathlib.Path | None:
    return max((HERE / "results").glob(f"*-{device}-exercises.jsonl"), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path, nargs="?", default=ROOT / "build/release")
    parser.add_argument("--from", dest="record", type=pathlib.Path, help="a record: nothing is measured")
    parser.add_argument("--only", choices=list(exercise_runs.EXERCISES), help="one exercise, to standard output")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=pathlib.Path, help="write page, figures and record under this folder")
    args = parser.parse_args()
    program = (args.build / "switchyard").resolve()
    on_gpu = args.device != "cpu"
    sizes = exercise_runs.Sizes.on_device(args.device) if on_gpu else exercise_runs.Sizes()
    if args.quick:
        sizes = exercise_runs.Sizes.quick_run(args.device)
    if args.only:
        return measure_one(args.only, program, sizes)
    if args.quick and not args.out:
        parser.error("--quick needs --out: its numbers mean nothing and must not reach docs/")

    page = (args.out or ROOT / "docs") / "exercises.md"
    figures = (args.out or ROOT / "docs") / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    record, gpu_record = args.record, latest("cuda")
    if record is None:
        name = f"{datetime.date.today().isoformat()}-{args.device}-exercises.jsonl"
        record = (args.out or HERE / "results") / name
        names = list(exercise_runs.ON_DEVICE if on_gpu else exercise_runs.EXERCISES)
        with tempfile.TemporaryDirectory() as work:
            measure(program, pathlib.Path(work), sizes, record, names)
    if on_gpu:  # the rest of the page stays as the CPU's record has it
        record, gpu_record = latest("cpu"), record
    else:
        draw(record, figures, needed=not args.quick)
    page.write_text(exercise_page.render(record, record.name, gpu_record=gpu_record))
    print(page)


if __name__ == "__main__":
    main()
