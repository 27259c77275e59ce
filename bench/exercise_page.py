# SPDX-License-Identifier: Apache-2.0
"""Fills bench/exercises.md.in with the numbers of a record: {{name}} is a function of exercise_tables.PLACEHOLDERS."""

import json
import pathlib
import re

import exercise_tables

TEMPLATE = pathlib.Path(__file__).resolve().parent / "exercises.md.in"


def render(record_file: pathlib.Path, record_name: str) -> str:
    record = exercise_tables.Record([json.loads(line) for line in record_file.read_text().splitlines()])
    functions = {**exercise_tables.PLACEHOLDERS, "record": lambda _: record_name}

    def fill(match: re.Match) -> str:
        if match[1] not in functions:
            raise SystemExit(f"{TEMPLATE.name}: unknown placeholder {match[0]}; known: {', '.join(sorted(functions))}")
        return functions[match[1]](record)

    text = TEMPLATE.read_text()
    unused = set(functions) - set(re.findall(r"\{\{(\w+)\}\}", text))
    if unused:
        raise SystemExit(f"{TEMPLATE.name}: does not use {', '.join(sorted(unused))}")
    return re.sub(r"\{\{(\w+)\}\}", fill, text)
