# SPDX-License-Identifier: Apache-2.0
"""What the exported model does in bf16 through transformers: agreement with fp32, and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from trainer.config import DOMAINS, END_OF_TEXT, END_OF_TURN
from trainer.prompts import CONTINUATIONS, QUESTIONS
from trainer.tokens import token_file

_TOKENS_COMPARED = 1024  # of each domain
_CONTINUATION_TOKENS, _ANSWER_TOKENS = 96, 120
_SAMPLING = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 40}
_SEED = 5


@torch.no_grad()
def compare_precision(wide: Any, narrow: Any, work: Path) -> dict[str, float]:
    """The bf16 model against the fp32 one on held-out text: same best token, and divergence."""
    agreeing = tokens = 0
    divergence = 0.0
    for domain in DOMAINS:
        ids = np.load(token_file(work, "valid", domain))[:_TOKENS_COMPARED].astype(np.int64)
        batch = torch.from_numpy(ids)[None].to(narrow.device)
        true, rounded = wide(batch).logits[0].float(), narrow(batch).logits[0].float()
        agreeing += int((true.argmax(-1) == rounded.argmax(-1)).sum())
        tokens += len(ids)
        divergence += F.kl_div(rounded.log_softmax(-1), true.log_softmax(-1), log_target=True,
                               reduction="sum").item()
    return {"transformers_bf16_vs_fp32_top1_agreement": agreeing / tokens,
            "transformers_bf16_vs_fp32_kl_nats_per_token": divergence / tokens}


class Writer:
    """Generates texts in batches."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        torch.manual_seed(_SEED)
        self._model, self._tokenizer = model, tokenizer
        tokenizer.padding_side = "left"

    def _write(self, prompts: list[str], max_tokens: int, **sampling: Any) -> list[str]:
        batch = self._tokenizer(prompts, return_tensors="pt", padding=True).to(self._model.device)
        batch.pop("token_type_ids", None)
        written = self._model.generate(
            **batch, max_new_tokens=max_tokens, pad_token_id=END_OF_TEXT,
            eos_token_id=[END_OF_TURN, END_OF_TEXT], **sampling)
        prompt_tokens = batch.input_ids.shape[1]
        return [self._tokenizer.decode(ids[prompt_tokens:], skip_special_tokens=True)
                for ids in written]

    def _both(self, key: str, shown: list[str], prompts: list[str],
              max_tokens: int) -> list[dict[str, str]]:
        greedy = self._write(prompts, max_tokens, do_sample=False)
        sampled = self._write(prompts, max_tokens, **_SAMPLING)
        return [{key: prompt, "greedy": best, "sampled": drawn}
                for prompt, best, drawn in zip(shown, greedy, sampled)]

    def continuations(self) -> list[dict[str, str]]:
        """Text after the prompts of the domains."""
        return self._both("prompt", CONTINUATIONS, CONTINUATIONS, _CONTINUATION_TOKENS)

    def answers(self) -> list[dict[str, str]]:
        """Answers in chat."""
        prompts = [self._tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
            for question in QUESTIONS]
        return self._both("question", QUESTIONS, prompts, _ANSWER_TOKENS)
