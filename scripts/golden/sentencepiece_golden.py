# SPDX-License-Identifier: Apache-2.0
"""Small tokenizer.model files and the ids that sentencepiece itself gives.

The text goes to the model as it is: control tokens such as <s> are not looked for in it, and no BOS or
EOS is added. Texts that a Unigram model segments in two ways with one score are left out: which of
them wins is not specified and differs between versions of the library.
"""

import pathlib

import sentencepiece

from golden.common import write_lines
from golden.corpus import TEXTS, TRAINING


def write_sentencepiece(folder: pathlib.Path) -> list:
    """Trains both models; returns their rows for index.json."""
    return [
        _write(folder, "sentencepiece_bpe", "BPE with byte fallback, identity normalisation, digits split, as "
               "Mixtral's tokenizer.model", model_type="bpe", byte_fallback=True, split_digits=True,
               vocab_size=620, normalization_rule_name="identity", remove_extra_whitespaces=False,
               allow_whitespace_only_pieces=True),
        _write(folder, "sentencepiece_unigram", "Unigram with nmt_nfkc normalisation, as T5's spiece.model",
               model_type="unigram", vocab_size=380, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    ]


def _write(folder: pathlib.Path, name: str, what: str, **options) -> dict:
    path = folder / name / "tokenizer.model"
    path.parent.mkdir(parents=True)
    with path.open("wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TRAINING), model_writer=out, character_coverage=0.98, num_threads=1,
            hard_vocab_limit=False, minloglevel=2, **options)
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    rows = []
    for index, text in enumerate(TEXTS):
        if options["model_type"] == "unigram" and _is_tied(model, text):
            continue
        ids = model.encode(text)
        decoded = model.decode(ids)
        rows.append({"text": index, "ids": ids} | ({"decoded": decoded} if decoded != text else {}))
    write_lines(path.with_name("cases.jsonl"), rows)
    return {"name": name, "tokenizer": f"{name}/tokenizer.model", "cases": f"{name}/cases.jsonl",
            "reference": "sentencepiece", "what": what, "bos_id": model.bos_id(), "eos_id": model.eos_id(),
            "unk_id": model.unk_id()}


def _is_tied(model, text: str) -> bool:
    best = model.nbest_encode(text, nbest_size=2, return_type="proto").nbests
    return len(best) > 1 and abs(best[0].score - best[1].score) < 1e-4
