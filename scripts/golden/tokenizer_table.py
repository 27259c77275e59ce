# SPDX-License-Identifier: Apache-2.0
"""The small tokenizers that goldens are made with: one for each pipeline that model folders use.

The patterns are those of the published tokenizer.json files. Byte-level vocabularies are trained on the
golden texts themselves and without any split, and the pair of bytes at each boundary that the split would
draw merges first: a boundary that is missed, or drawn where none belongs, shows as other ids.
"""

import collections
import dataclasses
import io
import json

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from golden.corpus import EDGES, TEXTS, TRAINING

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DSV3 = (
    r"\p{N}{1,3}",
    r"[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
DSLLM = (
    "[\r\n]",
    # The published class lists every cased letter; these are its first ranges, spelled the same way.
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    "\\s+$",
    "[一-龥ࠀ-一가-퟿]+",
    "\\p{N}+",
)
BYTES = [f"<0x{value:02X}>" for value in range(256)]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tokenizer.json: how to make it, and how its file deviates from what the library saves."""

    name: str
    what: str
    make: object  # () -> Tokenizer
    string_merges: bool = False  # Merges as "a b" instead of ["a", "b"], as older files have them.


def _regex_splits(*patterns: str) -> list:
    return [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]


def _byte_level(splits: list, *, normalizer=None, vocab=1800, use_regex=False, prefix=False, added=(),
                words=(), post=None) -> Tokenizer:
    """Byte-level BPE behind the given stages; words are tokens that only ignore_merges can reach."""
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)
    stages = pre_tokenizers.Sequence([*splits, last]) if splits else last
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(_byte_texts(normalizer, stages), trainer)
    if words:
        tokenizer.model = _with_words(tokenizer, words)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = stages
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = post or processors.ByteLevel(trim_offsets=False)
    _add(tokenizer, added)
    return tokenizer


def _byte_texts(normalizer, stages) -> list:
    """Training and golden texts in the byte-level alphabet, whole; edge pieces and boundary pairs more often."""
    unsplit = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = [normalizer.normalize_str(text) if normalizer else text for text in TEXTS if text]
    pieces = [[piece for piece, _ in stages.pre_tokenize_str(text)] for text in texts]
    pairs = sorted({left[-1] + right[0] for row in pieces for left, right in zip(row, row[1:])})
    whole = [unsplit.pre_tokenize_str(text)[0][0] for text in TRAINING + 2 * texts]
    edges = [piece for row, text in zip(pieces, texts) if text in EDGES for piece in row]
    return whole + 20 * edges + 200 * pairs


def _with_words(tokenizer: Tokenizer, words) -> models.BPE:
    """Gives each word a token and drops the merges that would make it."""
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"]
    for word in words:
        vocab.setdefault(word, len(vocab))
    merges = [tuple(pair) for pair in model["merges"] if "".join(pair) not in words]
    return models.BPE(vocab, merges, ignore_merges=True)


def _add(tokenizer: Tokenizer, added) -> None:
    for token in added:
        token = token if isinstance(token, AddedToken) else AddedToken(token, special=True, normalized=False)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])


def _plain(text: str, **flags) -> AddedToken:
    return AddedToken(text, special=False, **{"normalized": False, **flags})


CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def _qwen() -> Tokenizer:
    added = (*CHATML, _plain("<think>"), _plain("</think>"), _plain("<tool_call>"), _plain("</tool_call>"))
    return _byte_level(_regex_splits(QWEN), normalizer=normalizers.NFC(), added=added)


def _olmoe() -> Tokenizer:
    runs = [_plain(" " * count) for count in (24, 16, 8, 4, 2)]
    return _byte_level([], normalizer=normalizers.NFC(), use_regex=True, added=("<|endoftext|>", *runs))


WORDS = ("Hello", "Ġworld", "Ġbrown", "123", "Ġover", "ĊĊĊ", "Ġcount", "don", "ABC")


def _llama3() -> Tokenizer:
    tokenizer = _byte_level(_regex_splits(CL100K), words=WORDS, added=("<|begin_of_text|>", "<|eot_id|>"))
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
        special_tokens=[("<|begin_of_text|>", bos)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def _o200k() -> Tokenizer:
    return _byte_level(_regex_splits(O200K), words=WORDS, added=("<|endoftext|>",))


def _granite() -> Tokenizer:
    return _byte_level([pre_tokenizers.Digits(individual_digits=True)], use_regex=True, added=("<|endoftext|>",))


def _dsv3() -> Tokenizer:
    added = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
             _plain("<think>", normalized=True), _plain("</think>", normalized=True))
    return _byte_level(_regex_splits(*DSV3), normalizer=normalizers.Sequence([]), added=added)


def _dsllm() -> Tokenizer:
    return _byte_level(_regex_splits(*DSLLM), added=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"))


def _added_flags() -> Tokenizer:
    """Every flag of an added token, behind a normalizer that changes case."""
    added = (
        AddedToken("[MASK]", special=True, normalized=False, lstrip=True),
        _plain("[STRIP]", lstrip=True, rstrip=True),
        _plain("[LEFT]", lstrip=True),
        _plain("[RIGHT]", rstrip=True),
        _plain("word", single_word=True),
        _plain("caf\u00e9", normalized=True),
        _plain("Normalized", normalized=True),
        _plain("Raw"),
        _plain("<tok>"), _plain("<token>"), _plain("<tokens"),
        AddedToken("<|endoftext|>", special=True, normalized=True),
    )
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return _byte_level([], normalizer=normalizer, use_regex=True, vocab=1400, added=added)


def _spm(normalizer, pre_tokenizer, *, byte_fallback: bool, fuse_unk: bool, decoder, vocab=560) -> Tokenizer:
    """A SentencePiece BPE as the fast format spells it.

    While training, words with the spaces before them are split, so that runs of spaces become tokens.
    """
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁+[^▁]*|[^▁]+"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, limit_alphabet=110,
                                  initial_alphabet=_common_letters(110), special_tokens=special + (BYTES if byte_fallback else []))
    tokenizer.train_from_iterator(TRAINING, trainer)
    data = json.loads(tokenizer.to_str())
    merges = [tuple(pair) for pair in data["model"]["merges"]]
    made = Tokenizer(models.BPE(data["model"]["vocab"], merges, unk_token="<unk>", fuse_unk=fuse_unk,
                                byte_fallback=byte_fallback))
    if normalizer is not None:
        made.normalizer = normalizer
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    made.decoder = decoder
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", made.token_to_id("<s>"))])
    return made


def _common_letters(count: int) -> list:
    """The most frequent characters; ties by code point, which the trainer would break at random."""
    counts = collections.Counter("".join(TRAINING).replace(" ", "▁"))
    return sorted(counts, key=lambda letter: (-counts[letter], letter))[:count]


def _spm_legacy() -> Tokenizer:
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                 decoders.Strip(" ", 1, 0)])
    return _spm(normalizer, None, byte_fallback=True, fuse_unk=True, decoder=decoder, vocab=620)


def _spm_metaspace() -> Tokenizer:
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                 decoders.Strip(" ", 1, 0)])
    return _spm(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), byte_fallback=True,
                fuse_unk=True, decoder=decoder, vocab=620)


def _spm_unknown(fuse_unk: bool) -> Tokenizer:
    return _spm(None, pre_tokenizers.Metaspace(prepend_scheme="never"), byte_fallback=False, fuse_unk=fuse_unk,
                decoder=decoders.Metaspace(prepend_scheme="never"), vocab=300)


def _unigram(byte_fallback: bool) -> Tokenizer:
    pieces = _unigram_pieces()
    special = [piece for piece, _ in pieces[:3]]
    if byte_fallback:
        pieces = pieces[:200] + [(text, 0.0) for text in BYTES]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    metaspace = decoders.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), metaspace]) if byte_fallback else metaspace
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer


def _unigram_pieces() -> list:
    """Pieces and scores; sentencepiece trains them, since the trainer of tokenizers gives others each time."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_writer=out, model_type="unigram", vocab_size=360, pad_id=0,
        eos_id=1, unk_id=2, bos_id=-1, num_threads=1, hard_vocab_limit=False, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    return [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]


def _stages(*stages) -> Tokenizer:
    return _byte_level(list(stages), vocab=1400)


Split = pre_tokenizers.Split

TOKENIZERS = (
    Entry("qwen", "NFC, the Qwen pattern, byte-level BPE, special and plain added tokens", _qwen),
    Entry("gpt2", "ByteLevel with its own pattern, merges as strings",
          lambda: _byte_level([], use_regex=True, added=("<|endoftext|>",)), string_merges=True),
    Entry("gpt2_prefix", "the same with add_prefix_space",
          lambda: _byte_level([], use_regex=True, prefix=True, added=("<|endoftext|>",))),
    Entry("olmoe", "NFC, the GPT-2 pattern, runs of spaces as added tokens", _olmoe),
    Entry("granite", "digits one by one, then the GPT-2 pattern, merges as strings", _granite, string_merges=True),
    Entry("llama3", "the cl100k pattern, ignore_merges, BOS by a template", _llama3),
    Entry("o200k", "the o200k pattern, ignore_merges", _o200k),
    Entry("deepseek_llm", "the split in six stages of DeepSeek V1 and V2", _dsllm),
    Entry("deepseek_v3", "the split in three stages of DeepSeek V3, normalized added tokens", _dsv3),
    Entry("spm_legacy", "Prepend and Replace, byte fallback, fused unknowns, BOS by a template", _spm_legacy),
    Entry("spm_metaspace", "Metaspace with prepend_scheme first, unsplit, byte fallback", _spm_metaspace,
          string_merges=True),
    Entry("spm_unknown", "Metaspace with prepend_scheme never; no byte fallback, each unknown on its own",
          lambda: _spm_unknown(False)),
    Entry("spm_unknown_fused", "the same with fuse_unk", lambda: _spm_unknown(True)),
    Entry("unigram", "NFKC, Strip, Replace by pattern, Metaspace always, Unigram, EOS by a template",
          lambda: _unigram(False)),
    Entry("unigram_bytes", "the same with byte_fallback", lambda: _unigram(True)),
    Entry("added_tokens", "every flag of added tokens behind NFKC and Lowercase", _added_flags),
    Entry("stages_words", "WhitespaceSplit, Punctuation, Digits in runs", lambda: _stages(
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits())),
    Entry("stages_removed", "Split by a string, removed; by a pattern, removed and inverted", lambda: _stages(
        Split(" ", "removed"), Split(Regex(r"[^0-9]+"), "removed", invert=True))),
    Entry("stages_previous", "Split merged with the previous piece", lambda: _stages(
        Split(Regex(r"[\s.,]"), "merged_with_previous"))),
    Entry("stages_next", "Split merged with the next piece", lambda: _stages(
        Split(Regex(r"\s"), "merged_with_next"), pre_tokenizers.Punctuation("merged_with_next"))),
    Entry("stages_contiguous", "Split contiguous and isolated inverted", lambda: _stages(
        Split(Regex(r"\s"), "contiguous"), Split(Regex(r"[a-z]+"), "isolated", invert=True))),
)
