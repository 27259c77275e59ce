#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns unpacked Debian packages into a text corpus of eleven domains.

usage: build_corpus.py UNPACKED OUT

UNPACKED holds one folder per package (prepare_corpus.sh makes it); packages that are missing are
named and left out. OUT gets train.DOMAIN.txt and valid.DOMAIN.txt (documents separated by NUL
bytes), train.chat_core.txt for the second training phase, and sources.json: documents and bytes
by domain and package.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
from pathlib import Path

from corpus import chat_commands, chat_words
from corpus.chat import ChatBook, Vocabulary
from corpus.dictionaries import add_dictionaries
from corpus.man_pages import add_man_pages
from corpus.manuals import add_debian_reference, add_kernel_documents, add_manuals
from corpus.packages import PackageTree
from corpus.scripture import add_scripture
from corpus.source_code import add_source_code
from corpus.split import add_chat, write_corpus
from corpus.store import Corpus

_PACKAGE_LIST = Path(__file__).with_name("packages.txt")
_ENGLISH_PROSE = ("english_man", "manuals", "kernel_doc", "scripture", "dictionary")


def warn_of_missing(tree: PackageTree) -> None:
    """Names, on the error stream, the packages that this corpus will lack."""
    lines = _PACKAGE_LIST.read_text(encoding="utf-8").splitlines()
    wanted = [package for line in lines for package in line.partition("#")[0].split()]
    missing = [package for package in wanted if not tree.path(package, "").is_dir()]
    if missing:
        print(f"left out, not below {tree.root}: {' '.join(missing)}", file=sys.stderr)


def count_words(corpus: Corpus) -> Vocabulary:
    """Counts the words of every second English document."""
    counts: collections.Counter[str] = collections.Counter()
    for domain in _ENGLISH_PROSE:
        for document in corpus.domain(domain)[::2]:
            counts.update(re.findall(r"[a-z]{3,}", document.text.lower()))
    return Vocabulary(counts)


def build(tree: PackageTree) -> tuple[Corpus, ChatBook]:
    """Reads all domains. The order decides which of two equal documents is kept."""
    corpus = Corpus()
    pages = add_man_pages(tree, corpus)
    add_debian_reference(tree, corpus)
    add_manuals(tree, corpus)
    add_kernel_documents(tree, corpus)
    add_source_code(tree, corpus)
    entries = add_dictionaries(tree, corpus)
    add_scripture(tree, corpus)
    book = ChatBook(count_words(corpus))
    chat_words.ask_wordnet(entries["dict-wn"], book)
    chat_words.ask_foldoc(entries["dict-foldoc"], book)
    chat_words.ask_jargon(entries["dict-jargon"], book)
    chat_commands.ask_man_pages(pages, book)
    add_chat(corpus, book)
    return corpus, book


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("unpacked", type=Path, help="folder with one sub-folder per package")
    parser.add_argument("out", type=Path, help="folder for the corpus; made when missing")
    options = parser.parse_args()
    if not options.unpacked.is_dir():
        parser.error(f"{options.unpacked} is not a folder; run prepare_corpus.sh first")
    options.out.mkdir(parents=True, exist_ok=True)
    tree = PackageTree(options.unpacked)
    warn_of_missing(tree)
    report = write_corpus(*build(tree), options.out)
    (options.out / "sources.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
