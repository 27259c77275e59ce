#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds instructions beyond baseline x86-64 outside the code regions that may use them.

    scripts/check_isa_leak.py ARCHIVE_OR_OBJECT...

A function may hold VEX, EVEX or tile instructions only when it lives in a namespace named after an instruction set
(avx2, avx512, amx), and its symbol must not be weak: the linker keeps one copy of a weak symbol for the whole program,
and a copy with AVX-512 in it crashes on an older CPU. Exit status 1 lists the offenders; 2 means that nothing could
be checked.
"""
import re
import subprocess
import sys

REGIONS = re.compile(r"::(avx2|avx512|amx)::")
# Every VEX or EVEX mnemonic begins with v, but a few old instructions do as well; masks and tiles have their own.
EXTENDED = re.compile(r"^(v(?!err$|erw$|mcall|mlaunch|mresume|mxo|mptr|mread|mwrite|mclear|mfunc)"
                      r"|k(mov|and|or|xor|xnor|not|test|ortest|shift|add|unpck)"
                      r"|tile|tdp|ldtilecfg|sttilecfg)")
HEADER = re.compile(r"^[0-9a-f]+ <(.+)>:$")
MEMBER = re.compile(r"^(\S+):\s+file format ")
INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\s+(\S+)")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def weak_symbols(path):
    """Names of weak functions, as (member, symbol)."""
    member, found = "", set()
    for line in output_of("objdump", "-t", "-w", path).splitlines():
        if match := MEMBER.match(line):
            member = match[1]
        # address, flags (u for unique in the first column, w for weak in the second), section, size, name
        elif re.match(r"^[0-9a-f]{16} (u|.w)", line):
            found.add((member, line.split()[-1]))
    return found


def extended_functions(path):
    """The first extended instruction of every function that has one, by (member, symbol)."""
    member = symbol = ""
    functions, found = 0, {}
    for line in output_of("objdump", "-d", "-w", "--no-show-raw-insn", path).splitlines():
        if match := HEADER.match(line):
            symbol, functions = match[1], functions + 1
        elif match := MEMBER.match(line):
            member = match[1]
        elif (match := INSTRUCTION.match(line)) and EXTENDED.match(match[1]):
            found.setdefault((member, symbol), match[1])
    return functions, found


def demangle(names):
    plain = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout
    return dict(zip(names, plain.splitlines()))


def check(path):
    weak = weak_symbols(path)
    functions, found = extended_functions(path)
    plain = demangle([symbol for _, symbol in found])
    leaks = []
    for (member, symbol), instruction in found.items():
        if (member, symbol) in weak:
            leaks.append(f"{member}: weak {plain[symbol]} holds {instruction}")
        elif not REGIONS.search(plain[symbol]):
            leaks.append(f"{member}: {plain[symbol]} holds {instruction} outside a region")
    return functions, len(found), leaks


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    functions = extended = 0
    leaks = []
    for path in paths:
        counts = check(path)
        functions, extended, leaks = functions + counts[0], extended + counts[1], leaks + counts[2]
    print(f"{functions} functions, {extended} with instructions beyond the baseline, {len(leaks)} leaks")
    print("\n".join(leaks))
    if extended == 0:
        print("nothing beyond the baseline was found: is this the right file?")
        return 2
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
