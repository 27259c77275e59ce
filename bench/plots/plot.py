#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of docs/exercises.md from a record of bench/exercises.py.

    bench/plots/plot.py RECORD.jsonl FOLDER

Needs matplotlib (scripts/install_deps.sh --plots). The figures hold no date, so that the same record gives the same files.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import closed_forms as forms  # noqa: E402
import exercise_tables as tables  # noqa: E402

# Okabe and Ito 2008: told apart by most colour-blind readers.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
         "axes.axisbelow": True, "legend.frameon": False, "svg.hashsalt": "switchyard", "svg.fonttype": "path",
         "axes.prop_cycle": plt.cycler(color=COLOURS), "figure.facecolor": "white"}


def save(figure, folder: pathlib.Path, name: str) -> None:
    figure.tight_layout()
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def log_tokens(axes, tokens: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(tokens, [str(t) for t in tokens])
    axes.minorticks_off()
    axes.set_xlabel("tokens in the step (T)")


def plot_ways(record: tables.Record, folder: pathlib.Path) -> None:
    ways = tables.ways(record)
    names = [f"{g['shape']}\nT={g['tokens']}" for g, _, _ in ways]
    figure, axes = plt.subplots(figsize=(8, 3.4))
    for offset, label, index in ((-0.2, "naive loop", 1), (0.2, "padded to the hottest", 2)):
        values = [way[index]["time_us"] / way[0]["time_us"] for way in ways]
        bars = axes.bar([i + offset for i in range(len(ways))], values, 0.38, label=label)
        axes.bar_label(bars, [f"{v:.2f}" for v in values], fontsize=7, padding=1)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(ways)), names, fontsize=7, rotation=30, ha="right")
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("time / time of grouped")
    axes.margins(y=0.12)
    axes.legend(loc="upper right", ncols=2, bbox_to_anchor=(1, 1.16))
    save(figure, folder, "a_ways")


def plot_phases(record: tables.Record, folder: pathlib.Path) -> None:
    rows = record.part("B", "phases", kernel="grouped")
    whole = sum(share for _, share, _ in tables.SEED_PHASES)
    names = ["seed, without\ncommunication"] + [f"{r['shape']}\nT={r['tokens']}" for r in rows]
    figure, axes = plt.subplots(figsize=(8, 0.75 + 0.55 * len(names)))
    left = [0.0] * len(names)
    for colour, (name, share, zones) in zip(COLOURS, tables.SEED_PHASES):
        values = [share / whole] + [sum(r["phases_us"][z] for z in zones) / sum(r["phases_us"].values()) for r in rows]
        axes.barh(range(len(names)), values, 0.7, left=left, label=name, color=colour)
        for i, value in enumerate(values):
            if value > 0.04:
                axes.text(left[i] + value / 2, i, f"{value:.0%}", ha="center", va="center", fontsize=8, color="white")
            left[i] += value
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0), fontsize=8)
    save(figure, folder, "b_phases")


def plot_imbalance(record: tables.Record, folder: pathlib.Path) -> None:
    experts, k = tables.SHAPES["demo"][:2]
    tokens = sorted({row["tokens"] for row in record.part("C", "real")})
    fine = [2 ** (i / 2) for i in range(2 * 10 + 1)]
    fine = sorted({round(t) for t in fine if tokens[0] <= t <= tokens[-1]})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.3))
    pis = [tables.model_inclusion(record, layer) for layer in tables.layers_of(record)]
    series = [(name, COLOURS[i], [list(tables.zipf_inclusion(experts, k, name))],
               [record.one("C", "drawn", routing=name, tokens=t) for t in tokens])
              for i, name in enumerate(("uniform", "zipf:0.3", "zipf:1"))]
    for mix, colour in (("all texts", COLOURS[3]), ("one text", COLOURS[6])):
        rows = [{key: tables.average(r[key] for r in record.part("C", "real", tokens=t, mix=mix))
                 for key in ("imbalance", "experts_touched")} for t in tokens]
        series.append((f"real, {mix}", colour, pis if mix == "all texts" else [], rows))
    for name, colour, popularity, rows in series:
        for axes, key, predict in ((left, "imbalance", forms.imbalance), (right, "experts_touched", forms.touched)):
            axes.plot(tokens, [row[key] for row in rows], "o", color=colour, label=name, markersize=4)
            if popularity:
                axes.plot(fine, [tables.average(predict(pi, t) for pi in popularity) for t in fine], color=colour,
                          linewidth=1)
    for axes, label in ((left, "imbalance: hottest / mean"), (right, f"experts touched, of {experts}")):
        log_tokens(axes, tokens)
        axes.set_ylabel(label)
    left.axhline(1, color="black", linewidth=0.8)
    right.legend(title="dots measured, lines predicted", fontsize=8, title_fontsize=8, loc="lower right")
    save(figure, folder, "c_imbalance")


