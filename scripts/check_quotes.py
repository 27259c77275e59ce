#!/usr/bin/env python3
"""C++ examples in docs/ are quotes of the tree, so that the compiler and the tests prove them.

A ```cpp block must stand, line by line and apart from indentation, in the file whose path was last named in backticks
before it. Prints what it compared; exits 1 on a quote that the file does not hold.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = re.compile(r"`((?:src|include|tests|bench|fuzz)/[\w/.-]+\.(?:cpp|h|cu|cuh))`")
BLOCK = re.compile(r"^[ \t]*```cpp\n(.*?)^[ \t]*```$", re.M | re.S)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def holds(source: list[str], quote: list[str]) -> bool:
    return any(source[i:i + len(quote)] == quote for i in range(len(source) - len(quote) + 1))


def main() -> int:
    quotes, faults = 0, []
    for document in sorted((ROOT / "docs").rglob("*.md")):
        text = document.read_text()
        for block in BLOCK.finditer(text):
            quotes += 1
            line = text.count("\n", 0, block.start()) + 1
            where = f"{document.relative_to(ROOT)}:{line}"
            named = SOURCE.findall(text[:block.start()])
            if not named:
                faults.append(f"{where}: an example without the file that it quotes")
            elif not (ROOT / named[-1]).exists():
                faults.append(f"{where}: {named[-1]} does not exist")
            elif not holds(lines((ROOT / named[-1]).read_text()), lines(block.group(1))):
                faults.append(f"{where}: {named[-1]} no longer holds these lines; quote it anew")
    print("\n".join(faults) if faults else f"quotes: {quotes} examples stand in the tree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
