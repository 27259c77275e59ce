# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizers/: small tokenizer files and the ids that the references give.

cases.jsonl holds one line for each text of corpus.jsonl, and lines that only decode:
  {"text": index, "ids": [...], "plain_ids"?, "decoded"?, "decoded_skip"?}
  {"ids": [...], "decoded", "decoded_skip"}
plain_ids (without BOS and EOS) is left out where it equals ids; decoded (special tokens kept) and
decoded_skip (special tokens left out) are left out where they equal the text.
"""

import json
import os
import pathlib
import shutil

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer

from golden.common import GOLDEN, REPO, versions, write_json, write_lines
from golden.corpus import TEXTS
from golden.sentencepiece_golden import write_sentencepiece
from golden.tokenizer_table import TOKENIZERS, Entry

CUT_TEXTS = ("\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", "Hello\u4f60\u597dworld\u4e16\u754c123",
             "<s>text</s>", "a<|endoftext|>b", "nul\x00byte", "  leading")


def write_tokenizers() -> None:
    """Writes the corpus, every tokenizer with its cases, and index.json."""
    folder = GOLDEN / "tokenizers"
    shutil.rmtree(folder, ignore_errors=True)
    write_lines(folder / "corpus.jsonl", [{"index": i, "text": text} for i, text in enumerate(TEXTS)])
    entries = [{"name": "demo", "tokenizer": "../../../models/demo/tokenizer.json", "cases": "demo/cases.jsonl",
                "reference": "tokenizers", "what": "the tokenizer of the demo model"}]
    _write_cases(Tokenizer.from_file(str(REPO / "models/demo/tokenizer.json")), folder / "demo" / "cases.jsonl")
    for entry in TOKENIZERS:
        entries.append(_write_entry(entry, folder))
    entries += write_sentencepiece(folder)
    write_json(folder / "index.json", {"made_with": versions("tokenizers", "sentencepiece"),
                                       "corpus": "corpus.jsonl", "tokenizers": entries})


def _write_entry(entry: Entry, folder: pathlib.Path) -> dict:
    data = json.loads(entry.make().to_str())
    if entry.string_merges:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    path = folder / entry.name / "tokenizer.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    # The cases come from the file as written, not from the object that was trained.
    _write_cases(Tokenizer.from_file(str(path)), path.with_name("cases.jsonl"))
    return {"name": entry.name, "tokenizer": f"{entry.name}/tokenizer.json", "cases": f"{entry.name}/cases.jsonl",
            "reference": "tokenizers", "what": entry.what}


def _write_cases(tokenizer: Tokenizer, path: pathlib.Path) -> None:
    rows = [_case(tokenizer, index, text) for index, text in enumerate(TEXTS)]
    for text in CUT_TEXTS:
        ids = tokenizer.encode(text).ids
        rows += [_decode_case(tokenizer, ids[:count]) for count in range(1, len(ids))]
    rows.append(_decode_case(tokenizer, []))
    write_lines(path, rows)


def _case(tokenizer: Tokenizer, index: int, text: str) -> dict:
    ids, plain = tokenizer.encode(text).ids, tokenizer.encode(text, add_special_tokens=False).ids
    case = {"text": index, "ids": ids}
    if plain != ids:
        case["plain_ids"] = plain
    decoded = _decode_case(tokenizer, ids)
    return case | {key: decoded[key] for key in ("decoded", "decoded_skip") if decoded[key] != text}


def _decode_case(tokenizer: Tokenizer, ids: list) -> dict:
    return {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip": tokenizer.decode(ids, skip_special_tokens=True)}
