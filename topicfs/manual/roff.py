"""A manual page as text in the macros of man(7), which every man program understands.

Backslashes, dashes that are typed, and characters beyond ASCII are written as groff_char(7) has them, so that a page needs
no encoding and that what is copied from a screen is what was meant.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from topicfs.examples import Example
from topicfs.manual.page import Page, Reference, Term

WIDTH = 78
"""Columns of a source line; mandoc's checks want fewer than 80."""
_KEPT = "\0"
"""A blank inside what is typed, while lines are filled."""
_LITERAL = re.compile(r"`([^`]+)`")
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def written(page: Page, *, version: str, day: datetime) -> str:
    """Return the source of a page."""
    name, section = page.reference
    head = f'.TH {_quoted(name.upper())} {section} "{day.astimezone(UTC):%Y-%m-%d}" {_quoted(f"topicfs {version}")}'
    first, *more = _lines(page.summary)
    # Words that are typed are not to be divided at the end of a line, nor lines to be filled with blanks.
    lines = [head, ".nh", ".ad l", ".SH NAME", f"{_literal(name)} \\-", first, *more, ".SH SYNOPSIS"]
    lines += _synopsis(page.usages)
    lines += [".SH DESCRIPTION", *_paragraphs(page.description)]
    lines += _section("COMMANDS", (line for each in page.commands for line in _command(*each)))
    for title, terms in (
        ("OPTIONS", page.options),
        ("EXIT STATUS", page.statuses),
        ("ENVIRONMENT", page.variables),
        ("FILES", page.files),
    ):
        lines += _section(title, (line for term in terms for line in _term(term)))
    lines += _section("EXAMPLES", _examples(page.examples))
    lines += _section("SEE ALSO", _references(page.related))
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [f".SH {title}", *found] if found else []


def _synopsis(usages: Iterable[tuple[str, str]]) -> Iterator[str]:
    for number, (typed, stands_for) in enumerate(usages):
        if number:
            yield ".br"
        yield f"\\fB{_literal(typed)}\\fR \\fI{_literal(stands_for)}\\fR".removesuffix(" \\fI\\fR")


def _paragraphs(paragraphs: Iterable[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from _lines(paragraph)


def _command(reference: Reference, summary: str) -> Iterator[str]:
    yield ".TP"
    yield _reference(reference)
    yield from _lines(summary)


def _term(term: Term) -> Iterator[str]:
    yield ".TP"
    gap = "" if term.value.startswith("=") else " "
    value = f"{gap}\\fI{_literal(term.value)}\\fR" if term.value else ""
    yield f"\\fB{_literal(term.name)}\\fR{value}"
    yield from _lines(term.text)


def _examples(examples: Iterable[Example]) -> Iterator[str]:
    for example in examples:
        yield ".TP"
        yield f"\\fB{_literal(example.line)}\\fR"
        yield from _lines(example.meaning)


def _references(references: tuple[Reference, ...]) -> Iterator[str]:
    for number, reference in enumerate(references, 1):
        yield _reference(reference) + (" ," if number < len(references) else "")


def _reference(reference: Reference) -> str:
    return f".BR {_literal(reference.name)} ({reference.section})"


def _lines(text: str) -> Iterator[str]:
    """Fill lines, with what is between backticks, and options, as they are typed.

    What is typed stays on one line; a line that begins as a request would is kept from being one.
    """
    parts = _LITERAL.split(" ".join(text.split()))
    found = "".join(
        f"\\fB{_literal(part).replace(' ', _KEPT)}\\fR" if number % 2 else _sentence(part)
        for number, part in enumerate(parts)
    )
    for line in textwrap.wrap(found, WIDTH, break_long_words=False, break_on_hyphens=False):
        kept = line.replace(_KEPT, " ")
        yield f"\\&{kept}" if kept.startswith((".", "'")) else kept


def _sentence(text: str) -> str:
    end, found = 0, ""
    for option in _OPTION.finditer(text):
        found += _escaped(text[end : option.start()]) + _literal(option[0])
        end = option.end()
    return found + _escaped(text[end:])


def _literal(text: str) -> str:
    escaped = _escaped(text).replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    escaped = escaped.replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e")
    return "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)


def _quoted(text: str) -> str:
    return '"' + _literal(text).replace('"', "\\(dq") + '"'
