# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of docs/exercises.md, one function a placeholder; every number comes from the record or from
closed_forms.py. `PLACEHOLDERS` at the end says which is which."""

import functools
import re

import closed_forms as forms

SHAPES = {"mixtral-8x7b": (8, 2, 4096, 14336, 1), "qwen3-30b-a3b": (128, 8, 2048, 768, 1),
          "olmoe-1b-7b": (64, 8, 2048, 1024, 1), "deepseek-v3-ep8": (256, 8, 7168, 2048, 8),
          "demo": (32, 4, 256, 64, 1)}


def sizes_of(shape: str) -> tuple[int, int, int, int, int]:
    """E, k, d, f and ranks."""
    if shape in SHAPES:
        return SHAPES[shape]
    experts, k, d, f = map(int, re.split("[/x]", shape))
    return experts, k, d, f, 1


@functools.lru_cache(None)
def zipf_inclusion(experts: int, k: int, routing: str) -> tuple[float, ...]:
    exponent = float(routing.split(":")[1]) if routing.startswith("zipf") else 0.0
    return tuple(forms.inclusion(forms.zipf_weights(experts, exponent), k))


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


class Record:
    def __init__(self, rows: list[dict]) -> None:
        self.rows = rows
        self.machine = next(row for row in rows if row["part"] == "machine")

    def part(self, exercise: str, part: str, **where) -> list[dict]:
        return [row for row in self.rows if row.get("exercise") == exercise and row["part"] == part
                and all(row.get(key) == value for key, value in where.items())]

    def one(self, exercise: str, part: str, **where) -> dict:
        found = self.part(exercise, part, **where)
        if len(found) != 1:
            raise SystemExit(f"the record has {len(found)} rows of {exercise}, {part}, {where}; expected 1")
        return found[0]

    def bandwidth(self) -> float:
        return self.machine["ceilings"]["read_gbps_all"] * 1e9

    def peak(self, row: dict) -> float:
        ceilings = self.machine["ceilings"]
        if "matmul_gflops" in ceilings:
            return ceilings["matmul_gflops"] * 1e9
        return (ceilings["amx_gflops"] if "amx" in row["gemm"] else ceilings["fma_gflops"]) * 1e9

    def predicted_us(self, row: dict, more_bytes: float = 0, rows: float | None = None,
                     touched: float | None = None) -> float:
        """F17 for the row, or for other rows computed and experts read."""
        _, _, d, f, _ = sizes_of(row["shape"])
        element = 2 if row["dtype"] == "bf16" else 4
        read = (row["experts_touched"] if touched is None else touched) * 3 * d * f * element + more_bytes
        count = row["rows"] if rows is None else rows
        return forms.layer_seconds(read, 6 * d * f * count, self.bandwidth(), self.peak(row)) * 1e6


def timed(row: dict) -> str:
    """Microseconds or milliseconds, with the spread."""
    value = row["time_us"]
    unit, scale = ("s", 1e6) if value >= 999.5e3 else ("ms", 1e3) if value >= 999.5 else ("us", 1)
    return f"{value / scale:.3g} {unit} ({row['time_spread']:.0%})"


def span(values: list[float], digits: int = 2) -> str:
    low, high = min(values), max(values)
    return f"{low:.{digits}f}" if f"{low:.{digits}f}" == f"{high:.{digits}f}" else f"{low:.{digits}f} to {high:.{digits}f}"


# ---------------------------------------------------------------------------------------------- A

def ways(record: Record) -> list[tuple[dict, dict, dict]]:
    """(grouped, naive, padded) of each shape and batch."""
    return [(row, record.one("A", "ways", shape=row["shape"], tokens=row["tokens"], kernel="naive"),
             record.one("A", "ways", shape=row["shape"], tokens=row["tokens"], kernel="padded"))
            for row in record.part("A", "ways", kernel="grouped")]


def naive_extra_bytes(row: dict) -> float:
    """What the naive loop writes and reads more: gate and up rows as f32, there and back."""
    return row["rows"] * sizes_of(row["shape"])[3] * 16


def table_a(record: Record) -> str:
    body = []
    for grouped, naive, padded in ways(record):
        experts, k, _, _, ranks = sizes_of(grouped["shape"])
        base = record.predicted_us(grouped)
        loop = record.predicted_us(grouped, more_bytes=naive_extra_bytes(grouped)) / base
        pad = record.predicted_us(grouped, rows=padded["rows"], touched=experts / ranks) / base
        body.append([grouped["shape"], f"{experts // ranks}", str(grouped["tokens"]), timed(grouped),
                     f"{grouped['time_us'] / grouped['floor_us']:.2f}", timed(naive),
                     f"**{naive['time_us'] / grouped['time_us']:.2f}**", f"{loop:.2f}",
                     timed(padded), f"**{padded['time_us'] / grouped['time_us']:.2f}**", f"{pad:.2f}"])
    return table(["shape", "experts", "T", "grouped", "/ floor", "naive loop", "measured ratio", "predicted", "padded",
                  "measured ratio", "predicted"], body)


def finding_a(record: Record) -> str:
    ratios = [naive["time_us"] / grouped["time_us"] for grouped, naive, _ in ways(record)]
    plain = record.part("A", "plain products")[0]
    packed = record.one("A", "ways", shape=plain["shape"], tokens=plain["tokens"], kernel="grouped")
    claim = "so the several-fold loss is not there on this machine" if max(ratios) < 2 else \
        "so a several-fold loss does appear on this machine"
    return (f"The loop takes {span(ratios)} times as long as the grouped call, {claim}: a CPU has no launches to save, "
            f"and both ways read the same weights. What is several-fold is the product itself: the same grouped call "
            f"with unpacked weights and one dot product for each output (`SWITCHYARD_KERNEL=grouped_gemm=naive`, "
            f"{plain['shape']}, T = {plain['tokens']}) takes {plain['time_us'] / packed['time_us']:.1f} times as long "
            f"as with packed panels.")


# ---------------------------------------------------------------------------------------------- B

SEED_PHASES = [("router", 3, ["router"]), ("sort + gather", 8, ["sort", "gather"]), ("grouped GEMM (up)", 22, ["gemm_up"]),
               ("activation", 4, ["activation"]), ("grouped GEMM (down)", 22, ["gemm_down"]),
               ("scatter + weighted sum", 6, ["combine"])]


def table_b(record: Record) -> str:
    rows = record.part("B", "phases", kernel="grouped") + record.part("B", "phases", kernel="naive")[:1]
    whole = sum(share for _, share, _ in SEED_PHASES)
    body = []
    for name, share, zones in SEED_PHASES:
        cells = [name, f"{share / whole:.0%}"]
        for row in rows:
            phases = row["phases_us"]
            cells.append(f"{sum(phases[z] for z in zones) / sum(phases.values()):.1%}")
        body.append(cells)
    heads = [f"{row['shape']}, T = {row['tokens']}{', naive' if row['kernel'] == 'naive' else ''}" for row in rows]
    return table(["phase", "seed, without its 35 % communication", *heads], body)


def finding_b(record: Record) -> str:
    rows = record.part("B", "phases", kernel="grouped")
    ratios = [row["phases_us"]["gemm_up"] / row["phases_us"]["gemm_down"] for row in rows]
    moved = [sum(row["phases_us"][z] for z in ("sort", "gather", "combine")) / sum(row["phases_us"].values())
             for row in rows]
    return (f"A gated expert has two matrices before the activation and one after it, so the first product should take twice "
            f"the second: measured {span(ratios)} (the activation counted apart). The seed's equal shares describe an expert without a "
            f"gate. Sorting, gathering and combining take {100 * min(moved):.1f} to {100 * max(moved):.1f} % here.")


def table_communication(_: Record) -> str:
    # Ranks, bytes out and back a value, f, operations and bytes a second that are reached.
    cases = [("DeepSeek-V3, H800, fp8, NVLink, 8 ranks", 8, 1.03, 2, 2048, 1.0e15, 155e9),
             ("DeepSeek-V3, H200, fp8, NVLink, 8 ranks", 8, 1.03, 2, 2048, 1.0e15, 311e9),
             ("DeepSeek-V3, H200, bf16, NVLink, 8 ranks", 8, 2, 2, 2048, 0.65e15, 311e9),
             ("DeepSeek-V3, H800, fp8, InfiniBand, 64 ranks", 64, 1.03, 2, 2048, 1.0e15, 50e9),
             ("Mixtral, H200, bf16, NVLink, 8 ranks", 8, 2, 2, 14336, 0.65e15, 311e9),
             ("Mixtral, H200, bf16, InfiniBand, 8 ranks", 8, 2, 2, 14336, 0.65e15, 50e9),
             ("Qwen3-30B-A3B, H200, bf16, NVLink, 2 ranks", 2, 2, 2, 768, 0.45e15, 298e9)]
    body = []
    for name, *numbers in cases:
        ratio = forms.communication_ratio(*numbers)
        body.append([name, f"{numbers[4] / 1e15:g} PFLOP/s", f"{numbers[5] / 1e9:.0f} GB/s", f"{ratio:.2f}",
                     f"{ratio / (1 + ratio):.0%}"])
    return table(["case", "products at", "link at", "communication / products", "share of the two"], body)


# ---------------------------------------------------------------------------------------------- C

def model_inclusion(record: Record, layer: int) -> list[float]:
    """pi of a layer of the demonstration model: its share of all recorded tokens."""
    loads = record.one("C", "loads", layer=layer)["loads"]
    k = SHAPES["demo"][1]
    return [load * k / sum(loads) for load in loads]


def layers_of(record: Record) -> list[int]:
    return sorted(row["layer"] for row in record.part("C", "loads"))


def average(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def table_c(record: Record) -> str:
    experts, k = SHAPES["demo"][:2]
    batches = sorted({row["tokens"] for row in record.part("C", "real")})
    body = []
    for routing in ("uniform", "zipf:0.3", "zipf:1"):
        pi = zipf_inclusion(experts, k, routing)
        for tokens in batches:
            row = record.one("C", "drawn", routing=routing, tokens=tokens)
            predicted = forms.imbalance(pi, tokens)
            body.append([routing, str(tokens), f"{row['experts_touched']:.1f}", f"{forms.touched(pi, tokens):.1f}",
                         f"**{row['imbalance']:.2f}**", f"{predicted:.2f}", f"{forms.imbalance_floor(pi):.2f}"])
    for mix in ("all texts", "one text"):
        for tokens in batches:
            rows = [record.one("C", "real", layer=layer, tokens=tokens, mix=mix) for layer in layers_of(record)]
            pis = [model_inclusion(record, layer) for layer in layers_of(record)]
            body.append([f"real router, {mix}", str(tokens), f"{average(r['experts_touched'] for r in rows):.1f}",
                         f"{average(forms.touched(pi, tokens) for pi in pis):.1f}",
                         f"**{average(r['imbalance'] for r in rows):.2f}**",
                         f"{average(forms.imbalance(pi, tokens) for pi in pis):.2f}",
                         f"{average(forms.imbalance_floor(pi) for pi in pis):.2f}"])
    return table(["routing (demo shape, 32 experts, 4 picks)", "T", "touched", "predicted", "imbalance", "predicted",
                  "predicted floor"], body)


def finding_c(record: Record) -> str:
    last = max(row["tokens"] for row in record.part("C", "real"))

    def real(mix: str) -> float:
        return average(r["imbalance"] for r in record.part("C", "real", tokens=last, mix=mix))

    uniform = record.one("C", "drawn", routing="uniform", tokens=last)["imbalance"]
    return (f"At T = {last} uniform routing is down to {uniform:.2f}, the real router with tokens of all texts stays at "
            f"{real('all texts'):.2f}, and with tokens of one text at {real('one text'):.2f}. Larger batches average "
            f"out the draw, not the popularity; and a batch of one topic is less even than the traffic as a whole, which "
            f"the prediction from overall popularity does not see.")


# ---------------------------------------------------------------------------------------------- D

def drop_prediction(record: Record, row: dict) -> float:
    experts, k = sizes_of(row["shape"])[:2]
    if row["routing"].startswith("trace"):
        return average(forms.drop_rate(model_inclusion(record, layer), row["tokens"], row["capacity"])
                       for layer in layers_of(record))
    return forms.drop_rate(list(zipf_inclusion(experts, k, row["routing"])), row["tokens"], row["capacity"])


def speed_rows(record: Record) -> list[tuple[str, dict, dict, dict]]:
    """(name, dropless grouped, grouped, padded) of each routing and factor."""
    found = []
    for part in ("speed", "speed, real routing"):
        for padded in record.part("D", part, kernel="padded"):
            same = {"routing": padded["routing"], "shape": padded["shape"]}
            dropless = record.one("D", part, kernel="grouped", capacity=0, **same)
            grouped = record.one("D", part, kernel="grouped", capacity=padded["capacity"], **same)
            name = "real router" if part != "speed" else padded["routing"]
            found.append((f"{name}, {padded['shape']}, T = {padded['tokens']}", dropless, grouped, padded))
    return found


def table_d(record: Record) -> str:
    body = []
    for name, dropless, grouped, padded in speed_rows(record):
        limited = padded["capacity"] > 0
        body.append([name, f"{padded['capacity']:g}" if limited else "dropless", f"**{grouped['drop_rate']:.2%}**",
                     f"{drop_prediction(record, padded):.2%}" if limited else "0", timed(grouped),
                     timed(padded), f"{dropless['time_us'] / padded['time_us']:.2f}",
                     f"{1 - dropless['rows'] * (1 - padded['drop_rate']) / padded['rows']:.0%}"])
    return table(["routing", "c", "dropped", "predicted", "grouped", "padded", "padded speed / dropless grouped",
                  "empty slots"], body)


def knees(record: Record) -> dict[str, float | None]:
    """The smallest factor of the sweep that drops at most 2 %."""
    found: dict[str, float | None] = {}
    for name, _, grouped, _ in speed_rows(record):
        if grouped["capacity"] == 0:
            found[name] = None
    for name, _, grouped, _ in speed_rows(record):
        if grouped["capacity"] > 0 and grouped["drop_rate"] <= 0.02 and found[name] is None:
            found[name] = grouped["capacity"]
    return found


def finding_d(record: Record) -> str:
    parts = [f"{name}: {'none up to 2' if c is None else format(c, 'g')}" for name, c in knees(record).items()]
    return "Smallest factor of the sweep that drops at most 2 %: " + "; ".join(parts) + "."


def quality_rows(record: Record) -> list[dict]:
    rows = record.part("D", "quality", input="all")
    return sorted(rows, key=lambda row: (row["capacity_factor"] == 0, row["capacity_factor"]))


def table_quality(record: Record) -> str:
    rows = quality_rows(record)
    dropless = next(row for row in rows if row["capacity_factor"] == 0)
    body = [["dropless" if row["capacity_factor"] == 0 else f"{row['capacity_factor']:.4g}", f"{row['drop_rate']:.2%}",
             f"{row['perplexity']:.3f}", f"**{row['perplexity'] / dropless['perplexity'] - 1:+.2%}**",
             str(row["unrouted_tokens"])] for row in rows]
    return table(["c", "dropped", "perplexity", "against dropless", "tokens without any expert (sum over layers)"], body)


def finding_quality(record: Record) -> str:
    rows = quality_rows(record)
    dropless = next(row for row in rows if row["capacity_factor"] == 0)
    literal = rows[0]
    typical = [row for row in rows if row["capacity_factor"] == 1.25]
    mixed = [row for row in record.part("D", "speed, real routing", kernel="grouped") if row["capacity"] == 1.25]
    shared = (f"What is dropped depends on what shares the step: with c = 1.25 the real router loses "
              f"{mixed[0]['drop_rate']:.1%} of its picks when the tokens are of all texts, and {typical[0]['drop_rate']:.1%} "
              f"when they are of one. ") if mixed and typical else ""
    return (f"{shared}The seed writes the limit as C x tokens / E, without k. With k = {SHAPES['demo'][1]} and C = 1.25 that is a "
            f"factor of {literal['capacity_factor']:.4g} of the usual rule, which must drop at least "
            f"{1 - literal['capacity_factor']:.1%}: measured {literal['drop_rate']:.1%}, and a perplexity of "
            f"{literal['perplexity']:.1f} instead of {dropless['perplexity']:.2f}.")


# ---------------------------------------------------------------------------------------------- E

SEED_BATCH = {1: (48, 2.0, None), 8: (340, 6.7, 2.4), 32: (1180, 8.0, 1.6), 128: (2900, 8.0, 1.2), 512: (4100, 8.0, 1.05)}


def rate(row: dict) -> float:
    """Tokens per second of one layer."""
    return row["tokens"] / row["time_us"] * 1e6


def predicted_rate(record: Record, row: dict) -> float:
    experts, k, _, _, ranks = sizes_of(row["shape"])
    pi = zipf_inclusion(experts, k, row["routing"])
    rows, count = row["tokens"] * k / ranks, forms.touched(list(pi), row["tokens"]) / ranks
    return row["tokens"] / record.predicted_us(row, rows=rows, touched=count) * 1e6


def table_e(record: Record) -> str:
    body = []
    for row in record.part("E", "batch"):
        experts, k = sizes_of(row["shape"])[:2]
        pi = list(zipf_inclusion(experts, k, "uniform"))
        seed = SEED_BATCH.get(row["tokens"]) if row["shape"] == "mixtral-8x7b" else None
        imbalance = f"{forms.imbalance(pi, row['tokens']):.2f}"
        body.append([row["shape"], str(row["tokens"]), timed(row), f"**{rate(row):,.0f}**",
                     f"{predicted_rate(record, row):,.0f}", f"{row['experts_touched']:.1f}",
                     f"{forms.touched(pi, row['tokens']):.1f}", f"{experts / row['experts_touched']:.2f}",
                     f"{row['imbalance']:.2f}", imbalance,
                     "" if seed is None else f"{seed[0]:,} tok/s, {seed[1]}, {seed[2] or 'n/a'}"])
    return table(["shape", "T", "layer", "tokens/s of a layer", "predicted", "touched", "predicted", "E / touched",
                  "imbalance", "predicted", "seed: model tok/s, touched, imbalance"], body)


def finding_e(record: Record) -> str:
    sentences = []
    for shape in dict.fromkeys(row["shape"] for row in record.part("E", "batch")):
        rows = record.part("E", "batch", shape=shape)
        best = max(rows, key=rate)
        experts, k = sizes_of(shape)[:2]
        knee = experts / k * record.peak(best) * 2 / (2 * record.bandwidth())
        enough = next(row for row in rows if rate(row) >= 0.8 * rate(best))
        sentences.append(f"{shape}: most tokens per second at T = {best['tokens']} ({rate(best):,.0f}), 80 % of that from T = "
                         f"{enough['tokens']} on, {rate(rows[-1]) / rate(best):.0%} of it at T = {rows[-1]['tokens']}; reading and multiplying take equally long at T = {knee:.0f} by the "
                         f"ceilings")
    return "; ".join(sentences) + "."


def finding_limit(record: Record) -> str:
    """The largest batch within a limit on time, which is what makes an optimum."""
    sentences = []
    for shape in dict.fromkeys(row["shape"] for row in record.part("E", "batch")):
        rows = record.part("E", "batch", shape=shape)
        alone = rows[0]["time_us"]
        within = [row for row in rows if row["time_us"] <= 8 * alone]
        sentences.append(f"{shape} {within[-1]['tokens']}")
    return "With at most 8 times the time of a step of one token, the best T is: " + ", ".join(sentences) + "."


# ---------------------------------------------------------------------------------------------- F

PLACES = ("in order", "random", "by load", "by load, 3 copies")


def table_f(record: Record) -> str:
    body = []
    for mix in dict.fromkeys(row["mix"] for row in record.part("F", "real")):
        for ranks in sorted({row["ranks"] for row in record.part("F", "real")}):
            rows = record.part("F", "real", mix=mix, ranks=ranks)
            values = [average(row[place] for row in rows) for place in PLACES]
            body.append([f"demo, real router, {mix}", str(rows[0]["experts"]), str(ranks),
                         *(f"{v:.2f}" for v in values), f"**{values[1] / values[3]:.2f}x**",
                         f"{values[2] / values[3]:.2f}x", f"+{3 / rows[0]['experts']:.1%}"])
    for row in record.part("F", "zipf"):
        values = [row[place] for place in PLACES]
        body.append([f"Zipf {row['exponent']:g}, {row['experts']}/{row['k']}", str(row["experts"]), str(row["ranks"]),
                     *(f"{v:.2f}" for v in values), f"**{values[1] / values[3]:.2f}x**", f"{values[2] / values[3]:.2f}x",
                     f"+{3 / row['experts']:.1%}"])
    return table(["loads", "experts", "ranks", *PLACES, "gain over random", "gain over by load", "memory"], body)


def table_plan(record: Record) -> str:
    body = [[row["policy"], f"{row['planned']:.2f}", f"**{row['later']:.2f}**", f"{row['gain']:.2f}x",
             f"+{row['memory']:.1%}"] for row in record.part("F", "plan")]
    return table(["policy", "on the half that it saw", "on the other half", "gain over round robin", "memory"], body)


def table_memory(_: Record) -> str:
    """What three more slots in every MoE layer weigh."""
    body = []
    for name, layers, element in (("demo", 6, 2), ("olmoe-1b-7b", 16, 2), ("qwen3-30b-a3b", 48, 2), ("mixtral-8x7b", 32, 2),
                                  ("deepseek-v3-ep8", 58, 1)):
        experts, _, d, f, _ = SHAPES[name]
        expert = 3 * d * f * element
        body.append([name.removesuffix("-ep8"), "fp8" if element == 1 else "bf16", f"{expert / 1e6:.3g} MB",
                     f"{3 * layers * expert / 1e9:.3g} GB", f"+{3 / experts:.1%}"])
    return table(["model", "weights", "an expert", "three copies in every layer", "of all experts"], body)


# ---------------------------------------------------------------------------------------------- all

def machine(record: Record) -> str:
    m, c = record.machine, record.machine["ceilings"]
    amx = f", {c['amx_gflops']:.0f} GFLOP/s in bf16 tiles" if c["amx_gflops"] else ""
    return (f"{m['date']}, commit {m['commit']}, {m['cpu']}, {m['cores']} cores. Ceilings of the same run: "
            f"{c['read_gbps_all']:.1f} GB/s read by all threads, {c['fma_gflops']:.0f} GFLOP/s in f32{amx}.")


def commands(exercise: str):
    def text(record: Record) -> str:
        lines = []
        for command in record.one(exercise, "commands")["commands"]:
            lines.append(re.sub(r" -r \d+ --ceilings ceilings.json", "", command))
        return "\n".join(lines) if lines else "(computed from the recording of exercise C)"
    return text


def imbalance_bound(record: Record) -> str:
    uniform = forms.imbalance_uniform(8, 2, 512)
    rows = record.part("E", "batch", shape="mixtral-8x7b", tokens=512)
    measured = f" (measured {rows[0]['imbalance']:.2f})" if rows else ""
    return f"{uniform:.2f}{measured}"


PLACEHOLDERS = {"machine": machine, "table_a": table_a, "finding_a": finding_a, "table_b": table_b, "finding_b": finding_b,
                "table_communication": table_communication, "table_c": table_c, "finding_c": finding_c,
                "table_d": table_d, "finding_d": finding_d, "table_quality": table_quality,
                "finding_quality": finding_quality, "table_e": table_e, "finding_e": finding_e,
                "finding_limit": finding_limit, "table_f": table_f, "table_memory": table_memory, "table_plan": table_plan, "imbalance_bound": imbalance_bound,
                **{f"commands_{name.lower()}": commands(name) for name in "ABCDEF"}}
