# SPDX-License-Identifier: Apache-2.0
"""The King James Bible, one document per chapter, printed by the `bible` program of its package."""

from __future__ import annotations

import re
import subprocess

from corpus.packages import PackageTree
from corpus.store import Corpus

_TEXT_PACKAGE = "bible-kjv-text"
_EVERYTHING = "gen1:1-rev22:21"


def _print_bible(tree: PackageTree) -> str:
    """All verses, one a line, as "Gen1:1 In the beginning ..."; empty when a package is absent."""
    program = tree.path("bible-kjv", "usr/bin/bible")
    text = tree.path(_TEXT_PACKAGE, "usr/lib")
    if not program.is_file() or not text.is_dir():
        return ""
    command = [str(program), "-p", str(text), "-f", _EVERYTHING]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return printed.stdout.decode("utf-8", "replace")


def add_scripture(tree: PackageTree, corpus: Corpus) -> None:
    """Adds each chapter under a title line, with its verses numbered."""
    chapters: dict[tuple[str, str], list[str]] = {}
    for line in _print_bible(tree).splitlines():
        verse = re.match(r"(\S+?)(\d+):(\d+) (.*)", line)
        if verse:
            book, chapter, number, text = verse.groups()
            chapters.setdefault((book, chapter), []).append(f"{number} {text}")
    for (book, chapter), verses in chapters.items():
        corpus.add("scripture", _TEXT_PACKAGE, f"{book} {chapter}\n\n" + "\n".join(verses))
