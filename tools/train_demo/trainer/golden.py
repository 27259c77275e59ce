# SPDX-License-Identifier: Apache-2.0
"""Golden files: what the shipped weights give in fp32 on a CPU, for other implementations to meet.

  logits.safetensors  for prompt N: ids_N [T] i32, last_logits_N [V] f32, top10_ids_N [T, 10] i32,
                      top10_logits_N [T, 10] f32, greedy_N [32] i32
  logits.json         prompts, ids and greedy texts in readable form
  routing.json        for two prompts, layers[layer][token]: K experts and their weights
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from trainer.config import ARCHITECTURE as A
from trainer.model import Model
from trainer.prompts import GOLDEN, ROUTING

_GREEDY_TOKENS = 32
_TOP = 10
_PRECISION = "bf16 weights widened to fp32, fp32 arithmetic on the CPU"
_TENSORS = ("logits.safetensors: ids_N, last_logits_N (fp32, all 8192), top10_ids_N and "
            "top10_logits_N (every position), greedy_N (32 tokens)")
_LAYOUT = ("prompts[].layers[layer][token] = the four experts by falling weight and their weights "
           "(which sum to 1)")


def _greedy(reference: Any, ids: Tensor) -> Tensor:
    """The next tokens [32] after ids [1, T], each the best one, computed without a cache."""
    sequence = ids
    for _ in range(_GREEDY_TOKENS):
        best = reference(sequence).logits[:, -1:].argmax(-1)
        sequence = torch.cat((sequence, best), 1)
    return sequence[0, ids.shape[1]:]


def _prompt(text: str, ids: Tensor, greedy: Tensor, top: Any, tokenizer: Any) -> dict[str, Any]:
    """The readable entry of a prompt; top holds values and indices [T, 10]."""
    last = zip(top.indices[-1].tolist(), top.values[-1].tolist())
    return {"prompt": text, "ids": ids[0].tolist(), "greedy": greedy.tolist(),
            "greedy_text": tokenizer.decode(greedy),
            "top10_last": [[token, round(logit, 5)] for token, logit in last]}


@torch.no_grad()
def write_logits(model: Model, reference: Any, tokenizer: Any, versions: dict[str, str],
                 folder: Path) -> float:
    """Writes the reference's logits; returns how far the training code's are from them."""
    arrays: dict[str, Tensor] = {}
    prompts, furthest = [], 0.0
    for number, text in enumerate(GOLDEN):
        ids = tokenizer(text, return_tensors="pt").input_ids
        logits = reference(ids).logits[0].float()
        furthest = max(furthest, (logits - model(ids)[0][0]).abs().max().item())
        top, greedy = logits.topk(_TOP, -1), _greedy(reference, ids)
        arrays |= {f"ids_{number}": ids[0].to(torch.int32),
                   f"last_logits_{number}": logits[-1].contiguous(),
                   f"top10_ids_{number}": top.indices.to(torch.int32),
                   f"top10_logits_{number}": top.values.contiguous(),
                   f"greedy_{number}": greedy.to(torch.int32)}
        prompts.append(_prompt(text, ids, greedy, top, tokenizer))
    save_file(arrays, folder / "logits.safetensors")
    document = {"made_with": versions, "precision": _PRECISION, "tensors": _TENSORS,
                "prompts": prompts}
    (folder / "logits.json").write_text(json.dumps(document, indent=1, ensure_ascii=False),
                                        encoding="utf-8")
    return furthest


@torch.no_grad()
def write_routing(model: Model, tokenizer: Any, versions: dict[str, str],
                  folder: Path) -> list[dict[str, Any]]:
    """Writes and returns the routing of the training code."""
    prompts = []
    for text in ROUTING:
        ids = tokenizer(text, return_tensors="pt").input_ids
        _, routing = model(ids)
        layers = [[{"experts": experts.tolist(), "weights": [round(w, 6) for w in weights.tolist()]}
                   for experts, weights in zip(stats.experts, stats.weights)] for stats in routing]
        prompts.append({"prompt": text, "ids": ids[0].tolist(), "layers": layers})
    document = {"made_with": versions, "precision": _PRECISION, "layout": _LAYOUT,
                "prompts": prompts}
    (folder / "routing.json").write_text(json.dumps(document, ensure_ascii=False),
                                         encoding="utf-8")
    return prompts


@torch.no_grad()
def count_equal_routing(reference: Any, prompt: dict[str, Any]) -> str:
    """How many expert sets of a prompt are those that the reference's router logits give."""
    output = reference(torch.tensor([prompt["ids"]]), output_router_logits=True)
    equal = total = 0
    for logits, layer in zip(output.router_logits, prompt["layers"]):
        best = logits.float().reshape(-1, A.num_experts).topk(A.num_experts_per_tok).indices
        for experts, token in zip(best.tolist(), layer):
            equal += set(experts) == set(token["experts"])
            total += 1
    return f"{equal} of {total}"
