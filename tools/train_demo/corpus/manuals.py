# SPDX-License-Identifier: Apache-2.0
"""Longer documentation: handbooks, HTML and reStructuredText manuals, kernel documents."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from corpus.packages import PackageTree, read_text
from corpus.store import Corpus

_REFERENCE = {"en": "english_man", "de": "german", "fr": "french", "es": "spanish"}
_MAX_UNDECODABLE = 5  # characters of a kernel document that are not UTF-8


class _PlainText(HTMLParser):
    """Renders DocBook HTML as plain text: blank lines around blocks, dashes before items."""

    _SKIPPED = frozenset({"script", "style", "head"})
    _BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "table", "ul", "dl", "div", "pre"})
    _LINES = frozenset({"li", "tr", "dt", "dd", "br"})
    _CELLS = frozenset({"td", "th"})

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._skipping = 0
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipping += tag in self._SKIPPED
        self._preformatted += tag == "pre"
        if tag in self._BLOCKS:
            self.pieces.append("\n\n")
        elif tag in self._LINES:
            self.pieces.append("\n- " if tag == "li" else "\n")
        elif tag in self._CELLS:
            self.pieces.append("  ")

    def handle_endtag(self, tag: str) -> None:
        self._skipping -= tag in self._SKIPPED
        self._preformatted -= tag == "pre"
        if tag == "pre":
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.pieces.append(data if self._preformatted else re.sub(r"\s+", " ", data))


def html_to_text(html: str) -> str:
    """A page without its navigation bars, as plain text."""
    page = re.sub(r'(?s)<div[^>]*class="nav(header|footer)".*?</table>', "", html)
    parser = _PlainText()
    parser.feed(page)
    return re.sub(r" *\n *(\n *)+", "\n\n", "".join(parser.pieces))


def add_debian_reference(tree: PackageTree, corpus: Corpus) -> None:
    """The Debian reference in four languages, split at its numbered sections."""
    for language, domain in _REFERENCE.items():
        package = f"debian-reference-{language}"
        for path in tree.files(package, f"debian-reference.{language}.txt*"):
            for section in re.split(r"\n(?=\d+\.\d+\. )", read_text(path)):
                corpus.add(domain, package, section)


def add_manuals(tree: PackageTree, corpus: Corpus) -> None:
    """The manuals of PostgreSQL, Python and git."""
    for path in tree.files("postgresql-doc-15", "*.html"):
        corpus.add("manuals", "postgresql-doc-15", html_to_text(read_text(path)))
    for path in tree.files("python3.11-doc", "_sources/**/*.rst.txt"):
        corpus.add("manuals", "python3.11-doc", read_text(path))
    for path in tree.files("git-doc", "*.txt"):
        corpus.add("manuals", "git-doc", read_text(path))


def add_kernel_documents(tree: PackageTree, corpus: Corpus) -> None:
    """The documentation of Linux, without translations and the device list."""
    package = "linux-doc-6.1"
    for ending in ("rst.gz", "txt.gz"):
        for path in tree.files(package, f"Documentation/**/*.{ending}"):
            inside = tree.inside(package, path)
            if "/translations/" in inside or "/devices.txt" in inside:
                continue
            text = read_text(path)
            if text.count("\ufffd") < _MAX_UNDECODABLE:
                corpus.add("kernel_doc", package, text)
