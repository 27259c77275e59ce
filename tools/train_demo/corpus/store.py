# SPDX-License-Identifier: Apache-2.0
"""Documents by domain: cleaned, and each text kept once in the whole corpus."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_MIN_CHARACTERS = 80


class Document(NamedTuple):
    """One text and the package that it comes from."""

    package: str
    text: str


def digest(text: str) -> bytes:
    """The hash that removes duplicates and decides the order of documents."""
    return hashlib.sha1(text.encode()).digest()


def clean(text: str) -> str:
    """Text without NUL bytes (our separator), chat markers, trailing blanks and tall gaps."""
    text = text.replace("\0", "").replace("<|", "< |").replace("\r", "").strip("\n")
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text)


class Corpus:
    """Grows domain by domain; `documents` keeps the order in which domains appeared."""

    def __init__(self) -> None:
        self.documents: dict[str, list[Document]] = {}
        self._seen: set[bytes] = set()

    def domain(self, name: str) -> list[Document]:
        """The documents of a domain so far; empty when it has none."""
        return self.documents.get(name, [])

    def add(self, domain: str, package: str, text: str) -> None:
        """Cleans and keeps a text, unless it is very short or known already."""
        text = clean(text)
        if len(text) >= _MIN_CHARACTERS and self._is_new(text):
            self.documents.setdefault(domain, []).append(Document(package, text + "\n"))

    def add_verbatim(self, domain: str, document: Document) -> None:
        """Keeps a document as it stands (chat texts carry markers), unless it is known already."""
        if self._is_new(document.text):
            self.documents.setdefault(domain, []).append(document)

    def _is_new(self, text: str) -> bool:
        key = digest(text)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True
