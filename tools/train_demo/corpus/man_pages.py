# SPDX-License-Identifier: Apache-2.0
"""Manual pages, rendered to plain text by mandoc."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from corpus.packages import PackageTree, read_bytes
from corpus.store import Corpus

# Packages by domain. The order matters: of two equal pages the first one is kept.
PACKAGES: dict[str, list[str]] = {
    "german": ["manpages-de", "manpages-de-dev"],
    "french": ["manpages-fr", "manpages-fr-dev"],
    "spanish": ["manpages-es", "manpages-es-dev"],
    "english_man": """manpages manpages-dev coreutils util-linux systemd openssl bash e2fsprogs
        iproute2 procps findutils grep sed tar xz-utils curl rsync openssh-client openssh-server
        ncurses-doc zsh-common debhelper dpkg-dev apt gzip gawk make diffutils git-man
        mandoc""".split(),
    "manuals": ["perl", "perl-doc", "tcl8.6-doc", "libssl-doc", "libcurl4-doc"],
}
_ENGLISH = ("english_man", "manuals")
_MIN_SOURCE_BYTES = 200  # shorter sources are links to other pages
_MIN_CHARACTERS = 300
_WORKERS = 3


class ManPage(NamedTuple):
    """A rendered page, for example name "ls", section "1"."""

    domain: str
    name: str
    section: str
    text: str


class _Source(NamedTuple):
    domain: str
    package: str
    path: Path


def find_mandoc(tree: PackageTree) -> str:
    """The mandoc program: that of the unpacked package, else the installed one."""
    unpacked = tree.path("mandoc", "usr/bin/mandoc")
    found = str(unpacked) if unpacked.is_file() else shutil.which("mandoc")
    if found is None:
        raise SystemExit(f"no mandoc at {unpacked} and none installed: unpack or install it")
    return found


def _sources(tree: PackageTree) -> list[_Source]:
    """The pages in the language of their domain (apt and others ship translations as well)."""
    found = []
    for domain, packages in PACKAGES.items():
        for package in packages:
            for path in tree.files(package, "man/**/*.gz"):
                below_man = tree.inside(package, path).split("/man/", 1)[1]
                if domain not in _ENGLISH or below_man.startswith("man"):
                    found.append(_Source(domain, package, path))
    return found


def render(mandoc: str, path: Path) -> str:
    """One page as plain text, 92 columns wide; empty for a link to another page."""
    source = read_bytes(path)
    if len(source) < _MIN_SOURCE_BYTES or source.startswith(b".so "):
        return ""
    page = _filter([mandoc, "-T", "utf8", "-O", "width=92,indent=4"], source)
    return _filter(["col", "-b", "-x"], page).decode("utf-8", "replace")


def _filter(command: list[str], data: bytes) -> bytes:
    # mandoc reports mere style warnings by its exit status, so the status says nothing here.
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    return done.stdout


def add_man_pages(tree: PackageTree, corpus: Corpus) -> list[ManPage]:
    """Adds every page to its domain; returns the pages, from which chat questions are made."""
    sources = _sources(tree)
    pages: list[ManPage] = []
    if not sources:
        return pages
    mandoc = find_mandoc(tree)
    with ThreadPoolExecutor(_WORKERS) as pool:
        texts = pool.map(lambda source: render(mandoc, source.path), sources)
        for source, text in zip(sources, texts):
            named = re.fullmatch(r"(.+)\.([0-9][a-z0-9]*)\.gz", source.path.name)
            if len(text) < _MIN_CHARACTERS or named is None:
                continue
            corpus.add(source.domain, source.package, text)
            pages.append(ManPage(source.domain, named[1], named[2], text))
    return pages
