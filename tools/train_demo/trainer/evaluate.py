# SPDX-License-Identifier: Apache-2.0
"""Losses and expert loads on held-out text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainer.config import ARCHITECTURE as A
from trainer.config import DOMAINS, END_OF_TEXT
from trainer.model import IGNORED, Model, token_losses
from trainer.tokens import token_file

_LENGTH = 1024  # tokens of a window
_BATCH = 64


def _batches(ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Consecutive windows of ids [tokens]: inputs and targets [batch, length], the last padded."""
    ids = torch.cat((ids.new_tensor([END_OF_TEXT]), ids))
    windows = [ids[i:i + _LENGTH + 1] for i in range(0, len(ids) - 1, _LENGTH)]
    for first in range(0, len(windows), _BATCH):
        part = windows[first:first + _BATCH]
        inputs = ids.new_zeros(len(part), _LENGTH)
        targets = ids.new_full((len(part), _LENGTH), IGNORED)
        for row, window in enumerate(part):
            inputs[row, :len(window) - 1] = window[:-1]
            targets[row, :len(window) - 1] = window[1:]
        yield inputs, targets


def _evaluate_domain(model: Model, ids: Tensor) -> tuple[float, int, Tensor]:
    """Sum of losses in nats, number of tokens, and assignments [L, E] i64."""
    nats, tokens = 0.0, 0
    counts = torch.zeros(A.num_hidden_layers, A.num_experts, dtype=torch.int64)
    for inputs, targets in _batches(ids):
        with torch.autocast(ids.device.type, torch.bfloat16):
            logits, routing = model(inputs)
            loss = token_losses(logits, targets)
        counted = targets >= 0
        nats += loss[counted].sum().item()
        tokens += int(counted.sum().item())
        for layer, stats in enumerate(routing):
            used = stats.experts[counted.flatten()].flatten()
            counts[layer] += torch.bincount(used, minlength=A.num_experts).cpu()
    return nats, tokens, counts


@torch.no_grad()
def evaluate(model: Model, work: Path,
             max_tokens: int | None = None) -> tuple[dict[str, dict[str, float]], Tensor]:
    """Loss by domain, and assignments [L, E, domains] i64; at most `max_tokens` of each domain."""
    sizes = json.loads((work / "sizes.json").read_text(encoding="utf-8"))
    device = model.embed.weight.device
    results, counts = {}, []
    for domain in DOMAINS:
        ids = torch.from_numpy(np.load(token_file(work, "valid", domain)).astype(np.int64))
        nats, tokens, used = _evaluate_domain(model, ids[:max_tokens].to(device))
        num_bytes = sizes[domain]["valid"]["bytes"] * tokens / len(ids)
        results[domain] = {"nats_per_token": nats / tokens,
                           "bits_per_byte": nats / math.log(2) / num_bytes, "tokens": tokens}
        counts.append(used)
    return results, torch.stack(counts, -1)
