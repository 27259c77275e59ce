# SPDX-License-Identifier: Apache-2.0
"""Questions about words, from WordNet, the dictionary of computing and the Jargon File."""

from __future__ import annotations

import re
from typing import NamedTuple

from corpus.chat import ChatBook, leading_sentences

_KINDS = {"n": "noun", "v": "verb", "adj": "adjective", "adv": "adverb"}
_HEADWORD = re.compile(r"[A-Za-z][a-z]*(?: [a-z]+)?")
_FIRST_SENSE = re.compile(
    r"\s*(n|v|adj|adv)\b\s*1?:(.*?)(?=\n\s+\d+:|\n\s+(?:n|v|adj|adv) 1:|\Z)", re.S
)
_MAX_WORDS_ASKED = 14_000
_MAX_CORE_WORDS = 5_000
_COMMON = 60  # uses in the prose that make a word of computing common
_MAX_HEAD = 40  # characters


class _Sense(NamedTuple):
    """A headword with its first sense; sorts by falling use, then by the alphabet."""

    negative_use: int
    head: str
    kind: str
    gloss: str


def without_links(text: str) -> str:
    """Text whose {linked words} lost their braces."""
    return re.sub(r"\{([^}]*)\}", r"\1", text)


def with_article(noun: str) -> str:
    """A noun after "a" or "an"; names stay alone."""
    if noun[:1].isupper():
        return noun
    return ("an " if noun[:1] in "aeiou" else "a ") + noun


def _first_sense(entry: str, book: ChatBook) -> _Sense | None:
    head, _, body = entry.partition("\n")
    sense = _FIRST_SENSE.match(body) if _HEADWORD.fullmatch(head) else None
    if sense is None:
        return None
    gloss = re.sub(r"\s+", " ", without_links(sense[2])).strip()
    gloss = re.sub(r"\s*\[(syn|ant|also)[^\]]*\]", "", gloss)
    use = book.vocabulary.rarest(head.lower().split()) if len(head) > 2 else 0
    return _Sense(-use, head, _KINDS[sense[1]], gloss)


def _wordings(sense: _Sense) -> list[str]:
    asked = [f"What does {sense.head} mean?", f"Define {sense.head}."]
    if sense.kind == "noun":
        return [f"What is {with_article(sense.head)}?", *asked, f"What is {sense.head}?"]
    return [*asked, f'What is the meaning of "{sense.head}"?']


def _answer(sense: _Sense) -> str:
    gloss = re.split(r'; "', sense.gloss)[0].strip(" ;")  # without the example sentences
    name = sense.head[0].upper() + sense.head[1:]
    return leading_sentences(f"{name} is {with_article(sense.kind)}: {gloss}.")


def ask_wordnet(entries: list[str], book: ChatBook) -> None:
    """Asks for the first sense of the most common words; single words also enter the core."""
    senses = [sense for entry in entries if (sense := _first_sense(entry, book))]
    for sense in sorted(senses)[:_MAX_WORDS_ASKED]:
        wordings, answer = _wordings(sense), _answer(sense)
        book.ask_one("dict-wn", wordings, answer)
        word = sense.head.lower()
        if " " not in word and len(book.asked) < _MAX_CORE_WORDS and word not in book.asked:
            book.asked.add(word)
            book.ask_core("dict-wn", wordings, answer)


def _first_paragraph(body: str) -> str:
    """The first real paragraph of a FOLDOC entry, without topic marks in angle brackets."""
    text = without_links(body).replace("\n\n", "\f")
    text = re.sub(r"^\s*(<[^>]*>\s*)+", "", text).strip()
    paragraph = next((p for p in text.split("\f") if len(p.split()) > 5), "")
    return re.sub(r"^\s*(<[^>]*>|1\.|\([^)]*\))\s*", "", paragraph)


def ask_foldoc(entries: list[str], book: ChatBook) -> None:
    """Asks for terms of computing; those made of common words also enter the core."""
    for entry in entries:
        head, _, body = entry.partition("\n")
        head, paragraph = head.strip(), _first_paragraph(body)
        if (not paragraph or paragraph.startswith(("See ", "{", "<"))
                or not 1 < len(head) < _MAX_HEAD):
            continue
        plain, others = f"What is {head}?", [f"Explain {head}.",
                                            f"What does {head} mean in computing?"]
        answer = leading_sentences(paragraph)
        book.ask_one("dict-foldoc", [plain, plain, *others], answer)
        words = re.findall(r"[a-z]{3,}", head.lower())
        if words and book.vocabulary.rarest(words) >= _COMMON:
            # WordNet's answer to the plain question stays the only one.
            known = head.lower() in book.asked
            more = [] if known else [plain, f"What is {with_article(head)}?"]
            book.ask_core("dict-foldoc", others + more, answer)


def ask_jargon(entries: list[str], book: ChatBook) -> None:
    """Asks for hacker slang; none of it is core."""
    for entry in entries:
        head, _, body = entry.partition("\n")
        head = head.strip()
        paragraphs = (p.strip() for p in without_links(body).split("\n\n"))
        paragraph = next((p for p in paragraphs if len(p.split()) > 6), "")
        paragraph = re.sub(r"^(\s*(1\.|n\.|vt?\.|adj\.|\[[^\]]*\]))+\s*", "", paragraph)
        if paragraph and 1 < len(head) < _MAX_HEAD:
            question = f"What is {head} in hacker slang?"
            book.ask_each("dict-jargon", [question], leading_sentences(paragraph))
