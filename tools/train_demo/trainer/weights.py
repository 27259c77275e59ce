# SPDX-License-Identifier: Apache-2.0
"""Two names for each weight: ours while training, and the published ones of Qwen3-MoE.

Training keeps the experts of a layer in three matrices: gate and up [E * F, D], down [D, E * F].
Published folders hold one matrix for each: gate_proj and up_proj [F, D], down_proj [D, F].
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from trainer.config import ARCHITECTURE as A

_PLAIN_NAMES = ("input_layernorm", "post_attention_layernorm", "self_attn.q_proj",
                "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
                "self_attn.k_norm")
_EXPERT_PARTS = {"gate": 0, "up": 0, "down": 1}  # part to the axis along which experts lie


def _expert_name(layer: int, expert: int, part: str) -> str:
    return f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"


def _same_tensors() -> dict[str, str]:
    """Our name to the published name of every tensor that is the same in both forms."""
    names = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    for layer in range(A.num_hidden_layers):
        for name in _PLAIN_NAMES:
            names[f"layers.{layer}.{name}.weight"] = f"model.layers.{layer}.{name}.weight"
        names[f"layers.{layer}.mlp.router"] = f"model.layers.{layer}.mlp.gate.weight"
    return names


def publish(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our weights as published bf16 tensors, layer after layer."""
    shared = {theirs: state[ours] for ours, theirs in _same_tensors().items()}
    out = {name: shared.pop(name) for name in ("model.embed_tokens.weight", "model.norm.weight")}
    for layer in range(A.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        out.update((name, tensor) for name, tensor in shared.items() if name.startswith(prefix))
        for expert in range(A.num_experts):
            for part, axis in _EXPERT_PARTS.items():
                matrix = state[f"layers.{layer}.mlp.{part}"]
                out[_expert_name(layer, expert, part)] = matrix.narrow(
                    axis, expert * A.moe_intermediate_size, A.moe_intermediate_size)
    return {name: tensor.to(torch.bfloat16).contiguous().cpu() for name, tensor in out.items()}


def unpublish(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Published tensors as our weights, in fp32."""
    state = {ours: tensors[theirs] for ours, theirs in _same_tensors().items()}
    for layer in range(A.num_hidden_layers):
        for part, axis in _EXPERT_PARTS.items():
            experts = [tensors[_expert_name(layer, expert, part)]
                       for expert in range(A.num_experts)]
            state[f"layers.{layer}.mlp.{part}"] = torch.cat(experts, axis)
    return {name: tensor.float() for name, tensor in state.items()}


def read_published(folder: Path) -> dict[str, Tensor]:
    """Our weights from a folder that export.py wrote."""
    shards = sorted(folder.glob("model-*.safetensors"))
    if not shards:
        raise SystemExit(f"no model-*.safetensors in {folder}: export.py writes them")
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors.update(load_file(shard))
    return unpublish(tensors)
