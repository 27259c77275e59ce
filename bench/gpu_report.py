#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the GPU tables of docs/benchmarks.md from records of one run on one machine.

    bench/gpu_report.py RECORD.jsonl ... [--all-peers] [--sustained-tflops 667]

Joins rows of bench_gpu_moe with those of baselines/gpu_layer_peers.py, and rows of `switchyard bench latency --random`
with those of baselines/transformers_gpu.py and baselines/llama_gpu.py. Ours is the first entry of a cell: the order of the table is the choice of
the program. Ratios above 1 mean that Switchyard is faster. Aims are in gpu_targets.json, scaled by floor over the floor
that they were set for, so that a draw that hits more experts has more time.
"""

import argparse
import json
import pathlib

TARGETS = json.loads(pathlib.Path(__file__).with_name("gpu_targets.json").read_text())
# layers, D, F, E, K, bytes of a layer's other matrices (bf16), KV bytes of a token in all layers, bytes of the logits,
# width of all query heads
MODELS = {
    "olmoe-1b-7b": (16, 2048, 1024, 64, 8, 2 * 4 * 2048 * 2048 + 2 * 64 * 2048, 16 * 2 * 2 * 2048, 2 * 50304 * 2048,
                    2048),
    "qwen3-30b-a3b": (48, 2048, 768, 128, 8, 2 * 2048 * (2 * 4096 + 2 * 512) + 2 * 128 * 2048, 48 * 2 * 2 * 512,
                      2 * 151936 * 2048, 4096),
    "mixtral-8x7b": (32, 4096, 14336, 8, 2, 2 * 4096 * (2 * 4096 + 2 * 1024) + 2 * 8 * 4096, 32 * 2 * 2 * 1024,
                     2 * 32000 * 4096, 4096),
}


def read(paths: list[pathlib.Path]) -> list[dict]:
    rows = []
    for path in paths:
        lines = path.read_text().splitlines()
        rows += [json.loads(line) for line in lines if line.startswith("{")]
    return rows


def name_of(entry: str) -> str:
    return entry.removeprefix("peer.").removeprefix("moe_ffn.cuda.").replace("_", " ")


class Layers:
    def __init__(self, rows: list[dict]):
        self.ours: dict[tuple, dict] = {}
        self.peers: dict[tuple, dict[str, dict]] = {}
        for row in rows:
            if row.get("bench") != "gpu_moe":
                continue
            uneven = "Zipf" if row["zipf"] else f"spread {row['spread']:g}" if row.get("spread") else ""
            cell = (row["shape"], row["tokens"], uneven)
            if row["entry"].startswith("peer."):
                self.peers.setdefault(cell, {})[row["entry"]] = row
            else:
                self.ours.setdefault(cell, row)

    def best_peer(self, cell: tuple) -> dict | None:
        return min(self.peers.get(cell, {}).values(), key=lambda row: row["us"], default=None)

    def target(self, cell: tuple) -> float | None:
        shape, tokens, uneven = cell
        aim = None if uneven else TARGETS["layers"].get(shape, {}).get(str(tokens))
        return aim[0] * self.ours[cell]["floor_us"] / aim[1] if aim else None

    def print(self) -> None:
        print("| shape | tokens | ours us (of floor) | floor | stream | aim | best peer us | peer | best peer / ours |")
        print("|---|---|---|---|---|---|---|---|---|")
        for cell, row in self.ours.items():
            peer, target = self.best_peer(cell), self.target(cell)
            cells = [cell[0], f"{cell[1]}{', ' * bool(cell[2])}{cell[2]}",
                     f"{row['us']:.1f} ({row['us'] / row['floor_us']:.2f})",
                     f"{row['floor_us']:.1f}", f"{row['stream_us']:.1f}" if cell[1] <= 256 else "-",
                     f"{target:.1f}" if target else "-"]
            cells += ([f"{peer['us']:.1f}", name_of(peer["entry"]), f"**{peer['us'] / row['us']:.2f}**"] if peer
                      else ["-"] * 3)
            print("| " + " | ".join(cells) + " |")
        print()
        self.print_misses()

    def print_misses(self) -> None:
        slow, behind = [], []
        for cell, row in self.ours.items():
            name = " ".join(map(str, cell)).rstrip()
            target, peer = self.target(cell), self.best_peer(cell)
            if target and row["us"] > target:
                slow.append(f"{name} {row['us'] / target - 1:.0%}")
            if peer and peer["us"] < row["us"]:
                behind.append(f"{name} {row['us'] / peer['us'] - 1:.0%} ({name_of(peer['entry'])})")
        compared = sum(cell in self.peers for cell in self.ours)
        print(f"Slower than the aim: {', '.join(slow) or 'none'}.")
        print(f"Behind the best peer, of {compared} cells: {', '.join(behind) or 'none'}.\n")

    def print_all(self) -> None:
        entries = sorted({entry for peers in self.peers.values() for entry in peers})
        print("| shape | tokens | ours | " + " | ".join(map(name_of, entries)) + " |")
        print("|" + "---|" * (3 + len(entries)))
        for cell, peers in self.peers.items():
            ours = self.ours.get(cell)
            cells = [cell[0], f"{cell[1]}{', ' * bool(cell[2])}{cell[2]}", f"{ours['us']:.1f}" if ours else "-"]
            cells += [f"{peers[entry]['us']:.1f}" if entry in peers else "-" for entry in entries]
            print("| " + " | ".join(cells) + " |")
        print()


def decode_floor(name: str, batch: int, steps: int, read_tbs: float) -> float:
    """Seconds of a step: bytes of the experts that uniform routing would hit, of all else once, and of half the KV."""
    layers, width, ffn, experts, top_k, other, kv, logits, _ = MODELS[name]
    hit = experts * (1 - (1 - top_k / experts) ** batch)
    return (layers * (other + hit * 6 * width * ffn) + logits + batch * kv * steps / 2) / read_tbs / 1e12


def product_operations(name: str, tokens: int) -> float:
    """Operations of a prompt's products."""
    layers, width, ffn, _, top_k, other, _, _, _ = MODELS[name]
    return tokens * layers * (other + top_k * 6 * width * ffn)


