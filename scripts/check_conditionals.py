#!/usr/bin/env python3
"""Preprocessor conditionals: none outside the listed files, and at most 1 in 1000 lines overall.

Absence is a file (x_absent.cpp), never an #if; instruction sets are regions, never an #if.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = {"src/base/check.h", "src/device/cpu_features.cpp", "src/kernels/cpu/isa_region.h"}
CONDITIONAL = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*$", re.M)


def main() -> int:
    errors, lines, found = [], 0, 0
    for root in ("src", "include"):
        for path in sorted((ROOT / root).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            text, name = path.read_text(), str(path.relative_to(ROOT))
            lines += text.count("\n")
            matches = CONDITIONAL.findall(text)
            found += len(matches)
            if name not in ALLOWED:
                errors += [f"{name}: {match.strip()}" for match in matches]
    if found * 1000 > max(lines, 1000):
        errors.append(f"{found} conditionals in {lines} lines, at most 1 per 1000")
    print("\n".join(errors) if errors else f"conditionals: {found} in {lines} lines, all where allowed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
