#!/usr/bin/env python3
"""Files aim at 200 lines and stop at 800; functions aim at 20 and stop at 120 (kernels 250). Prints who is large.

Functions are found by their braces, after comments and strings are blanked: good enough to keep a promise.
"""
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_ASK, FILE_STOP = 500, 800
FUNCTION_ASK, FUNCTION_STOP, KERNEL_STOP = 60, 120, 250
HEAD = re.compile(r"[\w>&*\]]\s*\([^;{}]*\)\s*(?:const|noexcept|override|final|->\s*[\w:<>&*\s]+|\s)*$", re.S)
NOT_A_FUNCTION = re.compile(r"^\s*(?:if|for|while|switch|catch|do|else|return|namespace|class|struct|enum|union)\b")


def blank(text: str) -> str:
    """Comments and literals become spaces; line breaks stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def functions(text: str):
    """Yields (first line, number of lines) of each outermost function body."""
    text = blank(text)
    start, depth_in, open_at = 0, None, []
    for match in re.finditer(r"[{};]", text):
        at, brace = match.start(), match.group()
        if brace == "{":
            head = text[start:at]
            if depth_in is None and HEAD.search(head) and not NOT_A_FUNCTION.match(head.strip() or " "):
                depth_in = len(open_at)
                first = text.count("\n", 0, at - len(head.lstrip())) + 1
            open_at.append(at)
        elif brace == "}" and open_at:
            open_at.pop()
            if depth_in == len(open_at):
                yield first, text.count("\n", 0, at) + 1 - first + 1
                depth_in = None
        start = match.end()


def main() -> int:
    errors, asks, lengths, sizes = [], [], [], []
    roots = [ROOT / name for name in ("src", "include", "tests", "bench", "fuzz")]
    for path in sorted(p for root in roots for p in root.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        text, name = path.read_text(), path.relative_to(ROOT)
        count = text.count("\n")
        sizes.append(count)
        if count > FILE_STOP:
            errors.append(f"{name}: {count} lines, stop at {FILE_STOP}")
        elif count > FILE_ASK:
            asks.append(f"{name}: {count} lines, ask at {FILE_ASK}")
        stop = KERNEL_STOP if "kernels" in name.parts else FUNCTION_STOP
        for line, length in functions(text):
            lengths.append(length)
            if length > stop:
                errors.append(f"{name}:{line}: function of {length} lines, stop at {stop}")
            elif length > FUNCTION_ASK:
                asks.append(f"{name}:{line}: function of {length} lines, ask at {FUNCTION_ASK}")
    print("\n".join(asks + errors))
    print(f"sizes: {len(sizes)} files, median {statistics.median(sizes):.0f} lines; "
          f"{len(lengths)} functions, median {statistics.median(lengths):.0f} lines, longest {max(lengths)}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
