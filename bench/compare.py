#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts two benchmark outputs side by side: JSON lines of bench_kernels, of baselines/peer_ggml_moe, or of both.

    bench/compare.py BEFORE AFTER [--noise 0.05]

Rows are matched by shape, tokens, dtype, layers and threads. The ratio is BEFORE over AFTER: above 1, AFTER is faster. A row within the noise is marked =, else faster or SLOWER; the
noise of a row is the larger of --noise and the spread between median and best of both sides. Exit status 1 when a row
is slower.
"""
import argparse
import json
import sys

KEY = ("shape", "tokens", "dtype", "layers", "threads")


def read(path):
    """Measurements of a file by key; the last line of a key wins. Other lines (ceilings) are skipped."""
    rows = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.startswith("{"):
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                sys.exit(f"{path}:{number}: not JSON: {error}")
            if "median_ms" in row:
                rows[tuple(row[name] for name in KEY)] = row
    if not rows:
        sys.exit(f"{path}: no measurements; expected JSON lines with median_ms")
    return rows


def spread(row):
    return row["median_ms"] / row["best_ms"] - 1


def label(row):
    return row.get("kernel", row["engine"])


def compare(before, after, noise):
    slower = 0
    print(f"{'shape':<16}{'T':>6}  {'dtype':<6}{'before ms':>11}{'after ms':>11}{'ratio':>8}{'best':>8}  verdict")
    for key in sorted(before.keys() & after.keys(), key=lambda k: (k[2], k[0], k[1])):
        a, b = before[key], after[key]
        ratio = a["median_ms"] / b["median_ms"]
        limit = max(noise, spread(a), spread(b))
        verdict = "faster" if ratio > 1 + limit else "SLOWER" if ratio < 1 / (1 + limit) else "="
        slower += verdict == "SLOWER"
        print(f"{key[0]:<16}{key[1]:>6}  {key[2]:<6}{a['median_ms']:>11.2f}{b['median_ms']:>11.2f}{ratio:>8.2f}"
              f"{a['best_ms'] / b['best_ms']:>8.2f}  {verdict}  ({label(a)} -> {label(b)})")
    for key in sorted(before.keys() ^ after.keys()):
        side = "before" if key in before else "after"
        print(f"only {side}: " + ", ".join(f"{name} {value}" for name, value in zip(KEY, key)))
    return slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--noise", type=float, default=0.05, help="relative difference that means nothing")
    options = parser.parse_args()
    return 1 if compare(read(options.before), read(options.after), options.noise) else 0


if __name__ == "__main__":
    sys.exit(main())
