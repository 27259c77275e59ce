#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens under tests/golden/ from the reference implementations.

    python3.11 -m venv VENV && VENV/bin/pip install -r scripts/requirements-oracle.txt
    VENV/bin/python scripts/make_golden.py families [NAME ...]
    VENV/bin/python scripts/make_golden.py tokenizers
    VENV/bin/python scripts/make_golden.py templates
    VENV/bin/python scripts/make_golden.py capacity

Tests read the committed files and never run this.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    families = kinds.add_parser("families", help="tiny models of each family and their logits")
    families.add_argument("name", nargs="*", help="only these families")
    kinds.add_parser("tokenizers", help="small tokenizers and the ids of a multilingual corpus")
    kinds.add_parser("templates", help="chat templates and their texts")
    kinds.add_parser("capacity", help="losses of the demonstration model when experts turn picks away")
    arguments = parser.parse_args()
    if arguments.kind == "families":
        from golden.families import write_families
        write_families(arguments.name)
    elif arguments.kind == "tokenizers":
        from golden.tokenizers_golden import write_tokenizers
        write_tokenizers()
    elif arguments.kind == "capacity":
        from golden.capacity import write_capacity
        write_capacity()
    else:
        from golden.templates import write_templates
        write_templates()


if __name__ == "__main__":
    main()
