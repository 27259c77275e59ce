# SPDX-License-Identifier: Apache-2.0
"""Questions about commands, functions and files, from manual pages in four languages."""

from __future__ import annotations

import re
from typing import NamedTuple

from corpus.chat import ChatBook, leading_sentences
from corpus.man_pages import ManPage

_PACKAGE = "manual pages"


class _Language(NamedTuple):
    """Section titles (as expressions) and wordings; {n} stands for the name of the page."""

    name_title: str
    description_title: str
    commands: list[str]
    functions: list[str]
    others: list[str]
    any_kind: list[str]  # asked of commands and functions alike, in the core only


_ENGLISH = _Language(
    "NAME", "DESCRIPTION",
    ["What does the command {n} do?", "What is {n}?", "What is the {n} command for?"],
    ["What does {n} do?", "What does the function {n} do?"],
    ["What is {n}?", "What does the manual say about {n}?"],
    ["What does {n} do?"])
_LANGUAGES = {
    "english_man": _ENGLISH,
    "manuals": _ENGLISH,
    "german": _Language(
        "BEZEICHNUNG|NAME", "BESCHREIBUNG",
        ["Was macht der Befehl {n}?", "Wozu dient {n}?"],
        ["Was macht die Funktion {n}?"], ["Was ist {n}?"], []),
    "french": _Language(
        "NOM", "DESCRIPTION",
        ["Que fait la commande {n} ?", "À quoi sert {n} ?"],
        ["Que fait la fonction {n} ?"], ["Qu'est-ce que {n} ?"], []),
    "spanish": _Language(
        "NOMBRE", "DESCRIPCI[OÓ]N",
        ["¿Qué hace la orden {n}?", "¿Para qué sirve {n}?"],
        ["¿Qué hace la función {n}?"], ["¿Qué es {n}?"], []),
}


def _summary(page: ManPage, language: _Language) -> str:
    """What the NAME section says after the dash; empty when it has no usable line."""
    section = re.search(rf"\n(?:{language.name_title})\n(.*?)\n\n?(?=\S)", page.text, re.S)
    line = re.sub(r"\s+", " ", section[1]).strip() if section else ""
    parts = re.split(r"\s+[-–—]+\s+", line, maxsplit=1)
    usable = len(parts) == 2 and 5 < len(parts[1]) < 300
    return parts[1].rstrip(".") if usable else ""


def _description(page: ManPage, language: _Language) -> str:
    """The first paragraph of the description; empty when it is short or announces a list."""
    section = re.search(
        rf"\n(?:{language.description_title})\n(.*?)(?:\n\s*\n|\n(?=\S))", page.text, re.S)
    text = leading_sentences(section[1], max_words=90) if section else ""
    return "" if len(text.split()) < 8 or text.endswith(":") else text


def _named(wordings: list[str], name: str) -> list[str]:
    return [wording.format(n=name) for wording in wordings]


def _ask_page(page: ManPage, answer: str, book: ChatBook) -> None:
    language = _LANGUAGES[page.domain]
    is_command, is_function = page.section[0] in "168", page.section[0] in "23"
    kind = (language.commands if is_command else
            language.functions if is_function else language.others)
    wordings = _named(kind, page.name)
    book.ask_one(_PACKAGE, wordings, answer)
    if is_command:  # what a reader is likely to ask first
        book.ask_each(_PACKAGE, wordings, answer)
    if is_command or (is_function and page.domain != "manuals"):
        book.ask_core(_PACKAGE, wordings + _named(language.any_kind, page.name), answer)


def ask_man_pages(pages: list[ManPage], book: ChatBook) -> None:
    """Asks what each page is about; the answer is its NAME line and first paragraph."""
    for page in pages:
        language = _LANGUAGES[page.domain]
        summary = _summary(page, language)
        if not summary:
            continue
        description = _description(page, language)
        answer = f"{page.name}: {summary}." + (f" {description}" if description else "")
        _ask_page(page, answer, book)
