# SPDX-License-Identifier: Apache-2.0
"""Small helpers that all golden writers share: paths, versions, JSON and JSON-lines output."""

import importlib.metadata
import json
import pathlib
import platform

REPO = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = REPO / "tests" / "golden"


def versions(*packages: str) -> dict:
    """Names the exact versions of the reference packages, for the "made_with" field of a golden."""
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"script": "scripts/make_golden.py", "python": platform.python_version(), **found}


def write_json(path: pathlib.Path, value) -> None:
    """Writes indented JSON; lists of plain numbers stay on one line so that files are readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_dump(value, 0) + "\n", encoding="utf-8")


def write_lines(path: pathlib.Path, rows: list) -> None:
    """Writes JSON lines: one compact object a line, pure ASCII so that no editor can alter the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=True, separators=(", ", ": ")) + "\n" for row in rows)
    path.write_text(text, encoding="ascii")


def _dump(value, depth: int) -> str:
    pad, inner = "  " * depth, "  " * (depth + 1)
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(k)}: {_dump(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + pad + "}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join(inner + _dump(item, depth + 1) for item in value) + "\n" + pad + "]"
    return json.dumps(value, ensure_ascii=False)
