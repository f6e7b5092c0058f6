"""A manual page as a value: the sections of man-pages(7) that a command has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from topicfs.examples import Example


class Term(NamedTuple):
    """Something with an explanation: an option, a variable, a status, a file."""

    name: str
    """Typed or printed as it stands: `-f, --follow`."""
    value: str
    """Stands for something: `FILE`, or `=FILE` where no blank is between. Empty where nothing follows."""
    text: str
    """Sentences; what is between backticks is literal."""


class Reference(NamedTuple):
    """Another page: `topicfs-cat` in section 1."""

    name: str
    section: int


@dataclass(frozen=True, slots=True)
class Page:
    """One manual page. What is empty has no section."""

    reference: Reference
    summary: str
    """One line without a full stop."""
    usages: tuple[tuple[str, str], ...]
    """Each way to call it: what is typed, and what stands for something."""
    description: tuple[str, ...]
    """Paragraphs."""
    commands: tuple[tuple[Reference, str], ...] = ()
    """The sub-commands of a group, each with its summary."""
    options: tuple[Term, ...] = ()
    examples: tuple[Example, ...] = ()
    statuses: tuple[Term, ...] = ()
    variables: tuple[Term, ...] = ()
    files: tuple[Term, ...] = ()
    related: tuple[Reference, ...] = ()

    @property
    def path(self) -> str:
        """The page's file below a folder that MANPATH names: `man1/topicfs-cat.1`."""
        name, section = self.reference
        return f"man{section}/{name}.{section}"
