# SPDX-License-Identifier: Apache-2.0
"""Losses of the demonstration model on held-out text with a capacity, by transformers in f32.

A hook before the experts of each layer finds the picks beyond ceil(c K T / E) in a plain loop and
sets their weights to zero, which is what a dropped pick adds. Windows of 512 tokens, each alone, no
row left out: `switchyard bench quality --dtype f32 -c 512`.
"""

import math

import torch
import transformers

from golden.common import GOLDEN, REPO, versions, write_json

_CONTEXT = 512
_CASES = [(0, "drop_lowest"), (1.25, "drop_lowest"), (1.25, "drop_last"), (2, "drop_lowest")]


class Limit:
    """The capacity under test, and what it dropped by layer."""

    def __init__(self, factor: float, overflow: str, layers: int) -> None:
        self.factor, self.overflow = factor, overflow
        self.dropped = [0] * layers

    def apply(self, layer: int, experts: torch.Tensor, weights: torch.Tensor, num_experts: int) -> torch.Tensor:
        """Weights [T, K] with those of dropped picks at zero."""
        tokens, top_k = experts.shape
        capacity = max(1, math.ceil(round(self.factor * tokens * top_k / num_experts, 9)))
        weights = weights.clone()
        for expert in range(num_experts):
            picks = torch.nonzero(experts == expert).tolist()  # by token
            if self.overflow == "drop_lowest":
                picks.sort(key=lambda pick: (-weights[pick[0], pick[1]].item(), pick[0]))
            for token, k in picks[capacity:]:
                weights[token, k] = 0.0
                self.dropped[layer] += 1
        return weights


def _watch(model: torch.nn.Module, num_experts: int) -> dict:
    """Hooks every layer's experts; the limit is the "limit" of the returned dictionary."""
    state: dict = {"limit": None}
    modules = [m for m in model.modules() if type(m).__name__ == "Qwen3MoeExperts"]
    for layer, module in enumerate(modules):
        def hook(_module, args, kwargs, layer=layer):
            hidden, experts, weights = args[:3]
            if state["limit"].factor > 0:
                weights = state["limit"].apply(layer, experts, weights, num_experts)
            return (hidden, experts, weights, *args[3:]), kwargs
        module.register_forward_pre_hook(hook, with_kwargs=True)
    return state


def _loss(model: torch.nn.Module, ids: list[int]) -> tuple[int, float]:
    """Tokens, and nats a token."""
    nats = 0.0
    for begin in range(0, len(ids) - 1, _CONTEXT):
        end = min(begin + _CONTEXT, len(ids) - 1)
        logits = model(torch.tensor([ids[begin:end]])).logits[0].double()
        targets = torch.tensor(ids[begin + 1:end + 1])
        nats -= torch.log_softmax(logits, -1)[torch.arange(len(targets)), targets].sum().item()
    return len(ids) - 1, nats / (len(ids) - 1)


@torch.no_grad()
def write_capacity() -> None:
    """Writes tests/golden/capacity/held_out.json."""
    folder = REPO / "models/demo"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    text = (folder / "held_out/spanish.txt").read_text(encoding="utf-8")
    ids = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    state = _watch(model, model.config.num_experts)
    rows = []
    for factor, overflow in _CASES:
        state["limit"] = Limit(factor, overflow, model.config.num_hidden_layers)
        tokens, nats = _loss(model, ids)
        rows.append({"capacity_factor": factor, "overflow": overflow, "tokens": tokens,
                     "nats_per_token": nats, "dropped": state["limit"].dropped})
    write_json(GOLDEN / "capacity/held_out.json",
               {"made_with": versions("torch", "transformers"), "input": "models/demo/held_out/spanish.txt",
                "context": _CONTEXT, "rows": rows})
