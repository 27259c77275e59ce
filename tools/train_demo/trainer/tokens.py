# SPDX-License-Identifier: Apache-2.0
"""From corpus files to a tokenizer and token files.

A work folder gets tokenizer.json, tokens-SPLIT-DOMAIN.npy (u16, every document closed by
<|endoftext|>) and sizes.json (bytes, tokens and documents by domain and split).
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from trainer.config import ARCHITECTURE, DOMAINS, END_OF_TEXT, SPECIAL_TOKENS

# How Qwen2 cuts text before BPE: contractions, words, single digits, punctuation, blanks.
_QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SAMPLE_CHARACTERS = 6_000_000  # of each domain, for learning the merges
_DOCUMENTS_AT_ONCE = 2000
_READERS = 8


def read_documents(corpus: Path, name: str) -> list[str]:
    """The documents of NAME.txt.xz or NAME.txt."""
    packed, plain = corpus / f"{name}.txt.xz", corpus / f"{name}.txt"
    if packed.is_file():
        data = lzma.decompress(packed.read_bytes())
    elif plain.is_file():
        data = plain.read_bytes()
    else:
        raise SystemExit(f"neither {packed} nor {plain} exists: run prepare_corpus.sh first")
    return data.decode().split("\0")


def first_megabytes(documents: list[str], megabytes: float) -> list[str]:
    """Whole documents from the start of a list, up to a size; at least one."""
    kept: list[str] = []
    total = 0
    for document in documents:
        total += len(document.encode())
        if kept and total > megabytes * 1e6:
            break
        kept.append(document)
    return kept


def _sample(train: dict[str, list[str]]) -> Iterator[str]:
    """Text for learning merges, without the chat markers, which are tokens of their own."""
    for domain in DOMAINS:
        characters = 0
        for document in train[domain]:
            yield document.replace("<|im_start|>", "").replace("<|im_end|>", "")
            characters += len(document)
            if characters > _SAMPLE_CHARACTERS:
                break


def learn_tokenizer(train: dict[str, list[str]]) -> Tokenizer:
    """A byte-level BPE with NFC and the pieces of Qwen2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_QWEN2_PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ARCHITECTURE.vocab_size, special_tokens=SPECIAL_TOKENS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(list(_sample(train)), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[str]) -> np.ndarray:
    """All documents as one array [tokens] u16, each closed by <|endoftext|>."""
    pieces = []
    for first in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        for encoded in tokenizer.encode_batch_fast(documents[first:first + _DOCUMENTS_AT_ONCE]):
            pieces.append(np.array([*encoded.ids, END_OF_TEXT], np.uint16))
    return np.concatenate(pieces)


def _read_training_text(corpus: Path, chat: str, megabytes: float | None) -> dict[str, list[str]]:
    files = [f"train.{chat if domain == 'chat' else domain}" for domain in DOMAINS]
    with ThreadPoolExecutor(_READERS) as pool:
        texts = pool.map(lambda name: read_documents(corpus, name), files)
        train = dict(zip(DOMAINS, texts))
    if megabytes is not None:
        train = {domain: documents if domain == "chat" else first_megabytes(documents, megabytes)
                 for domain, documents in train.items()}
    return train


def _open_tokenizer(path: Path, train: dict[str, list[str]]) -> Tokenizer:
    """The tokenizer of the work folder, learnt first when there is none."""
    if path.is_file():
        return Tokenizer.from_file(str(path))
    start = time.monotonic()
    tokenizer = learn_tokenizer(train)
    tokenizer.save(str(path))
    print(f"tokenizer learnt in {time.monotonic() - start:.0f} s", flush=True)
    return tokenizer


def _save_split(tokenizer: Tokenizer, documents: list[str], path: Path) -> dict[str, int]:
    ids = encode(tokenizer, documents)
    np.save(path, ids)
    return {"bytes": sum(len(document.encode()) for document in documents),
            "tokens": len(ids), "documents": len(documents)}


def prepare(corpus: Path, work: Path, chat: str, megabytes: float | None) -> None:
    """Fills a work folder, unless that is done already.

    `chat` names the chat text ("chat" or "chat_core"); `megabytes` limits every other domain.
    """
    work.mkdir(parents=True, exist_ok=True)
    if (work / "sizes.json").is_file():
        return
    train = _read_training_text(corpus, chat, megabytes)
    tokenizer = _open_tokenizer(work / "tokenizer.json", train)
    sizes: dict[str, Any] = {}
    for domain in DOMAINS:
        texts = {"train": train[domain], "valid": read_documents(corpus, f"valid.{domain}")}
        sizes[domain] = {split: _save_split(tokenizer, documents, token_file(work, split, domain))
                         for split, documents in texts.items()}
        print(domain, sizes[domain], flush=True)
    (work / "sizes.json").write_text(json.dumps(sizes, indent=1), encoding="utf-8")


def token_file(work: Path, split: str, domain: str) -> Path:
    """Where the tokens of a split of a domain lie."""
    return work / f"tokens-{split}-{domain}.npy"
