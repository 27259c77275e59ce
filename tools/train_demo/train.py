#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demonstration model on one GPU (or, for a trial of a few steps, on a CPU).

usage: train.py --corpus CORPUS --work WORK [options]

CORPUS is what prepare_corpus.sh made. WORK gets tokenizer.json (unless it is there already), token
files, train_log.jsonl, ckpt.pt and final.json. README.md has the commands of both phases.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from trainer.config import ARCHITECTURE
from trainer.loop import Settings, Trainer
from trainer.tokens import prepare


def make_parser() -> argparse.ArgumentParser:
    """The options; their defaults are those of the first phase."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--corpus", type=Path, required=True, help="folder of prepare_corpus.sh")
    add("--work", type=Path, required=True, help="folder for tokens, log and checkpoint")
    add("--minutes", type=float, default=14, help="time spent in training steps")
    add("--batch", type=int, default=256, help="sequences a step")
    add("--seq", type=int, default=1024, help="tokens a sequence")
    add("--long", type=float, default=0.12, help="last share of the run, with twice the length")
    add("--lr", type=float, default=3e-3, help="peak learning rate")
    add("--balance", type=float, default=0.005, help="coefficient of a layer's balance loss")
    add("--z", type=float, default=1e-4, help="coefficient of a layer's router z-loss")
    add("--init", type=Path, help="start from the weights of this exported folder")
    add("--chat-share", type=float, help="share of chat; the others are scaled to fit")
    add("--core-chat", action="store_true", help="train.chat_core is the chat domain")
    add("--domain-mb", type=float, help="at most so many megabytes of each domain but chat")
    add("--prepare-only", action="store_true", help="stop when the token files are written")
    add("--max-steps", type=int, help="stop after so many steps")
    add("--no-compile", action="store_true", help="run without torch.compile")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuses values that cannot run."""
    longest = options.seq * (2 if options.long > 0 else 1)
    if longest > ARCHITECTURE.max_position_embeddings:
        parser.error(f"--seq {options.seq} makes sequences of {longest} tokens; "
                     f"the model has {ARCHITECTURE.max_position_embeddings} positions")
    if options.minutes <= 0 or options.batch < 2 or options.seq < 1:
        parser.error("--minutes and --seq must be positive, --batch at least 2")
    if options.chat_share is not None and not 0 < options.chat_share < 1:
        parser.error(f"--chat-share {options.chat_share} is not between 0 and 1")


def main() -> None:
    """The command line."""
    parser = make_parser()
    options = parser.parse_args()
    check(options, parser)
    start = time.monotonic()
    chat = "chat_core" if options.core_chat else "chat"
    prepare(options.corpus, options.work, chat, options.domain_mb)
    print(f"prepared after {time.monotonic() - start:.0f} s", flush=True)
    if options.prepare_only:
        return
    settings = Settings(
        minutes=options.minutes, batch=options.batch, seq=options.seq, long=options.long,
        lr=options.lr, balance=options.balance, z=options.z, chat_share=options.chat_share,
        init=options.init, max_steps=options.max_steps, compiled=not options.no_compile,
        device=options.device)
    Trainer(settings, options.work).run()


if __name__ == "__main__":
    main()
