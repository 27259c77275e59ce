# SPDX-License-Identifier: Apache-2.0
"""The parts of a block: RMS norm, grouped-query attention with RoPE, mixture of experts.

Sources: RMSNorm, Zhang and Sennrich 2019, arXiv 1910.07467; RoPE, Su et al. 2021, arXiv
2104.09864; SwiGLU, Shazeer 2020, arXiv 2002.05202; balance loss, Fedus et al. 2021 (Switch),
arXiv 2101.03961, equation 4; router z-loss, Zoph et al. 2022 (ST-MoE), arXiv 2202.08906.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config import ARCHITECTURE as A

INITIAL_DEVIATION = 0.02
# What a sub-layer adds to the stream starts smaller, by the square root of the number of additions.
OUTPUT_DEVIATION = INITIAL_DEVIATION / math.sqrt(2 * A.num_hidden_layers)


class RMSNorm(nn.Module):
    """Scales the last axis to mean square 1, in fp32, then by a learnt weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same shape and type."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + A.rms_norm_eps)
        return (self.weight * wide).to(x.dtype)


def rope_tables() -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, Z]; both halves of Z hold the same angles."""
    power = torch.arange(0, A.head_dim, 2).float() / A.head_dim
    frequency = 1.0 / A.rope_theta ** power
    angle = torch.arange(A.max_position_embeddings).float()[:, None] * frequency
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the halves of the last axis against each other: x [B, heads, T, Z]."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    """Causal attention; each key/value head serves H / G query heads."""

    def __init__(self) -> None:
        super().__init__()
        query, shared = A.num_attention_heads * A.head_dim, A.num_key_value_heads * A.head_dim
        self.q_proj = nn.Linear(A.hidden_size, query, bias=False)
        self.k_proj = nn.Linear(A.hidden_size, shared, bias=False)
        self.v_proj = nn.Linear(A.hidden_size, shared, bias=False)
        self.o_proj = nn.Linear(query, A.hidden_size, bias=False)
        self.q_norm, self.k_norm = RMSNorm(A.head_dim), RMSNorm(A.head_dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, D] to [B, T, D]; cos, sin [T, Z]."""
        sequences, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:  # [B, T, heads * Z] to [B, T, heads, Z]
            return projected.view(sequences, length, -1, A.head_dim)

        query = self.q_norm(heads(self.q_proj(x))).transpose(1, 2)
        key = self.k_norm(heads(self.k_proj(x))).transpose(1, 2)
        value = heads(self.v_proj(x)).transpose(1, 2)
        query, key = rotate(query, cos, sin).to(value.dtype), rotate(key, cos, sin).to(value.dtype)
        repeats = A.num_attention_heads // A.num_key_value_heads
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(sequences, length, -1))


class RouterStats(NamedTuple):
    """What the router of one layer did with a batch of B * T tokens."""

    balance: Tensor  # [] Switch loss: 1 when the load is even
    z: Tensor  # [] mean squared log-sum-exp of the router logits
    load: Tensor  # [E] share of the assignments of each expert
    experts: Tensor  # [B * T, K] i64, by falling weight
    weights: Tensor  # [B * T, K] f32, adding up to 1


class MixtureOfExperts(nn.Module):
    """Softmax router over E experts, the best K of them with renormalised weights.

    Every expert is computed for every token and scaled by its mostly zero gate: 32 experts of
    width 64 are one ordinary SwiGLU of width 2048, which at this size is faster than grouping
    tokens by expert, and no token is dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        rows = A.num_experts * A.moe_intermediate_size  # expert e owns rows [e * F, (e + 1) * F)
        self.router = nn.Parameter(torch.randn(A.num_experts, A.hidden_size) * INITIAL_DEVIATION)
        self.gate = nn.Parameter(torch.randn(rows, A.hidden_size) * INITIAL_DEVIATION)
        self.up = nn.Parameter(torch.randn(rows, A.hidden_size) * INITIAL_DEVIATION)
        self.down = nn.Parameter(torch.randn(A.hidden_size, rows) * OUTPUT_DEVIATION)

    def route(self, x: Tensor) -> tuple[Tensor, RouterStats]:
        """x [B * T, D] to gates [B * T, E] f32, zero except for the picks."""
        with torch.autocast(x.device.type, enabled=False):  # routing in fp32
            logits = F.linear(x.float(), self.router.float())
            probability = logits.softmax(-1)
            weights, experts = probability.topk(A.num_experts_per_tok, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            picked = torch.zeros_like(probability).scatter(1, experts, 1.0)
            gates = torch.zeros_like(probability).scatter(1, experts, weights)
            load = picked.mean(0) / A.num_experts_per_tok
            balance = A.num_experts * (load * probability.mean(0)).sum()
            z = logits.logsumexp(-1).pow(2).mean()
        return gates, RouterStats(balance, z, load, experts, weights)

    def forward(self, x: Tensor) -> tuple[Tensor, RouterStats]:
        """x [B, T, D] to [B, T, D]."""
        rows = x.reshape(-1, A.hidden_size)
        gates, stats = self.route(rows)
        hidden = F.silu(F.linear(rows, self.gate)) * F.linear(rows, self.up)  # [B * T, E * F]
        by_expert = hidden.view(-1, A.num_experts, A.moe_intermediate_size)
        gated = by_expert * gates.to(hidden.dtype).unsqueeze(-1)
        return F.linear(gated.reshape(hidden.shape), self.down).view(x.shape), stats
