#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes a small sample of the held-out text of each domain, for tests and measurements.

usage: sample_held_out.py UNPACKED OUT [--kilobytes 17]

UNPACKED is what prepare_corpus.sh makes (WORK/unpacked). The corpus is built once more in memory,
so the split is that of training: a held-out document is never a training document. OUT gets
DOMAIN.txt, whole documents with <|endoftext|> after each, and sources.json: for each document its
package, bytes and SHA-1, and for each domain the share of bytes that stand word for word, line
by line, in training text as well.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from build_corpus import build
from corpus.packages import PackageTree
from corpus.split import split
from corpus.store import Document, digest

_END = "<|endoftext|>"
_LEAST_LINE = 30  # characters; shorter lines ("}", "NAME") are in every document

# Packages whose licences are short and ask for little, where a domain has them. The translated
# pages are GPL-3+, the kernel's documents GPL-2.
_PACKAGES: dict[str, set[str]] = {
    "english_man": {"openssl", "ncurses-doc", "iproute2"},
    "german": {"manpages-de"},
    "french": {"manpages-fr", "manpages-fr-dev"},
    "spanish": {"manpages-es", "manpages-es-dev"},
    "kernel_doc": {"linux-doc-6.1"},
    "manuals": {"libssl-doc", "postgresql-doc-15"},
    "cpp": {"libboost1.74-dev"},
    "python": {"python3-sympy"},
    "dictionary": {"dict-wn"},
    "scripture": {"bible-kjv-text"},
    "chat": {"dict-wn"},
}
# Another licence than the package's, and words that do not belong in a demonstration.
_UNFIT = re.compile(r"GFDL|obscene|vulgar|offensive|disparaging|sexual|ethnic slur")


def choose(domain: str, held: list[Document], max_bytes: int) -> list[Document]:
    """Documents in the order of the split until the size is reached. A document longer than what is
    left is passed over."""
    chosen, total = [], 0
    for document in held:
        if document.package not in _PACKAGES[domain] or _UNFIT.search(document.text):
            continue
        size = len(document.text.encode())
        if total + size <= max_bytes:
            chosen.append(document)
            total += size
    return chosen


def lines(text: str) -> list[str]:
    """The lines that are long enough to tell documents apart."""
    return [line.strip() for line in text.split("\n") if len(line.strip()) >= _LEAST_LINE]


def share_in_training(chosen: list[Document], training: set[str]) -> float:
    """The share of the bytes of the longer lines that are lines of training text as well."""
    found = everything = 0
    for document in chosen:
        for line in lines(document.text):
            everything += len(line.encode())
            found += len(line.encode()) if line in training else 0
    return found / everything if everything else 0.0


def sample(domain: str, documents: list[Document], out: Path, max_bytes: int) -> dict[str, Any]:
    """Writes the sample of a domain; returns its row of the report."""
    train, held = split(domain, documents)
    chosen = choose(domain, held, max_bytes)
    train_digests = {digest(document.text) for document in train}
    assert not any(digest(document.text) in train_digests for document in chosen)
    wanted = {line for document in chosen for line in lines(document.text)}
    training = {line for document in train for line in lines(document.text) if line in wanted}
    text = "".join(document.text + _END for document in chosen)
    (out / f"{domain}.txt").write_text(text, encoding="utf-8")
    print(f"{domain}: {len(chosen)} documents, {len(text.encode())} bytes", flush=True)
    return {"lines_also_in_training": round(share_in_training(chosen, training), 4),
            "documents": [{"package": document.package, "bytes": len(document.text.encode()),
                           "sha1": digest(document.text).hex()} for document in chosen]}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("unpacked", type=Path, help="folder with one sub-folder per package")
    parser.add_argument("out", type=Path, help="folder for the samples; made when missing")
    parser.add_argument("--kilobytes", type=float, default=17, help="most of each domain")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    corpus, _ = build(PackageTree(options.unpacked))
    report = {domain: sample(domain, documents, options.out, int(options.kilobytes * 1000))
              for domain, documents in corpus.documents.items()}
    (options.out / "sources.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
