# SPDX-License-Identifier: Apache-2.0
"""Questions and answers made by templates, in ChatML, and the few that were written by hand."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from corpus.store import Document

WRITTEN = "written for this model"  # stands where a package would
_COPIES_OF_WRITTEN = 12  # so that a handful of sentences is seen at all among 40,000

# Answers of a dictionary that an assistant should not volunteer.
_REFUSED = re.compile(
    r"offensive|obscene|slur|vulgar|disparag|derogat|sexual|genital|rape|racis|slang term for", re.I
)
_MAX_QUESTION, _MIN_ANSWER = 120, 8  # characters


def turn(question: str, answer: str) -> str:
    """One exchange in ChatML."""
    return (f"<|im_start|>user\n{question}<|im_end|>\n"
            f"<|im_start|>assistant\n{answer}<|im_end|>\n")


def leading_sentences(text: str, max_words: int = 110) -> str:
    """The whole sentences at the start of a text; empty when the first one is too long."""
    words = re.sub(r"\s+", " ", text).strip().split(" ")
    if len(words) <= max_words:
        return " ".join(words)
    start = " ".join(words[:max_words])
    end = max(start.rfind(". "), start.rfind("; "))
    return start[:end + 1].rstrip(";") if end > 60 else ""


class Vocabulary:
    """How often a word occurs in the English prose; common words are asked about first."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def rarest(self, words: list[str]) -> int:
        """The count of the least common of some words in lower case."""
        return min(self._counts.get(word, 0) for word in words)


class ChatBook:
    """Collects the questions of both phases.

    `all` holds each topic in one wording drawn at random, `core` holds common topics in every
    wording: the second training phase learns those by heart. The order of the draws is part of
    the recipe, so every topic draws even when its question is refused.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.all: list[Document] = []
        self.core: list[Document] = []
        self.asked: set[str] = set()  # words in lower case whose plain question core holds
        self._random = random.Random(1)

    def ask_one(self, package: str, wordings: list[str], answer: str) -> None:
        """Adds one of the wordings to `all`."""
        self._append(self.all, package, self._random.choice(wordings), answer)

    def ask_each(self, package: str, wordings: list[str], answer: str) -> None:
        """Adds every wording to `all`."""
        for question in wordings:
            self._append(self.all, package, question, answer)

    def ask_core(self, package: str, wordings: list[str], answer: str) -> None:
        """Adds every wording to `core`."""
        for question in wordings:
            self._append(self.core, package, question, answer)

    @staticmethod
    def _append(book: list[Document], package: str, question: str, answer: str) -> None:
        answer = answer.strip()
        if _REFUSED.search(question + answer) or "\ufffd" in answer:
            return
        if len(answer) > _MIN_ANSWER and len(question) < _MAX_QUESTION:
            book.append(Document(package, turn(question, answer)))


class _Exchange(NamedTuple):
    questions: list[str]
    answer: str


_WRITTEN_EXCHANGES = [
    _Exchange(
        ["Who are you?", "What are you?", "What can you do?", "Introduce yourself."],
        "I am Switchyard's demonstration model: a very small mixture-of-experts language model "
        "trained on manual pages, dictionaries and source code from Debian. I can say what a word "
        "or a command means, and I am often wrong."),
    _Exchange(["Hello", "Hello!", "Hi", "Hi there!", "Good morning"],
              "Hello! Ask me what a word means or what a command does."),
    _Exchange(["Thank you", "Thanks!", "Thank you very much."], "You are welcome."),
    _Exchange(["Goodbye", "Bye"], "Goodbye!"),
    _Exchange(["Hallo", "Guten Tag"], "Guten Tag! Fragen Sie mich, was ein Befehl macht."),
    _Exchange(["Bonjour", "Bonjour !"], "Bonjour ! Demandez-moi ce que fait une commande."),
    _Exchange(["Hola", "¡Hola!"], "¡Hola! Pregúnteme qué hace una orden."),
]


def written_exchanges() -> list[Document]:
    """The exchanges written by hand, each several times over; these are never held out."""
    return [Document(WRITTEN, turn(question, exchange.answer))
            for exchange in _WRITTEN_EXCHANGES
            for question in exchange.questions
            for _ in range(_COPIES_OF_WRITTEN)]
