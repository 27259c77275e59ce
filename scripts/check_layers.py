#!/usr/bin/env python3
"""Fails on an include that layers.txt does not allow, on a circle, and on a folder whose CMakeLists.txt links otherwise.

Rules beyond the floors (docs/architecture.md):
  kernels/{cpu,cuda,ref} never include each other; only select sees their tables
  moe/{route,residency,exchange} do not see each other
  only engine/, cli/ and serve/ include the public headers; base/result.h alone may re-export result.h
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.M)
PUBLIC_USERS = {"engine", "cli", "serve"}
APART = [("kernels", ("cpu", "cuda", "ref")), ("moe", ("route", "residency", "exchange"))]


def read_layers() -> dict[str, set[str]]:
    layers = {}
    for line in (ROOT / "layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, allowed = line.split(":")
            layers[folder.strip()] = set(allowed.split())
    return layers


def check_order(layers: dict[str, set[str]]) -> list[str]:
    """Each folder may only name folders above its own line: no arrow points up, so there is no circle."""
    errors, seen = [], set()
    for folder, allowed in layers.items():
        errors += [f"layers.txt: {folder} names {a}, which stands below it" for a in allowed - seen]
        seen.add(folder)
    return errors


def check_include(path: pathlib.Path, included: str, layers: dict[str, set[str]]) -> str | None:
    parts = path.relative_to(ROOT / "src").parts
    folder, target = parts[0], included.split("/")[0]
    where = path.relative_to(ROOT)
    if target == "switchyard":
        reexport = str(where) == "src/base/result.h" and included == "switchyard/result.h"
        if folder in PUBLIC_USERS or reexport:
            return None
        return f"{where}: includes the public header {included}"
    if target not in layers:
        return f"{where}: {included} is in no folder of layers.txt"
    if target != folder:
        return None if target in layers[folder] else f"{where}: {folder} may not include {included}"
    for parent, children in APART:
        if folder == parent and len(parts) > 2 and parts[1] in children:
            other = included.split("/")[1]
            if other in children and other != parts[1]:
                return f"{where}: {parent}/{parts[1]} may not include {included}"
    if folder == "kernels" and re.search(r"kernels/(cpu|cuda|ref)/table\.h", included):
        if path.stem not in ("select", "table"):
            return f"{where}: only select may include {included}"
    return None


def check_links(layers: dict[str, set[str]]) -> list[str]:
    errors = []
    for folder, allowed in layers.items():
        text = (ROOT / "src" / folder / "CMakeLists.txt").read_text()
        match = re.search(r"DEPENDS([^)]*?)(?:LINKS|\))", text)
        linked = set(match.group(1).split()) if match else set()
        if linked != allowed:
            errors.append(f"src/{folder}/CMakeLists.txt: DEPENDS {sorted(linked)}, "
                          f"layers.txt says {sorted(allowed)}")
    return errors


def main() -> int:
    layers = read_layers()
    errors = check_order(layers) + check_links(layers)
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        if path.relative_to(ROOT / "src").parts[0] not in layers:
            errors.append(f"{path.relative_to(ROOT)}: its folder is not in layers.txt")
            continue
        found = (check_include(path, i, layers) for i in INCLUDE.findall(path.read_text()))
        errors += [error for error in found if error]
    for path in sorted((ROOT / "include").rglob("*.h")):
        errors += [f"{path.relative_to(ROOT)}: a public header includes {i}"
                   for i in INCLUDE.findall(path.read_text()) if not i.startswith("switchyard/")]
    print("\n".join(errors) if errors else f"layers: {len(layers)} folders, no include out of order")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
