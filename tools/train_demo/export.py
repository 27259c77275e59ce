#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports a checkpoint of train.py as a Hugging Face Qwen3-MoE folder, and checks the folder.

usage: export.py --work WORK --out OUT [--earlier METRICS] [--device DEVICE]

OUT gets the model (bf16 shards, one tensor for each expert matrix), golden/ (logits, greedy
continuations, routing), routing_stats.json (expert loads on held-out text) and metrics.json
(losses, checks against transformers, texts). With --earlier, metrics.json also records the phase
that METRICS, the metrics.json of its export, describes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer import golden
from trainer.evaluate import evaluate
from trainer.expert_load import imbalance, routing_stats
from trainer.model import Model, count_parameters
from trainer.model_folder import write_model
from trainer.prompts import GOLDEN
from trainer.samples import Writer, compare_precision

_VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__,
             "tokenizers": tokenizers.__version__}
_PHASE_KEYS = ("tokens", "steps", "seconds")


def load_checkpoint(work: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The weights as they ship, rounded to bf16 and widened again, and how they were trained."""
    saved = torch.load(work / "ckpt.pt", map_location="cpu", weights_only=True)
    state = {name: tensor.to(torch.bfloat16).float() for name, tensor in saved["model"].items()}
    return state, {"tokens": saved["tokens"], "steps": saved["step"], "seconds": saved["spent"]}


def training_record(model: Model, phase: dict[str, Any], earlier: Path | None) -> dict[str, Any]:
    """The head of metrics.json: versions, size, and one phase or two."""
    record: dict[str, Any] = {"versions": _VERSIONS, "parameters": count_parameters(model)}
    if earlier is None:
        return record | phase
    before = json.loads(earlier.read_text(encoding="utf-8"))
    record["phase1"] = {key: before[key] for key in (*_PHASE_KEYS, "valid")}
    return record | {"phase2": phase}


def check_tokenizer(tokenizer: Any, out: Path) -> None:
    """Ends the program when transformers reads tokenizer.json in another way than tokenizers."""
    plain = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    for text in GOLDEN:
        if tokenizer(text).input_ids != plain.encode(text).ids:
            raise SystemExit(f"transformers and tokenizers disagree about {text!r}")


def write_golden(model: Model, reference: Any, tokenizer: Any, out: Path) -> dict[str, Any]:
    """Writes golden/; returns what the comparison of both models says."""
    folder = out / "golden"
    folder.mkdir(exist_ok=True)
    difference = golden.write_logits(model, reference, tokenizer, _VERSIONS, folder)
    prompts = golden.write_routing(model, tokenizer, _VERSIONS, folder)
    return {"transformers_fp32_vs_training_model_max_abs_diff": difference,
            "routing_sets_equal_to_transformers":
                golden.count_equal_routing(reference, prompts[0])}


def measure(model: Model, work: Path, out: Path) -> dict[str, Any]:
    """Evaluates on held-out text, writes routing_stats.json, returns losses and imbalance."""
    results, counts = evaluate(model, work)
    stats = routing_stats(counts, results)
    (out / "routing_stats.json").write_text(json.dumps(stats), encoding="utf-8")
    return {"valid": results, **imbalance(counts)}


def write_texts(narrow: Any, tokenizer: Any) -> dict[str, Any]:
    """Continuations and answers, greedy and sampled."""
    writer = Writer(narrow, tokenizer)
    return {"generations": writer.continuations(), "chat": writer.answers()}


def export(work: Path, out: Path, earlier: Path | None, device: str) -> dict[str, Any]:
    """Everything; returns the content of metrics.json."""
    out.mkdir(parents=True, exist_ok=True)
    state, phase = load_checkpoint(work)
    write_model(state, work / "tokenizer.json", out)
    model = Model().eval()
    model.load_state_dict(state)
    tokenizer = AutoTokenizer.from_pretrained(out)
    check_tokenizer(tokenizer, out)
    metrics = training_record(model, phase, earlier)
    wide: Any = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    checks = write_golden(model, wide, tokenizer, out)  # in fp32 on the CPU
    metrics |= measure(model.to(device), work, out)
    narrow: Any = AutoModelForCausalLM.from_pretrained(out, dtype=torch.bfloat16).eval()
    narrow.to(device)
    checks |= compare_precision(wide.to(device), narrow, work)
    return metrics | {"checks": checks} | write_texts(narrow, tokenizer)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="work folder of train.py")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--earlier", type=Path, help="metrics.json of the phase before")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if not (options.work / "ckpt.pt").is_file():
        parser.error(f"{options.work / 'ckpt.pt'} does not exist: train.py writes it")
    metrics = export(options.work, options.out, options.earlier, options.device)
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=1, ensure_ascii=False),
                                              encoding="utf-8")
    print(json.dumps({key: value for key, value in metrics.items() if key != "generations"},
                     ensure_ascii=False))


if __name__ == "__main__":
    main()
