#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which rounding to bf16 costs the demonstration model how much: its forward pass in f32 with chosen roundings alone, over the steps of
demo_steps_bf16.py. Run in the root, with the oracle's packages (scripts/requirements-oracle.txt):

  scripts/golden/demo_rounding.py [--streams N] "rows kv" "rows kv queries weights mixed hidden"

An argument names what is rounded: rows (what products read behind a norm), kv, queries, weights (of attention), parts (weights as two bf16
values), mixed (values), hidden (rows of experts). Prints, over all streams, the relative error of all rows of logits together and the median of
a row's own; then the error of each stream."""

import argparse
import pathlib

import torch
from demo_steps_bf16 import STEPS, VOCAB, philox4x32
from safetensors.torch import load_file

LAYERS, WIDTH, HEADS, GROUPS, HEAD_DIM, EXPERTS, PICKS = 6, 256, 4, 2, 64, 32, 4
FIRST_STREAM = 7


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class Demo:
    def __init__(self, folder: str) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            self.weights |= {name: value.float() for name, value in load_file(path).items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.weights[name + ".weight"]

    def attend(self, x: torch.Tensor, layer: str, what: set[str]) -> torch.Tensor:
        def perhaps(name: str, value: torch.Tensor) -> torch.Tensor:
            return rounded(value) if name in what else value

        count = len(x)
        row = perhaps("rows", norm(x, self[layer + "input_layernorm"]))
        inverse = 1e4 ** -(torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)
        angle = torch.arange(count).double()[:, None, None] * inverse
        cos, sin = angle.cos().float(), angle.sin().float()
        part = layer + "self_attn."
        q = (row @ self[part + "q_proj"].T).view(count, HEADS, HEAD_DIM)
        k = (row @ self[part + "k_proj"].T).view(count, GROUPS, HEAD_DIM)
        v = (row @ self[part + "v_proj"].T).view(count, GROUPS, HEAD_DIM)
        q = perhaps("queries", turn(norm(q, self[part + "q_norm"]), cos, sin))
        k = perhaps("kv", turn(norm(k, self[part + "k_norm"]), cos, sin)).repeat_interleave(HEADS // GROUPS, 1)
        v = perhaps("kv", v).repeat_interleave(HEADS // GROUPS, 1)
        scores = torch.einsum("thz,shz->hts", q, k) * HEAD_DIM**-0.5
        scores = scores.masked_fill(~torch.ones(count, count).tril().bool(), -torch.inf)
        weight = torch.exp(scores - scores.amax(-1, keepdim=True))
        if "parts" in what:
            weight = rounded(weight) + rounded(weight - rounded(weight))
        weight = perhaps("weights", weight)
        mixed = torch.einsum("hts,shz->thz", weight / weight.sum(-1, keepdim=True), v)
        return x + perhaps("mixed", mixed.reshape(count, -1)) @ self[part + "o_proj"].T

    def feed(self, x: torch.Tensor, layer: str, what: set[str]) -> torch.Tensor:
        normed = norm(x, self[layer + "post_attention_layernorm"])
        share, pick = (normed @ self[layer + "mlp.gate"].T).softmax(-1).topk(PICKS, -1)
        share = share / share.sum(-1, keepdim=True)
        row = rounded(normed) if "rows" in what else normed
        y = x.clone()
        for expert in range(EXPERTS):
            token, place = (pick == expert).nonzero(as_tuple=True)
            part = f"{layer}mlp.experts.{expert}."
            gate, up = (row[token] @ self[part + name].T for name in ("gate_proj", "up_proj"))
            hidden = torch.nn.functional.silu(gate) * up
            hidden = rounded(hidden) if "hidden" in what else hidden
            y.index_add_(0, token, hidden @ self[part + "down_proj"].T * share[token, place][:, None])
        return y

    def logits(self, ids: torch.Tensor, what: set[str]) -> torch.Tensor:
        x = self["model.embed_tokens"][ids]
        for i in range(LAYERS):
            x = self.feed(self.attend(x, f"model.layers.{i}.", what), f"model.layers.{i}.", what)
        row = norm(x, self["model.norm"])
        return (rounded(row) if "rows" in what else row) @ self["model.embed_tokens"].T


def run(demo: Demo, stream: int, what: set[str]) -> torch.Tensor:
    """The logits that the steps ask for."""
    lengths, ends = [0] * 24, [[] for _ in range(24)]
    for step in STEPS:
        for sequence, count in enumerate(step):
            lengths[sequence] += count
            ends[sequence].append(lengths[sequence] - 1)
    found = []
    for sequence, length in enumerate(lengths):
        if length > 0:
            ids = [philox4x32([sequence, p, 0, 0], [stream, 7])[0] % VOCAB for p in range(length)]
            found.append(demo.logits(torch.tensor(ids), what)[ends[sequence]].double())
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("roundings", nargs="+")
    args = parser.parse_args()
    demo = Demo("models/demo")
    streams = range(FIRST_STREAM, FIRST_STREAM + args.streams)
    with torch.no_grad():
        exact = [run(demo, stream, set()) for stream in streams]
        for roundings in args.roundings:
            wrong = [run(demo, stream, set(roundings.split())) - e for stream, e in zip(streams, exact, strict=True)]
            each = [(w.norm() / e.norm()).item() for w, e in zip(wrong, exact, strict=True)]
            all_wrong, all_exact = torch.cat(wrong), torch.cat(exact)
            median = (all_wrong.norm(dim=1) / all_exact.norm(dim=1)).median()
            print(f"{roundings}: {all_wrong.norm() / all_exact.norm():.5f}, median row {median:.5f}; by stream "
                  + " ".join(f"{e:.4f}" for e in each), flush=True)


if __name__ == "__main__":
    main()
