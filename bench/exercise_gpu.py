# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of the GPU's part of docs/exercises.md, made as those of exercise_tables.py."""

import exercise_tables as tables


def machine(record: tables.Record) -> str:
    m, c = record.machine, record.machine["ceilings"]
    return (f"{m['date']}, commit {m['commit']}, {c['device']}, {c['multiprocessors']} multiprocessors. Ceilings of the same "
            f"run: {c['read_gbps_all'] / 1e3:.2f} TB/s read, {c['matmul_gflops'] / 1e3:.0f} TFLOP/s by a dense product of "
            f"8192^3 in bf16.")


def commands(record: tables.Record) -> str:
    return "\n".join(tables.commands(exercise)(record) for exercise in "ABE")


def finding_a(record: tables.Record) -> str:
    sentences = []
    for tokens in sorted({row["tokens"] for row in record.part("A", "ways")}):
        ways = [way for way in tables.ways(record) if way[0]["tokens"] == tokens]
        naive = tables.span([naive["time_us"] / grouped["time_us"] for grouped, naive, _ in ways])
        padded = tables.span([padded["time_us"] / grouped["time_us"] for grouped, _, padded in ways])
        sentences.append(f"T = {tokens}: the loop takes {naive} times as long as the grouped call, padding {padded} times")
    return ("; ".join(sentences) + ". What the loop loses is launches that each wait for a few rows of one expert: the "
            "several-fold slowdown that the seed reports for GPUs shows where experts are many and rows are few.")


def finding_b(record: tables.Record) -> str:
    rows = record.part("B", "phases", kernel="grouped")
    moved = [sum(row["phases_us"][z] for z in ("router", "sort", "gather", "combine")) / sum(row["phases_us"].values())
             for row in rows]
    ratios = [row["phases_us"]["gemm_up"] / row["phases_us"]["gemm_down"] for row in rows]
    return (f"All that is not a product takes {min(moved):.0%} to {max(moved):.0%} of the layer. Gate and up against down: "
            f"{tables.span(ratios)}.")


PLACEHOLDERS = {"machine": machine, "commands": commands, "table_a": tables.table_a, "finding_a": finding_a,
                "table_b": tables.table_b, "finding_b": finding_b, "table_e": tables.table_e,
                "finding_e": tables.finding_e, "finding_limit": tables.finding_limit}
