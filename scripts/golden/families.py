# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/families/: tiny weights, and what the reference answers on them.

Input tokens are not wholly random: each is drawn again until every router's neighbours among the
K + 1 largest logits lie at least GAP apart, in fp32 as in bf16. Rounding then cannot change which
experts a token meets, and every difference that a test sees is a fault, not a tie. Greedy
continuations, which cannot be chosen, must keep smaller margins, else the sequence is drawn again.
"""

import json
import os
import pathlib
import random
import shutil

import torch
from safetensors.torch import save_file
from transformers.utils import logging

from golden.common import GOLDEN, versions, write_json
from golden.family_table import FAMILIES, REMOVE, Family, Variant
from golden.runner import Runner, load_model
from golden.weights import random_model, write_classic, write_layout

LENGTHS = (1, 7, 37)
CHUNKS = {1: [1], 7: [3, 4], 37: [16, 5, 1, 15]}
GREEDY = 16
GAP = 0.05  # Router logits of the given tokens.
GREEDY_GAP = 0.001  # Router logits along the continuation.
GREEDY_MARGIN = 0.01  # Best over second-best logit along the continuation.
EXACT = 1e-5  # Largest difference between the reference's own modes, over the largest logit.

PRECISION = "fp32 on the CPU: eager attention, experts one after the other; weights are bf16 values"
TOLERANCE = ("fp32: at most 1e-4 of the largest magnitude of the tensor, for logits and hidden states; "
             "expert ids equal; bf16: see bf16.rms_error, the reference's own distance from fp32")


def write_families(only: list) -> None:
    """Writes every family, or those named."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for family in FAMILIES:
        if not only or family.name in only:
            _write_family(family)


def _write_family(family: Family) -> None:
    folder = GOLDEN / "families" / family.name
    shutil.rmtree(folder, ignore_errors=True)
    write_json(folder / "config.json", family.config)
    model = random_model(family, folder)
    write_classic(model, folder / "model.safetensors", torch.float32)
    layouts = [{"folder": ".", "dtype": "F32", "what": "classic names in one file"}]
    layouts += [write_layout(model, name, folder / name, family.config) for name in family.layouts]
    base, trace = _write_golden(family, None, folder, layouts)
    _check_layouts(family, folder, base, trace)
    for variant in family.variants:
        _write_variant(family, variant, folder / "variants" / variant.name, base, trace)
    print(f"{family.name}: {sum(p.stat().st_size for p in folder.rglob('*') if not p.is_symlink()):,} bytes")


def _write_variant(family: Family, variant: Variant, folder: pathlib.Path, base: list, trace) -> None:
    changed = {**family.config, **variant.changes}
    write_json(folder / "config.json", {k: v for k, v in changed.items() if v is not REMOVE})
    if variant.weights == "own":
        write_classic(random_model(family, folder), folder / "model.safetensors", torch.bfloat16)
    else:
        owner = family.name if variant.weights == "base" else variant.weights
        target = GOLDEN / "families" / owner / "model.safetensors"
        (folder / "model.safetensors").symlink_to(os.path.relpath(target, folder))
    _write_golden(family, variant, folder, [])
    _check_change_shows(family, variant, folder, base, trace)


def _write_golden(family: Family, variant: Variant | None, folder: pathlib.Path, layouts: list):
    """Chooses the sequences, runs all modes, and writes golden.safetensors and golden.json."""
    runner = Runner(load_model(folder, torch.float32), family.router)
    narrow = Runner(load_model(folder, torch.bfloat16), family.router)
    rng = random.Random(f"{family.seed} {variant.name if variant else ''}")
    causal = variant is None or variant.modes_agree
    tensors, rows, checks = {}, [], {"stepwise": 0.0, "chunked": 0.0}
    gap, margin, squares = float("inf"), float("inf"), [0.0, 0.0]
    for index, length in enumerate(LENGTHS):
        ids, greedy, trace, found = _choose_sequence(rng, runner, narrow, length, causal)
        gap, margin = min(gap, found["gap"]), min(margin, found["margin"])
        _store(tensors, index, ids, greedy, trace)
        rows.append({"index": index, "length": length, "ids": ids, "greedy": greedy})
        _check_modes(runner, ids, trace, variant, checks, tensors, index)
        half = narrow.run(ids)
        squares[0] += (half.logits.float() - trace.logits).square().sum().item()
        squares[1] += trace.logits.square().sum().item()
        if variant is None:
            tensors[f"bf16_logits_{index}"] = half.logits.float()
    save_file(dict(sorted(tensors.items())), folder / "golden.safetensors",
              metadata={"made_with": json.dumps(_made_with(family))})
    write_json(folder / "golden.json", {
        "family": family.name,
        **({"variant": variant.name, "why": variant.why} if variant else {}),
        "made_with": _made_with(family),
        "reference": _reference(family),
        "seed": family.seed,
        "precision": PRECISION,
        "tolerance": TOLERANCE,
        "sparse_layers": runner.sparse_layers,
        "experts_per_token": family.config["num_experts_per_tok"],
        "modes_agree": variant.modes_agree if variant else True,
        "largest_difference_between_modes": checks,
        "largest_logit": round(max(abs(tensors[f"logits_{i}"]).max().item() for i in range(len(LENGTHS))), 3),
        "smallest_router_gap": round(gap, 6),
        "smallest_greedy_margin": round(margin, 6),
        "bf16": {"rms_error": round((squares[0] / squares[1]) ** 0.5, 6),
                 "what": "root mean square of the reference's bf16 logits minus fp32, over that of fp32"},
        **({"layouts": layouts} if layouts else {}),
        "sequences": rows,
    })
    return rows, trace


