"""The commands that a document shows in console blocks, each with its output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Example(NamedTuple):
    """One command and its output; `line` is the command's line in the document."""

    line: int
    command: str
    printed: str


def examples(text: str) -> Iterator[Example]:
    """Find every `$ command` of every console block."""
    inside, command, number, printed = False, "", 0, ""
    for here, line in enumerate(text.splitlines(keepends=True), 1):
        if line.startswith("```"):
            if inside and command:
                yield Example(number, command, printed)
            inside, command, printed = line == "```console\n", "", ""
        elif inside and line.startswith("$ "):
            if command:
                yield Example(number, command, printed)
            command, number, printed = line[2:].rstrip("\n"), here, ""
        elif inside:
            printed += line


def pattern(printed: str) -> re.Pattern[str]:
    """Compile the text `printed` to a pattern, in which `…` matches anything within a line."""
    return re.compile(".*".join(re.escape(part) for part in printed.split("…")))
