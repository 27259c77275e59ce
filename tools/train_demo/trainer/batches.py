# SPDX-License-Identifier: Apache-2.0
"""Draws training windows from the token files, domain by domain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainer.config import CHAT, DOMAINS, END_OF_TEXT, SHARES
from trainer.tokens import token_file

_SEED = 7
_ALIGNED = 1 / 3  # share of the windows that begin with a document, outside chat


class Windows:
    """All training tokens on the device, and a generator that draws windows of them."""

    def __init__(self, work: Path, chat_share: float | None, device: torch.device) -> None:
        arrays = [np.load(token_file(work, "train", domain)) for domain in DOMAINS]
        self._data = [torch.from_numpy(a.astype(np.int32)).to(device) for a in arrays]
        self._starts = [_document_starts(ids) for ids in self._data]
        lengths = torch.tensor([0] + [len(ids) for ids in self._data], device=device)
        self._base = lengths.cumsum(0)
        self._flat = torch.cat(self._data)
        self._share = _shares(chat_share, device)
        self._random = torch.Generator(device=device).manual_seed(_SEED)
        self._device = device

    @property
    def num_tokens(self) -> int:
        """Training tokens of all domains."""
        return len(self._flat)

    def check(self, length: int) -> None:
        """Ends the program when a domain is too short for windows of this length."""
        for domain, ids in zip(DOMAINS, self._data):
            if len(ids) < length + 3:
                raise SystemExit(f"domain {domain} has {len(ids)} training tokens, too few for "
                                 f"windows of {length}: add packages or take a smaller --seq")

    def draw(self, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Ids and next ids, both [batch, length] i64."""
        random, device = self._random, self._device
        domain = torch.multinomial(self._share, batch, replacement=True, generator=random)
        place = torch.rand(batch, device=device, generator=random, dtype=torch.float64)
        aligned = torch.rand(batch, device=device, generator=random) < _ALIGNED
        offset = torch.empty(batch, dtype=torch.long, device=device)
        for index in range(len(DOMAINS)):
            start = self._base[index] + self._begin(index, place, aligned, length)
            offset = torch.where(domain == index, start, offset)
        window = self._flat[offset[:, None] + torch.arange(length + 1, device=device)].long()
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()

    def _begin(self, index: int, place: Tensor, aligned: Tensor, length: int) -> Tensor:
        """Where windows begin within a domain: place [batch] in [0, 1) to positions [batch]."""
        starts, last = self._starts[index], len(self._data[index]) - length - 2
        if index == CHAT:  # always a whole exchange, each as likely as another
            chosen = starts[(place * len(starts)).long().clamp(max=len(starts) - 1)]
        else:
            free = (place * last).long()
            before = torch.searchsorted(starts, free, right=True) - 1
            chosen = torch.where(aligned, starts[before.clamp(min=0)], free)
        return chosen.clamp(max=last)


def _document_starts(ids: Tensor) -> Tensor:
    """Positions of the first tokens of documents in ids [tokens]."""
    ends = (ids == END_OF_TEXT).nonzero()[:-1, 0]
    return torch.cat((torch.zeros(1, dtype=torch.long, device=ids.device), ends + 1))


def _shares(chat_share: float | None, device: torch.device) -> Tensor:
    """The shares [domains]; with another share for chat the others are scaled to fit."""
    share = torch.tensor(list(SHARES.values()), device=device)
    if chat_share is not None:
        share = share * (1 - chat_share) / (1 - share[CHAT])
        share[CHAT] = chat_share
    return share