def _choose_sequence(rng: random.Random, runner: Runner, narrow: Runner, length: int, causal: bool) -> tuple:
    """Draws ids whose routing has no near-ties; see the top of this file.

    Where a new token changes the rows before it (dynamic scaling), rows cannot be chosen one after the
    other: whole sequences are drawn, and only the small margin is asked for.
    """
    for _ in range(400):
        ids = _draw_row_by_row(rng, runner, narrow, length) if causal else rng.choices(range(101), k=length)
        trace = runner.run(ids)
        if min(trace.routing_gap(row) for row in range(length)) < GREEDY_GAP:
            continue
        greedy, margin, gap = runner.greedy(ids, GREEDY)
        if margin >= GREEDY_MARGIN and gap >= GREEDY_GAP:
            return ids, greedy, trace, {"gap": gap, "margin": margin}
    raise RuntimeError("no sequence with clear margins was found; change the seed")


def _draw_row_by_row(rng: random.Random, runner: Runner, narrow: Runner, length: int) -> list:
    ids, failures = [], 0
    while len(ids) < length:
        candidate = [*ids, rng.randrange(101)]
        if _last_row_is_clear(runner, narrow, candidate):
            ids, failures = candidate, 0
        elif (failures := failures + 1) == 50:
            ids, failures = ids[:-3], 0  # This prefix leaves no good successor.
    return ids


def _last_row_is_clear(runner: Runner, narrow: Runner, ids: list) -> bool:
    wide = runner.run(ids)
    if wide.routing_gap(len(ids) - 1) < GAP:
        return False
    half = narrow.run(ids)
    return all(torch.equal(wide.experts[layer], half.experts[layer]) for layer in wide.experts)


def _store(tensors: dict, index: int, ids: list, greedy: list, trace) -> None:
    tensors[f"ids_{index}"] = torch.tensor(ids, dtype=torch.int32)
    tensors[f"greedy_{index}"] = torch.tensor(greedy, dtype=torch.int32)
    tensors[f"logits_{index}"] = trace.logits
    for layer, hidden in enumerate(trace.hidden):
        tensors[f"hidden_{index}_{layer}"] = hidden
    for layer, ids_of_layer in trace.experts.items():
        tensors[f"expert_{index}_{layer}"] = ids_of_layer.to(torch.int32)
        tensors[f"weight_{index}_{layer}"] = trace.weights[layer].float()


def _check_modes(runner: Runner, ids: list, trace, variant, checks: dict, tensors: dict, index: int) -> None:
    """Decode and chunked prefill with a cache must repeat the prefill, except where they differ by design."""
    for name, chunks in (("stepwise", [1] * len(ids)), ("chunked", CHUNKS[len(ids)])):
        other = runner.run(ids, chunks).logits
        error = _relative(other, trace.logits)
        checks[name] = max(checks[name], round(error, 9))
        if variant is not None and not variant.modes_agree:
            tensors[f"{name}_logits_{index}"] = other
        elif error > EXACT:
            raise RuntimeError(f"{name}: the reference disagrees with itself by {error}")


def _check_layouts(family: Family, folder: pathlib.Path, rows: list, trace) -> None:
    """Every layout must give the very same logits in the reference."""
    for layout in family.layouts:
        again = Runner(load_model(folder / layout, torch.float32), family.router).run(rows[-1]["ids"])
        if not torch.equal(again.logits, trace.logits):
            raise RuntimeError(f"{family.name}/{layout}: other logits than the classic file")


def _check_change_shows(family: Family, variant: Variant, folder: pathlib.Path, rows: list, trace) -> None:
    """A reader that ignores the variant's keys must be visibly wrong; a mere default must change nothing."""
    if variant.weights != "base":
        return
    again = Runner(load_model(folder, torch.float32), family.router).run(rows[-1]["ids"])
    error = _relative(again.logits, trace.logits)
    if (error > 1e-2) == (variant.name == "default_theta"):
        raise RuntimeError(f"{family.name}/{variant.name}: changes the logits by {error}")


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found - expected).abs().max() / expected.abs().max()).item()


def _made_with(family: Family) -> dict:
    return versions("torch", "transformers", "safetensors")


def _reference(family: Family) -> str:
    if family.name == "deepseek":
        return ("scripts/golden/deepseek_v1.py: transformers has no class for this family; attention, norm, "
                "rotary embedding and MLP are its Llama modules, the expert block is our own")
    return f"transformers.{family.config['architectures'][0]}"
