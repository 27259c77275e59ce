# SPDX-License-Identifier: Apache-2.0
"""A folder of unpacked Debian packages, one sub-folder each, and how files in it are read."""

from __future__ import annotations

import glob
import gzip
from collections.abc import Iterator
from pathlib import Path

_COMPRESSED = (".gz", ".dz")  # dictzip files are gzip files with a seek table


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, decompressed where its name says that it is compressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix in _COMPRESSED else data


def read_text(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 become U+FFFD."""
    return read_bytes(path).decode("utf-8", "replace")


class PackageTree:
    """The unpacked packages below one root. A package that is absent has no files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, package: str, relative: str) -> Path:
        """Where a file of a package lies, whether or not it exists."""
        return self.root / package / relative

    def files(self, package: str, pattern: str) -> Iterator[Path]:
        """Regular files (no links, nothing hidden) of a package that match at any depth, sorted."""
        found = glob.glob(str(self.root / package / "**" / pattern), recursive=True)
        for path in map(Path, sorted(found)):
            if path.is_file() and not path.is_symlink():
                yield path

    def inside(self, package: str, path: Path) -> str:
        """A file's path as the installed system would show it, such as "/usr/share/man/..."."""
        return "/" + path.relative_to(self.root / package).as_posix()