def prompt_floor(name: str, row: dict, tflops: float, read_tbs: float | None) -> float:
    """Seconds of a prompt in one step: the larger of the operations of its products and of causal attention at the
    sustained peak, and the bytes of the weights that it touches over the read bandwidth (where the row counts them)."""
    layers, width, ffn, _, _, other, _, logits, queries = MODELS[name]
    tokens = int(row["test"][2:])
    floor = (product_operations(name, tokens) + tokens * layers * 2 * queries * (tokens + 1)) / tflops / 1e12
    if read_tbs and row.get("experts_touched"):
        floor = max(floor, (layers * (other + row["experts_touched"] * 6 * width * ffn) + logits) / read_tbs / 1e12)
    return floor


def model_rows(rows: list[dict]) -> dict[tuple, dict[str, dict]]:
    """(model, test without its number for decoding, batch, spread of its random weights) to engine to row; the last row of a
    kind counts, of llama.cpp, which has a row for each configuration, the best."""
    found: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        if "median_tokens_per_s" not in row or not row.get("random"):
            continue
        test = "tg" if row["test"].startswith("tg") else row["test"].replace("pp4095", "pp4096")  # of 4096 positions
        key = (row["random"], test, row.get("batch", 1), row.get("random_spread", -1))  # -1: before there was one
        engines, engine = found.setdefault(key, {}), row.get("engine", "switchyard")
        last = engines.get(engine)
        if engine != "llama.cpp" or not last or row["median_tokens_per_s"] > last["median_tokens_per_s"]:
            engines[engine] = row
    return found


def load_cells(row: dict | None) -> list[str]:
    row = row or {}
    return [f"{row['experts_touched']:.1f}" if row.get("experts_touched") else "-",
            f"{row['load_imbalance']:.2f}" if row.get("load_imbalance") else "-"]


def print_models(rows: list[dict], tflops: float) -> None:
    bandwidths = [row["read_tbs"] for row in rows if row.get("bench") == "gpu_moe" and "stream_us" in row]
    found = model_rows(rows)
    peers = [peer for peer in ("transformers", "llama.cpp") if any(peer in engines for engines in found.values())]
    print("| model | test | batch | spread | experts touched | hottest / mean | ours tokens/s | share of the floor |"
          + "".join(f" {peer} tokens/s | ours / {peer} |" for peer in peers))
    print("|" + "---|" * (8 + 2 * len(peers)))
    for key in sorted(found, key=lambda key: (key[0], key[1][:2], len(key[1]), key)):
        (name, test, batch, spread), engines = key, found[key]
        ours = engines.get("switchyard")
        share = "-"
        if ours and "floor_share" in ours:  # of the experts that were really touched
            share = f"{ours['floor_share']:.2f}"
        elif ours and name in MODELS and (test != "tg" or bandwidths):
            rate, size = ours["median_tokens_per_s"], int(ours["test"][2:])
            floor = (decode_floor(name, batch, size, bandwidths[0]) / batch if test == "tg"
                     else prompt_floor(name, ours, tflops, bandwidths[0] if bandwidths else None) / size)
            share = f"{rate * floor:.2f}"
            if test != "tg":
                share += f", products alone {rate * product_operations(name, size) / size / tflops / 1e12:.2f}"
        cells = [name, test, str(batch), f"{spread:g}" if spread >= 0 else "-"] + load_cells(ours)
        cells += [f"{ours['median_tokens_per_s']:.1f}" if ours else "-", share]
        for theirs in map(engines.get, peers):
            cells += [f"{theirs['median_tokens_per_s']:.1f}" if theirs else "-",
                      f"**{ours['median_tokens_per_s'] / theirs['median_tokens_per_s']:.2f}**" if ours and theirs else "-"]
        print("| " + " | ".join(cells) + " |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("records", nargs="+", type=pathlib.Path)
    parser.add_argument("--all-peers", action="store_true", help="a table of every peer besides")
    parser.add_argument("--sustained-tflops", type=float, default=667, help="dense bf16 under the power limit")
    options = parser.parse_args()
    rows = read(options.records)
    layers = Layers(rows)
    if layers.ours:
        first = next(iter(layers.ours.values()))
        print(f"{first.get('date', '')} commit {first.get('commit', '?')}, {first['device']}, read bandwidth "
              f"{first['read_tbs']} TB/s\n")
        layers.print()
    if options.all_peers and layers.peers:
        layers.print_all()
    if model_rows(rows):
        print_models(rows, options.sustained_tflops)


if __name__ == "__main__":
    main()
