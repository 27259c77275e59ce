# SPDX-License-Identifier: Apache-2.0
"""Dictionaries in dictd form: an entry is a line that does not start with a blank, and its body."""

from __future__ import annotations

import re

from corpus.packages import PackageTree, read_text
from corpus.store import Corpus

# Package to the name of its dictionary file, in the order in which they join the corpus.
DICTIONARIES = {
    "dict-gcide": "gcide",
    "dict-wn": "wn",
    "dict-foldoc": "foldoc",
    "dict-jargon": "jargon",
    "dict-devil": "devil",
}
_SOURCE_MARK = re.compile(
    r" *\[(1913 Webster|PJC|Webster 1913 Suppl\.|WordNet [\d.]+)( \+PJC)?\]\n?"
)
_HEADERS = ("00-database", "00database")  # entries about the dictionary itself
_DOCUMENT_CHARACTERS = 6000


def read_entries(tree: PackageTree, package: str) -> list[str]:
    """The entries of one dictionary, headword first; empty when the package is absent."""
    path = tree.path(package, f"usr/share/dictd/{DICTIONARIES[package]}.dict.dz")
    if not path.is_file():
        return []
    entries = re.split(r"\n(?=\S)", read_text(path))
    return [entry for entry in entries if entry.strip() and not entry.startswith(_HEADERS)]


def _add_grouped(corpus: Corpus, package: str, entries: list[str]) -> None:
    """Joins neighbouring entries into documents of a few pages."""
    document = ""
    for entry in entries:
        document += entry.rstrip("\n") + "\n\n"
        if len(document) > _DOCUMENT_CHARACTERS:
            corpus.add("dictionary", package, document)
            document = ""
    corpus.add("dictionary", package, document)


def add_dictionaries(tree: PackageTree, corpus: Corpus) -> dict[str, list[str]]:
    """Adds all dictionaries; returns package to entries, from which chat questions are made."""
    entries = {package: read_entries(tree, package) for package in DICTIONARIES}
    entries["dict-gcide"] = [_SOURCE_MARK.sub("", entry) for entry in entries["dict-gcide"]]
    for package, found in entries.items():
        _add_grouped(corpus, package, found)
    return entries
