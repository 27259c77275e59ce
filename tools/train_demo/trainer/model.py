# SPDX-License-Identifier: Apache-2.0
"""The whole model, and its losses over a batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config import ARCHITECTURE as A
from trainer.layers import (
    INITIAL_DEVIATION,
    OUTPUT_DEVIATION,
    Attention,
    MixtureOfExperts,
    RMSNorm,
    RouterStats,
    rope_tables,
)

IGNORED = -100  # a target that counts for nothing


class Block(nn.Module):
    """Norm, attention, norm, mixture of experts; both sub-layers add to the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(A.hidden_size)
        self.post_attention_layernorm = RMSNorm(A.hidden_size)
        self.self_attn, self.mlp = Attention(), MixtureOfExperts()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, RouterStats]:
        """x [B, T, D] to [B, T, D]; cos, sin [T, Z]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        added, stats = self.mlp(self.post_attention_layernorm(x))
        return x + added, stats


class Model(nn.Module):
    """Token ids to logits; the output matrix is the embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(A.vocab_size, A.hidden_size)
        self.layers = nn.ModuleList(Block() for _ in range(A.num_hidden_layers))
        self.norm = RMSNorm(A.hidden_size)
        for name, parameter in self.named_parameters():
            if name.endswith("proj.weight") or name == "embed.weight":
                deviation = OUTPUT_DEVIATION if "o_proj" in name else INITIAL_DEVIATION
                nn.init.normal_(parameter, std=deviation)
        cos, sin = rope_tables()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Tensor) -> tuple[Tensor, list[RouterStats]]:
        """ids [B, T] to logits [B, T, V] and the routing of each layer."""
        length = ids.shape[1]
        x = self.embed(ids)
        routing = []
        for layer in self.layers:
            x, stats = layer(x, self.cos[:length], self.sin[:length])
            routing.append(stats)
        return F.linear(self.norm(x), self.embed.weight), routing


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy [B, T] f32 of logits [B, T, V] against targets [B, T]; 0 where IGNORED."""
    flat = logits.view(-1, logits.shape[-1]).float()
    loss = F.cross_entropy(flat, targets.reshape(-1), reduction="none", ignore_index=IGNORED)
    return loss.view(targets.shape)


class Losses(NamedTuple):
    """The losses of one batch; balance and z are sums over the layers."""

    text: Tensor  # [] nats a token
    balance: Tensor  # []
    z: Tensor  # []
    load: Tensor  # [L, E]


def losses(model: Model, ids: Tensor, targets: Tensor) -> Losses:
    """One forward pass over ids [B, T] against targets [B, T]; the function that is compiled."""
    logits, routing = model(ids)
    balance = torch.stack([stats.balance for stats in routing]).sum()
    z = torch.stack([stats.z for stats in routing]).sum()
    load = torch.stack([stats.load for stats in routing])
    return Losses(token_losses(logits, targets).mean(), balance, z, load)


def count_parameters(model: nn.Module) -> int:
    """All weights, the shared embedding once."""
    return sum(parameter.numel() for parameter in model.parameters())
