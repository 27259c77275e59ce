# SPDX-License-Identifier: Apache-2.0
"""Source code in C, C++ and Python, without generated files and very long tables."""

from __future__ import annotations

from typing import NamedTuple

from corpus.packages import PackageTree, read_text
from corpus.store import Corpus


class CodeSource(NamedTuple):
    """Files of a package that match `pattern`, up to `max_bytes`, without `skipped` paths."""

    domain: str
    package: str
    pattern: str
    max_bytes: int
    skipped: tuple[str, ...] = ()


_CPP_BYTES, _PYTHON_BYTES = 60_000, 90_000
_GENERATED_PYTHON = ("/tests/rubi", "/locale/", "/rubi/", "pydoc_data")
_PYTHON_PACKAGES = """libpython3.11-stdlib python3-scipy python3-numpy python3-sympy
    python3-django python3-networkx""".split()

SOURCES: list[CodeSource] = [
    CodeSource("cpp", "libboost1.74-dev", "*.hpp", _CPP_BYTES,
               ("preprocessed", "/mpl/aux_", "/vmd/detail", "preprocessor/", "/typeof/")),
    CodeSource("cpp", "libeigen3-dev", "*.h", _CPP_BYTES),
    CodeSource("cpp", "libeigen3-dev", "src/**/*", _CPP_BYTES),
    CodeSource("cpp", "linux-headers-6.1.0-57-common", "*.h", _CPP_BYTES,
               ("dt-bindings", "/asm-offsets", "/mach-", "_regs", "/arch/ia64", "/arch/alpha")),
    *(CodeSource("python", package, "*.py", _PYTHON_BYTES, _GENERATED_PYTHON)
      for package in _PYTHON_PACKAGES),
]


def add_source_code(tree: PackageTree, corpus: Corpus) -> None:
    """Adds every file that SOURCES admits; each file is one document."""
    for source in SOURCES:
        for path in tree.files(source.package, source.pattern):
            inside = tree.inside(source.package, path)
            skipped = any(part in inside for part in source.skipped)
            if not skipped and path.stat().st_size <= source.max_bytes:
                corpus.add(source.domain, source.package, read_text(path))
