#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a llama-bench (llama.cpp's or ik_llama.cpp's) on a GGUF file and prints one JSON object a
line with the median and best of its repetitions, which llama-bench's own tables leave out.

    llama_bench.py ENGINE LLAMA_BENCH MODEL.gguf [-p 64,512] [-n 128] [-r 5] [-t 2] [-- OPTIONS...]

ENGINE is the name for the output. Everything after -- goes to llama-bench as it is.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys


def main():
    own, extra = sys.argv[1:], []
    if "--" in own:
        own, extra = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("engine")
    parser.add_argument("llama_bench")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("-p", "--prompt", default="64,512")
    parser.add_argument("-n", "--generate", default="128")
    parser.add_argument("-r", "--repetitions", default="5")
    parser.add_argument("-t", "--threads", default="2")
    args = parser.parse_args(own)

    command = [args.llama_bench, "-m", str(args.model), "-p", args.prompt, "-n", args.generate,
               "-r", args.repetitions, "-t", args.threads, "-o", "json", *extra]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n"
                         f"{done.stderr[-2000:]}")
    # ik_llama.cpp writes a line or two about its settings before the array.
    for row in json.loads(done.stdout[done.stdout.index("[\n"):]):
        rates = row["samples_ts"]
        kind = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        print(json.dumps({
            "engine": args.engine, "model": args.model.stem, "test": kind,
            "dtype": row["model_type"].split()[-1].lower(), "threads": row["n_threads"],
            "median_tps": round(statistics.median(rates), 2), "best_tps": round(max(rates), 2),
            "mean_tps": round(row["avg_ts"], 2), "stddev_tps": round(row["stddev_ts"], 2),
            "runs": len(rates)}, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
