# SPDX-License-Identifier: Apache-2.0
"""The training loop: updates, records, evaluations and checkpoints until the time is spent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.batches import Windows
from trainer.config import ARCHITECTURE as A
from trainer.config import DOMAINS
from trainer.evaluate import evaluate
from trainer.model import Losses, Model, count_parameters, losses
from trainer.schedule import StepClock, learning_rate
from trainer.weights import read_published

_CLIP, _WEIGHT_DECAY, _BETAS = 1.0, 0.1, (0.9, 0.95)
_STEPS_PER_TICK = 10  # reading the clock waits for the device, so not every step does
_STEPS_PER_RECORD = 50
_SECONDS_PER_EVALUATION = 120
_EVALUATION_TOKENS = 65_536  # of each domain, while training


@dataclass(frozen=True)
class Settings:
    """One training run."""

    minutes: float  # spent in steps; compilation and evaluation do not count
    batch: int  # sequences a step
    seq: int  # tokens a sequence
    long: float  # last share of the run, with twice the length and half the batch
    lr: float  # peak learning rate
    balance: float  # coefficient of the balance loss of a layer
    z: float  # coefficient of the router z-loss of a layer
    chat_share: float | None  # share of chat, when not the usual one
    init: Path | None  # exported folder to start from
    max_steps: int | None  # ends the run earlier
    compiled: bool
    device: str


def make_optimizer(model: Model, rate: float) -> torch.optim.Optimizer:
    """AdamW; matrices decay, the embedding and the norms do not."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        decays = parameter.ndim == 2 and name != "embed.weight"
        (matrices if decays else others).append(parameter)
    groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY},
              {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=_BETAS, eps=1e-8, fused=True)


class Trainer:
    """A model, its optimizer and its data, from the first step to final.json."""

    def __init__(self, settings: Settings, work: Path) -> None:
        torch.manual_seed(1)
        self.settings, self.work = settings, work
        self.device = torch.device(settings.device)
        self.windows = Windows(work, settings.chat_share, self.device)
        self.windows.check(settings.seq * (2 if settings.long > 0 else 1))
        self.model = Model().to(self.device)
        if settings.init is not None:
            self.model.load_state_dict(read_published(settings.init))
        self.optimizer = make_optimizer(self.model, settings.lr)
        self._losses: Callable[[Model, Tensor, Tensor], Losses] = (
            torch.compile(losses, dynamic=False) if settings.compiled else losses)
        self.clock = StepClock()
        self.seq, self.batch = settings.seq, settings.batch
        self.steps = self.tokens = 0
        self._rate = 0.0
        self._evaluated_at = 0.0

    def run(self) -> None:
        """Trains, then writes the checkpoint and final.json."""
        print(f"{count_parameters(self.model) / 1e6:.2f} M parameters, "
              f"{self.windows.num_tokens / 1e6:.1f} M training tokens", flush=True)
        with open(self.work / "train_log.jsonl", "a", encoding="utf-8") as log:
            while not self._done():
                self._lengthen()
                result, norm = self._step()
                if self.steps % _STEPS_PER_TICK == 0 or not self.clock.running:
                    self._look(result, norm, log.write)
                    log.flush()
        self.save()
        self._finish()

    def _done(self) -> bool:
        limit = self.settings.max_steps
        return (self.clock.spent >= self.settings.minutes * 60
                or (limit is not None and self.steps >= limit))

    def _lengthen(self) -> None:
        """Doubles the length for the last share of the time; recompiling is not counted."""
        begin = self.settings.minutes * 60 * (1 - self.settings.long)
        if self.clock.spent > begin and self.seq == self.settings.seq:
            self.seq, self.batch = self.settings.seq * 2, self.settings.batch // 2
            self.clock.pause()

    def _step(self) -> tuple[Losses, Tensor]:
        """One update; returns the losses and the norm of the gradient before clipping."""
        fraction = self.clock.spent / (self.settings.minutes * 60)
        self._rate = learning_rate(self.settings.lr, self.steps, fraction)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate
        ids, targets = self.windows.draw(self.batch, self.seq)
        with torch.autocast(self.device.type, torch.bfloat16):
            result = self._losses(self.model, ids, targets)
        total = result.text + self.settings.balance * result.balance + self.settings.z * result.z
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), _CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens += ids.numel()
        self.steps += 1
        return result, norm

    def _look(self, result: Losses, norm: Tensor, write: Callable[[str], Any]) -> None:
        """Reads the clock; now and then writes a record, evaluates and saves."""
        result.text.item()  # waits for the device, so that the clock counts finished steps
        self.clock.tick()
        if self.steps % _STEPS_PER_RECORD == 0:
            line = json.dumps(self._record(result, norm))
            write(line + "\n")
            if self.steps % 250 == 0 or self.steps <= 100:
                print(line, flush=True)
        if self.clock.spent - self._evaluated_at > _SECONDS_PER_EVALUATION:
            self._evaluated_at = self.clock.spent
            line = json.dumps({"step": self.steps, "valid_bits_per_byte": self._bits_per_byte()})
            write(line + "\n")
            print(line, flush=True)
            self.save()
            self.clock.skip()

    def _record(self, result: Losses, norm: Tensor) -> dict[str, Any]:
        hottest = result.load.max(1).values * A.num_experts
        return {"step": self.steps, "tokens": self.tokens, "seconds": round(self.clock.spent, 1),
                "seq": self.seq, "loss": round(result.text.item(), 4), "lr": self._rate,
                "grad_norm": round(norm.item(), 3),
                "balance": round(result.balance.item() / A.num_hidden_layers, 4),
                "max_over_mean": [round(value, 2) for value in hottest.tolist()]}

    def _bits_per_byte(self) -> dict[str, float]:
        results, _ = evaluate(self.model, self.work, _EVALUATION_TOKENS)
        return {domain: round(row["bits_per_byte"], 4) for domain, row in results.items()}

    def save(self) -> None:
        """Writes ckpt.pt in one piece."""
        partial = self.work / "ckpt.tmp"
        torch.save({"model": self.model.state_dict(), "step": self.steps, "tokens": self.tokens,
                    "spent": self.clock.spent}, partial)
        os.replace(partial, self.work / "ckpt.pt")

    def _finish(self) -> None:
        results, counts = evaluate(self.model, self.work)
        final = {"tokens": self.tokens, "steps": self.steps, "seconds": self.clock.spent,
                 "settings": asdict(self.settings), "valid": results,
                 "expert_tokens": counts.tolist(), "domains": DOMAINS}
        (self.work / "final.json").write_text(json.dumps(final, default=str), encoding="utf-8")
        print("done", json.dumps({domain: round(row["bits_per_byte"], 4)
                                  for domain, row in results.items()}), flush=True)
