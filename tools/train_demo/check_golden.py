#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a model folder against its golden files, with a forward pass in numpy alone.

usage: check_golden.py MODEL [--tolerance 1e-4]

The folder's bf16 weights are widened and everything is computed in double precision. Checked are
the logits of the last position, the ten best logits of every position, the greedy continuation,
and the experts and weights of every token. The exit status is 1 when anything differs.

This is also the shortest full description of the model: a reading aid for other implementations.
Letters: T tokens, D width, E experts, K picks, F expert width, H query heads, G key/value heads,
Z head width, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
_DTYPES = {"F32": np.float32, "I32": np.int32}


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors of a file: 8 bytes of header length, a JSON header, the data."""
    raw = path.read_bytes()
    data = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:data]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        part = raw[data + first:data + last]
        if entry["dtype"] == "BF16":  # the upper half of an f32
            values = (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(part, _DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def softmax(x: Array) -> Array:
    """Over the last axis."""
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def silu(x: Array) -> Array:
    """x times its logistic function."""
    return x / (1 + np.exp(-x))


class Picks(NamedTuple):
    """The routing of one layer, by falling weight."""

    experts: Array  # [T, K] int
    weights: Array  # [T, K], adding up to 1


class NumpyModel:
    """Qwen3-MoE: pre-norm blocks of attention with query and key norm, and experts."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))
        self._tensors: dict[str, Array] = {}
        for shard in sorted(set(index["weight_map"].values())):
            self._tensors |= read_safetensors(folder / shard)

    def _weight(self, name: str) -> Array:
        return self._tensors[f"model.{name}.weight"].astype(np.float64)

    def _norm(self, x: Array, name: str) -> Array:
        mean_square = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean_square + self.config["rms_norm_eps"]) * self._weight(name)

    def _rope(self, x: Array) -> Array:
        """Rotates x [T, heads, Z] by its positions, the first half of Z against the second."""
        width = x.shape[-1]
        power = np.arange(0, width, 2) / width
        angle = np.arange(len(x))[:, None] / self.config["rope_theta"] ** power
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        first, second = x[..., :width // 2], x[..., width // 2:]
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)

    def _attention(self, x: Array, name: str) -> Array:
        """Causal attention over x [T, D]."""
        length, width = len(x), self.config["head_dim"]

        def heads(part: str) -> Array:
            return (x @ self._weight(f"{name}.{part}").T).reshape(length, -1, width)

        query = self._rope(self._norm(heads("q_proj"), f"{name}.q_norm"))  # [T, H, Z]
        key = self._rope(self._norm(heads("k_proj"), f"{name}.k_norm"))  # [T, G, Z]
        value = heads("v_proj")
        sharing = query.shape[1] // key.shape[1]
        key, value = key.repeat(sharing, 1), value.repeat(sharing, 1)
        score = np.einsum("thz,shz->hts", query, key) / np.sqrt(width)
        score = np.where(np.tri(length, dtype=bool), score, -np.inf)
        mixed = np.einsum("hts,shz->thz", softmax(score), value)
        return mixed.reshape(length, -1) @ self._weight(f"{name}.o_proj").T

    def _route(self, x: Array, name: str) -> Picks:
        """The K best experts of each row of x [T, D]; of equal ones the lower index."""
        probability = softmax(x @ self._weight(f"{name}.gate").T)
        order = np.argsort(-probability, -1, kind="stable")
        experts = order[:, :self.config["num_experts_per_tok"]]
        weights = np.take_along_axis(probability, experts, -1)
        return Picks(experts, weights / weights.sum(-1, keepdims=True))

    def _experts(self, x: Array, picks: Picks, name: str) -> Array:
        """The weighted sum of the picked experts for x [T, D]."""
        out = np.zeros_like(x)
        for expert in np.unique(picks.experts):
            rows, choice = np.nonzero(picks.experts == expert)
            gate, up, down = (self._weight(f"{name}.experts.{expert}.{part}_proj")
                              for part in ("gate", "up", "down"))
            hidden = silu(x[rows] @ gate.T) * (x[rows] @ up.T)  # [rows, F]
            out[rows] += picks.weights[rows, choice, None] * (hidden @ down.T)
        return out

    def forward(self, ids: Array) -> tuple[Array, list[Picks]]:
        """ids [T] to logits [T, V] and the routing of each layer."""
        embedding = self._weight("embed_tokens")
        x, routing = embedding[ids], []
        for layer in range(self.config["num_hidden_layers"]):
            name = f"layers.{layer}"
            x = x + self._attention(self._norm(x, f"{name}.input_layernorm"), f"{name}.self_attn")
            rows = self._norm(x, f"{name}.post_attention_layernorm")
            routing.append(self._route(rows, f"{name}.mlp"))
            x = x + self._experts(rows, routing[-1], f"{name}.mlp")
        return self._norm(x, "norm") @ embedding.T, routing


def check_logits(model: NumpyModel, golden: Path, tolerance: float) -> bool:
    """Compares every prompt; prints a line for each and returns whether all agree."""
    arrays = read_safetensors(golden / "logits.safetensors")
    prompts = json.loads((golden / "logits.json").read_text("utf-8"))["prompts"]
    agree = True
    for number, prompt in enumerate(prompts):
        # One pass over prompt and continuation: a greedy token is the best one at its place.
        length = len(prompt["ids"])
        logits, _ = model.forward(np.array(prompt["ids"] + prompt["greedy"]))
        best, top = arrays[f"top10_ids_{number}"], arrays[f"top10_logits_{number}"]
        last = np.abs(logits[length - 1] - arrays[f"last_logits_{number}"]).max()
        ten = np.abs(np.take_along_axis(logits[:length], best.astype(int), -1) - top).max()
        greedy = logits[length - 1:-1].argmax(-1).tolist()
        same = (greedy == prompt["greedy"] == arrays[f"greedy_{number}"].tolist()
                and prompt["ids"] == arrays[f"ids_{number}"].tolist())
        print(f"prompt {number}: last logits within {last:.1e}, ten best of {length} positions "
              f"within {ten:.1e}, {len(greedy)} greedy tokens {'equal' if same else 'DIFFER'}")
        agree = agree and same and max(last, ten) <= tolerance
    return agree


def check_routing(model: NumpyModel, golden: Path, tolerance: float) -> bool:
    """Compares the routing of every prompt, layer and token."""
    agree = True
    for prompt in json.loads((golden / "routing.json").read_text("utf-8"))["prompts"]:
        _, routing = model.forward(np.array(prompt["ids"]))
        experts = np.array([[token["experts"] for token in layer] for layer in prompt["layers"]])
        weights = np.array([[token["weights"] for token in layer] for layer in prompt["layers"]])
        same = np.array_equal(experts, np.stack([picks.experts for picks in routing]))
        error = np.abs(weights - np.stack([picks.weights for picks in routing])).max()
        print(f"routing of {len(prompt['ids'])} tokens: experts {'equal' if same else 'DIFFER'}, "
              f"weights within {error:.1e}")
        agree = agree and same and error <= tolerance
    return agree


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="model folder with golden/")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    if not (options.model / "golden" / "logits.json").is_file():
        parser.error(f"{options.model} has no golden/logits.json")
    model, golden = NumpyModel(options.model), options.model / "golden"
    results = [check_logits(model, golden, options.tolerance),
               check_routing(model, golden, options.tolerance)]
    print("all golden files agree" if all(results) else "the golden files do NOT agree")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
