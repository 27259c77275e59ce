# SPDX-License-Identifier: Apache-2.0
"""Cuts each domain to its size, holds documents out, and writes the corpus files.

A file holds documents separated by NUL bytes. Order and split follow from hashes and fixed seeds
alone, so equal packages give equal files.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from corpus.chat import ChatBook, written_exchanges
from corpus.store import Corpus, Document, digest

# Bytes of text kept per domain, in units of a million.
_MAX_MEGABYTES = {
    "english_man": 24, "german": 24, "french": 24, "spanish": 24, "kernel_doc": 24, "manuals": 30,
    "cpp": 34, "python": 32, "dictionary": 34, "scripture": 8, "chat": 20,
}
_HELD_OUT_SHARE, _MIN_HELD_OUT_BYTES = 0.01, 60_000
_SEED_OF_CHAT, _SEED_OF_DOMAINS, _SEED_OF_CORE = 2, 3, 4


def size(documents: Iterable[Document]) -> int:
    """Bytes of all the texts."""
    return sum(len(document.text.encode()) for document in documents)


def add_chat(corpus: Corpus, book: ChatBook) -> None:
    """Moves the questions of the first phase into the corpus, without duplicates."""
    documents = list(book.all)
    random.Random(_SEED_OF_CHAT).shuffle(documents)
    for document in documents:
        corpus.add_verbatim("chat", document)


def _cut(documents: list[Document], max_bytes: float) -> list[Document]:
    """The documents in the order of their hashes, up to a size."""
    kept, total = [], 0
    for document in sorted(documents, key=lambda d: digest(d.text)):
        total += len(document.text.encode())
        if total > max_bytes:
            break
        kept.append(document)
    return kept


def _hold_out(kept: list[Document]) -> list[Document]:
    """Takes whole documents off the end of `kept`, about one percent of its bytes."""
    wanted = max(size(kept) * _HELD_OUT_SHARE, _MIN_HELD_OUT_BYTES)
    held, held_bytes = [], 0
    while kept and held_bytes < wanted:
        held.append(kept.pop())
        held_bytes += len(held[-1].text.encode())
    return held


def split(domain: str, documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """The documents of a domain for training and those held out, each text in one of them alone."""
    train = _cut(documents, _MAX_MEGABYTES[domain] * 1e6)
    held = _hold_out(train)
    return train, held


def _write(path: Path, documents: list[Document]) -> None:
    path.write_bytes(b"\0".join(document.text.encode() for document in documents))


def _by_package(documents: list[Document]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for document in documents:
        row = counts.setdefault(document.package, {"documents": 0, "bytes": 0})
        row["documents"] += 1
        row["bytes"] += len(document.text.encode())
    return dict(sorted(counts.items()))


def _write_domain(domain: str, documents: list[Document], out: Path) -> dict[str, Any]:
    """Writes both splits of a domain; returns its row of the report."""
    train, held = split(domain, documents)
    if domain == "chat":
        train += written_exchanges()
    random.Random(_SEED_OF_DOMAINS).shuffle(train)
    _write(out / f"train.{domain}.txt", train)
    _write(out / f"valid.{domain}.txt", held)
    print(f"{domain}: {len(train)} documents, {size(train) >> 10} KiB; {len(held)} held out",
          flush=True)
    return {"train_bytes": size(train), "valid_bytes": size(held),
            "packages": _by_package(train + held)}


def _write_core(book: ChatBook, out: Path) -> dict[str, Any]:
    """Writes the questions of the second phase, without those that are held out."""
    held = set((out / "valid.chat.txt").read_text(encoding="utf-8").split("\0"))
    unique = {document.text: document for document in book.core}
    core = [document for document in unique.values() if document.text not in held]
    core += written_exchanges()
    random.Random(_SEED_OF_CORE).shuffle(core)
    _write(out / "train.chat_core.txt", core)
    return {"train_bytes": size(core), "documents": len(core)}


def write_corpus(corpus: Corpus, book: ChatBook, out: Path) -> dict[str, Any]:
    """Writes all files of the corpus; returns bytes and documents by domain and package."""
    corpus.documents.setdefault("chat", [])
    report = {domain: _write_domain(domain, documents, out)
              for domain, documents in corpus.documents.items()}
    report["chat_core"] = _write_core(book, out)
    return report
