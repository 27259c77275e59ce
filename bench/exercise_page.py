# SPDX-License-Identifier: Apache-2.0
"""Fills bench/exercises.md.in with the numbers of a record: {{name}} is a function of exercise_tables.PLACEHOLDERS. {{gpu}}
is bench/exercises_gpu.md.in, filled from the latest record of a GPU."""

import json
import pathlib
import re

import exercise_gpu
import exercise_tables

TEMPLATE = pathlib.Path(__file__).resolve().parent / "exercises.md.in"
GPU_TEMPLATE = TEMPLATE.with_name("exercises_gpu.md.in")
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def check_placeholders(name: str, text: str, functions: dict) -> None:
    """Every placeholder is known, and every function is used."""
    used = set(PLACEHOLDER.findall(text))
    if used != set(functions):
        raise SystemExit(f"{name}: unknown or unused placeholders: {', '.join(sorted(used ^ set(functions)))}")


def section_of(text: str, exercise: str) -> str:
    """From "## A. ..." to the next heading of that rank."""
    return next(part for part in re.split(r"(?m)^(?=## )", text) if part.startswith(f"## {exercise}. "))


def read(record_file: pathlib.Path) -> exercise_tables.Record:
    return exercise_tables.Record([json.loads(line) for line in record_file.read_text().splitlines()])


def render_gpu(record_file: pathlib.Path) -> str:
    """The section of a GPU."""
    record, text = read(record_file), GPU_TEMPLATE.read_text()
    functions = {**exercise_gpu.PLACEHOLDERS, "record": lambda _: record_file.name}
    check_placeholders(GPU_TEMPLATE.name, text, functions)
    return PLACEHOLDER.sub(lambda match: functions[match[1]](record), text)


def render(record_file: pathlib.Path, record_name: str, section: str | None = None,
           gpu_record: pathlib.Path | None = None) -> str:
    record = read(record_file)
    gpu = render_gpu(gpu_record) if gpu_record else "(no record of a GPU is kept)"
    functions = {**exercise_tables.PLACEHOLDERS, "record": lambda _: record_name, "gpu": lambda _: gpu}
    text = TEMPLATE.read_text()
    check_placeholders(TEMPLATE.name, text, functions)
    if section:
        text = f"{{{{machine}}}}\n\n{section_of(text, section)}"
    return PLACEHOLDER.sub(lambda match: functions[match[1]](record), text)
