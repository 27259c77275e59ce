# SPDX-License-Identifier: Apache-2.0
"""Fills bench/exercises.md.in with the numbers of a record: {{name}} is a function of exercise_tables.PLACEHOLDERS."""

import json
import pathlib
import re

import exercise_tables

TEMPLATE = pathlib.Path(__file__).resolve().parent / "exercises.md.in"
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def check_placeholders(text: str, functions: dict) -> None:
    """Every placeholder is known, and every function is used."""
    used = set(PLACEHOLDER.findall(text))
    if used != set(functions):
        raise SystemExit(f"{TEMPLATE.name}: unknown or unused placeholders: {', '.join(sorted(used ^ set(functions)))}")


def section_of(text: str, exercise: str) -> str:
    """From "## A. ..." to the next heading of that rank."""
    return next(part for part in re.split(r"(?m)^(?=## )", text) if part.startswith(f"## {exercise}. "))


def render(record_file: pathlib.Path, record_name: str, section: str | None = None) -> str:
    record = exercise_tables.Record([json.loads(line) for line in record_file.read_text().splitlines()])
    functions = {**exercise_tables.PLACEHOLDERS, "record": lambda _: record_name}
    text = TEMPLATE.read_text()
    check_placeholders(text, functions)
    if section:
        text = f"{{{{machine}}}}\n\n{section_of(text, section)}"
    return PLACEHOLDER.sub(lambda match: functions[match[1]](record), text)
