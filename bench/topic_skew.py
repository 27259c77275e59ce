#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Topic skew of the demonstration model: even over the mixed batches of training, uneven on one topic's traffic.

    bench/topic_skew.py BUILD OUT_FOLDER [--model models/demo] [--chunk-tokens 256]

Records the held-out text of every domain (models/demo/held_out/*.txt) with `switchyard record`, each as a topic, and writes
to OUT_FOLDER: topics.swt, topics.json (`switchyard stats --json`), topics.svg (the figure) and topics.md (the table).
The table sets the load of each domain beside that of the trainer's own count over the whole validation text
(routing_stats.json): two programs and two samples of the same domains, so their imbalances must agree.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[:2]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def imbalance(load: list[float]) -> float:
    """Picks of the hottest expert over the mean."""
    return max(load) * len(load) / sum(load)


def distance(a: list[float], b: list[float]) -> float:
    """Half the sum of the differences of shares."""
    return sum(abs(x / sum(a) - y / sum(b)) for x, y in zip(a, b)) / 2


def training_loads(path: pathlib.Path) -> dict[str, list[list[int]]]:
    """[domain][layer][expert] picks, from counts[layer][expert][domain]."""
    stats = json.loads(path.read_text())
    return {domain: [[expert[d] for expert in layer] for layer in stats["counts"]]
            for d, domain in enumerate(stats["domains"])}


def evenly_mixed(loads: list[list[list[float]]]) -> list[float]:
    """[layer] imbalance when every domain has the same weight."""
    layers = []
    for layer in range(len(loads[0])):
        shares = [[x / sum(load[layer]) for x in load[layer]] for load in loads]
        layers.append(imbalance([sum(column) for column in zip(*shares)]))
    return layers


def table(topics: list[dict], training: dict[str, list[list[int]]]) -> str:
    lines = ["| topic | tokens | imbalance | worst layer | trainer's count | distance to it |", "|---|---|---|---|---|---|"]
    for topic in sorted(topics, key=lambda t: -statistics.mean(t["imbalance"])):
        row = [topic["topic"], str(topic["tokens"]), f"{statistics.mean(topic['imbalance']):.2f}",
               f"{max(topic['imbalance']):.2f}"]
        loads = training.get(topic["topic"])
        if loads:
            row.append(f"{statistics.mean(imbalance(load) for load in loads):.2f}")
            row.append(f"{statistics.mean(distance(a, b) for a, b in zip(topic['load'], loads)):.3f}")
        lines.append("| " + " | ".join(row + ["-"] * (6 - len(row))) + " |")
    both = [topic["topic"] for topic in topics if topic["topic"] in training]
    mixed = evenly_mixed([topic["load"] for topic in topics])
    row = ["**evenly mixed**", str(sum(t["tokens"] for t in topics)), f"**{statistics.mean(mixed):.2f}**",
           f"{max(mixed):.2f}"]
    if both:
        row += [f"{statistics.mean(evenly_mixed([training[name] for name in both])):.2f}", ""]
    lines.append("| " + " | ".join(row + ["-"] * (6 - len(row))) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/demo")
    parser.add_argument("--chunk-tokens", type=int, default=256)
    arguments = parser.parse_args()
    texts = sorted((arguments.model / "held_out").glob("*.txt"))
    if not texts:
        raise SystemExit(f"{arguments.model}/held_out: holds no *.txt, expected one a topic")
    arguments.out.mkdir(parents=True, exist_ok=True)
    trace, program = arguments.out / "topics.swt", arguments.build / "switchyard"
    run(program, "record", arguments.model, "-q", "--prefill-only", "--picks", "--chunk-tokens",
        arguments.chunk_tokens, "-o", trace, *(word for text in texts for word in ("--text", text)))
    report = run(program, "stats", trace, "--json", "--plot", arguments.out / "topics.svg")
    (arguments.out / "topics.json").write_text(report)
    text = table(json.loads(report)["topics"], training_loads(arguments.model / "routing_stats.json"))
    (arguments.out / "topics.md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
