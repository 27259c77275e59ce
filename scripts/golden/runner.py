# SPDX-License-Identifier: Apache-2.0
"""Runs a reference model and captures what a golden holds.

Shapes: logits [T, V], hidden state after each layer [T, D], picks [T, K] by falling weight.
"""

import dataclasses
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from golden.deepseek_v1 import DeepseekForCausalLM

EXPERTS = "eager"  # The loop over experts; transformers' other paths agree with it to rounding.


@dataclasses.dataclass
class Trace:
    """One run over T tokens."""

    logits: torch.Tensor  # [T, V]
    hidden: list  # L tensors [T, D]
    experts: dict  # layer -> [T, K] int64
    weights: dict  # layer -> [T, K] float
    router_logits: dict  # layer -> [T, E] float

    def routing_gap(self, row: int) -> float:
        """The smallest distance between neighbours among the K + 1 largest router logits of a token."""
        gaps = []
        for layer, logits in self.router_logits.items():
            count = self.experts[layer].shape[1] + 1
            best = logits[row].float().sort(descending=True).values[:count]
            gaps.append((best[:-1] - best[1:]).min().item())
        return min(gaps)


def load_model(folder: pathlib.Path, dtype: torch.dtype):
    """Loads the model of a folder as the reference does; eager attention, eager experts."""
    if json.loads((folder / "config.json").read_text())["model_type"] == "deepseek":
        return DeepseekForCausalLM.from_folder(folder, dtype)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation=EXPERTS,
        local_files_only=True, output_loading_info=True)
    problems = {name: found for name, found in info.items() if found}
    if problems:
        raise RuntimeError(f"{folder}: the reference does not accept the files: {problems}")
    return model.eval()


class Runner:
    """A model with hooks on its layers and routers."""

    def __init__(self, model, router: str):
        self.model = model
        self._hidden, self._routing = {}, {}
        for index, layer in enumerate(model.model.layers):
            layer.register_forward_hook(self._save(self._hidden, index, lambda out: out))
            try:
                layer.get_submodule(router).register_forward_hook(
                    self._save(self._routing, index, _routing_of))
            except AttributeError:
                pass  # A dense layer.

    @staticmethod
    def _save(store: dict, index: int, convert):
        def hook(module, inputs, output):
            store.setdefault(index, []).append(convert(output))
        return hook

    @property
    def sparse_layers(self) -> list:
        """Indices of the layers with a router; known after the first run."""
        return sorted(self._routing)

    @torch.no_grad()
    def run(self, ids: list, chunks: list | None = None) -> Trace:
        """Feeds ids at once without a cache, or in chunks of the given sizes with one."""
        self._hidden.clear()
        self._routing.clear()
        reset_rope(self.model)
        logits, past, start = [], None, 0
        for size in chunks or [len(ids)]:
            part = torch.tensor([ids[start:start + size]])
            out = self.model(input_ids=part, past_key_values=past, use_cache=chunks is not None)
            past, start = out.past_key_values, start + size
            logits.append(out.logits[0])
        hidden = [torch.cat([part[0] for part in self._hidden[l]]) for l in sorted(self._hidden)]
        routing = {l: [torch.cat(parts) for parts in zip(*self._routing[l])] for l in self.sparse_layers}
        return Trace(torch.cat(logits), hidden, {l: r[0] for l, r in routing.items()},
                     {l: r[1] for l, r in routing.items()}, {l: r[2] for l, r in routing.items()})

    @torch.no_grad()
    def greedy(self, ids: list, count: int) -> tuple:
        """Prefill, then count cached steps; returns (new ids, smallest top-1 margin, smallest gap)."""
        self._routing.clear()
        reset_rope(self.model)
        past, fresh, margin = DynamicCache(config=self.model.config), [], float("inf")
        part = torch.tensor([ids])
        for _ in range(count):
            out = self.model(input_ids=part, past_key_values=past, use_cache=True)
            best = out.logits[0, -1].float().topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            fresh.append(best.indices[0].item())
            part = torch.tensor([[fresh[-1]]])
        routing = {l: [torch.cat(p) for p in zip(*self._routing[l])] for l in self.sparse_layers}
        trace = Trace(None, [], {l: r[0] for l, r in routing.items()}, {},
                      {l: r[2] for l, r in routing.items()})
        rows = len(ids) + count - 1
        return fresh, margin, min(trace.routing_gap(row) for row in range(rows))


def reset_rope(model) -> None:
    """Forgets the longest length seen: dynamic scaling keeps it in the module between calls."""
    rope = model.model.rotary_emb
    rope.inv_freq = rope.original_inv_freq.clone()
    rope.max_seq_len_cached = rope.original_max_seq_len


def _routing_of(output) -> tuple:
    """Router outputs to (ids, weights, logits): the order differs between the classes."""
    ids = next(part for part in output if part.dtype == torch.int64)
    weights, logits = sorted((part for part in output if part is not ids), key=lambda part: part.shape[-1])
    return ids, weights, logits