def plot_loads(record: tables.Record, folder: pathlib.Path) -> None:
    layers = tables.layers_of(record)
    figure, axes = plt.subplots(2, (len(layers) + 1) // 2, figsize=(8, 4), sharex=True, sharey=True, squeeze=False)
    for layer, at in zip(layers, axes.flat):
        loads = record.one("C", "loads", layer=layer)["loads"]
        order = sorted(range(len(loads)), key=lambda e: -loads[e])
        fair = sum(loads) / len(loads)
        at.bar(range(len(loads)), [loads[e] / fair for e in order], 1.0, color=COLOURS[5], label="all texts")
        by_topic = record.one("C", "loads by topic", layer=layer)["loads"]
        for colour, topic in zip((COLOURS[1], COLOURS[2]), ("chat", "german")):
            if topic in by_topic:
                own = by_topic[topic]
                at.plot(range(len(own)), [own[e] * len(own) / sum(own) for e in order], ".", color=colour, label=topic,
                        markersize=4)
        at.axhline(1, color="black", linewidth=0.8)
        at.set_title(f"layer {layer}", fontsize=9)
    for at in axes[-1]:
        at.set_xlabel("experts, by load")
    for at in axes[:, 0]:
        at.set_ylabel("load / fair share")
    axes.flat[0].legend(fontsize=7, loc="upper right")
    save(figure, folder, "c_loads")


def short_routing(name: str) -> str:
    return name.split(",")[0]


def plot_capacity(record: tables.Record, folder: pathlib.Path) -> None:
    figure, (drops, speed, quality) = plt.subplots(1, 3, figsize=(9.5, 3.4))
    rows = tables.speed_rows(record)
    for colour, name in zip(COLOURS, dict.fromkeys(name for name, *_ in rows)):
        mine = [(dropless, grouped, padded) for n, dropless, grouped, padded in rows if n == name]
        limited = [(d, g, p) for d, g, p in mine if p["capacity"] > 0]
        factors = [p["capacity"] for _, _, p in limited]
        drops.plot(factors, [100 * g["drop_rate"] for _, g, _ in limited], "o", color=colour, markersize=4,
                   label=short_routing(name))
        drops.plot(factors, [100 * tables.drop_prediction(record, p) for _, _, p in limited], color=colour, linewidth=1)
        speed.plot(factors, [d["time_us"] / p["time_us"] for d, _, p in limited], "o-", color=colour, markersize=4,
                   linewidth=1)
    drops.axhline(2, color="black", linewidth=0.8, linestyle=":")
    drops.set_ylabel("dropped picks, %")
    drops.set_ylim(bottom=0)
    drops.legend(title="dots measured, lines predicted", fontsize=7, title_fontsize=7)
    speed.axhline(1, color="black", linewidth=0.8)
    speed.set_ylabel("tokens/s of padded\nover dropless grouped")
    held = tables.quality_rows(record)
    dropless = next(row for row in held if row["capacity_factor"] == 0)
    shown = [row for row in held if row["capacity_factor"] >= 1]
    quality.plot([row["capacity_factor"] for row in shown],
                 [100 * (row["perplexity"] / dropless["perplexity"] - 1) for row in shown], "o-", color=COLOURS[3],
                 markersize=4, linewidth=1)
    quality.axhline(0, color="black", linewidth=0.8)
    quality.set_ylabel("perplexity of the demo model,\n% above dropless")
    for axes in (drops, speed, quality):
        axes.set_xlabel("capacity factor c")
    save(figure, folder, "d_capacity")


def plot_batch(record: tables.Record, folder: pathlib.Path) -> None:
    figure, (rate, touched, imbalance) = plt.subplots(1, 3, figsize=(9.5, 3.4))
    shapes = list(dict.fromkeys(row["shape"] for row in record.part("E", "batch")))
    for colour, shape in zip(COLOURS, shapes):
        rows = record.part("E", "batch", shape=shape)
        tokens = [row["tokens"] for row in rows]
        experts, k = tables.sizes_of(shape)[:2]
        pi = list(tables.zipf_inclusion(experts, k, "uniform"))
        rate.plot(tokens, [tables.rate(row) for row in rows], "o", color=colour, label=shape, markersize=4)
        rate.plot(tokens, [tables.predicted_rate(record, row) for row in rows], color=colour, linewidth=1)
        touched.plot(tokens, [row["experts_touched"] / experts for row in rows], "o", color=colour, markersize=4)
        touched.plot(tokens, [forms.touched(pi, t) / experts for t in tokens], color=colour, linewidth=1)
        imbalance.plot(tokens, [row["imbalance"] for row in rows], "o", color=colour, markersize=4)
        imbalance.plot(tokens, [forms.imbalance(pi, t) for t in tokens], color=colour, linewidth=1)
    if "mixtral-8x7b" in shapes:
        seed = {t: values[2] for t, values in tables.SEED_BATCH.items() if values[2]}
        imbalance.plot(list(seed), list(seed.values()), "x", color="black", label="seed, Mixtral")
        imbalance.legend(fontsize=7)
    for axes in (rate, touched, imbalance):
        log_tokens(axes, tokens)
        axes.tick_params(axis="x", labelsize=7)
    rate.set_yscale("log")
    rate.set_ylabel("tokens/s of a layer")
    rate.legend(title="dots measured, lines predicted", fontsize=7, title_fontsize=7)
    touched.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    touched.set_ylabel("experts touched")
    imbalance.set_ylabel("imbalance: hottest / mean")
    imbalance.set_ylim(bottom=1)
    save(figure, folder, "e_batch")


def plot_replicas(record: tables.Record, folder: pathlib.Path) -> None:
    ranks = max(row["ranks"] for row in record.part("F", "real"))
    cases = []
    for mix in dict.fromkeys(row["mix"] for row in record.part("F", "real")):
        rows = record.part("F", "real", mix=mix, ranks=ranks)
        cases.append((f"demo, {mix}\n{ranks} ranks", [tables.average(r[p] for r in rows) for p in tables.PLACES[1:]]))
    for row in record.part("F", "zipf"):
        if row["exponent"] != 0.3:
            cases.append((f"Zipf {row['exponent']:g}, {row['experts']}/{row['k']}\n{row['ranks']} ranks",
                          [row[p] for p in tables.PLACES[1:]]))
    figure, axes = plt.subplots(figsize=(8.5, 3.4))
    for i, place in enumerate(tables.PLACES[1:]):
        values = [case[1][i] for case in cases]
        bars = axes.bar([x + 0.28 * (i - 1) for x in range(len(cases))], values, 0.27, label=place)
        axes.bar_label(bars, [f"{v:.2f}" for v in values], fontsize=6.5, padding=1)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(cases)), [case[0] for case in cases], fontsize=7)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("busiest rank / mean (predicted)")
    axes.margins(y=0.12)
    axes.legend(loc="upper left", ncols=3)
    save(figure, folder, "f_replicas")


def main() -> None:
    rows = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    record = tables.Record(rows)
    with plt.rc_context(STYLE):
        for draw in (plot_ways, plot_phases, plot_imbalance, plot_loads, plot_capacity, plot_batch, plot_replicas):
            draw(record, folder)


if __name__ == "__main__":
    main()
