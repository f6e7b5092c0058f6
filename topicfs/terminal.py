"""Output of commands: with colors on a terminal, as plain text in a pipe."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from topicfs.storage.messages import printable

THEME = Theme(
    {
        "number": "bold cyan",
        "name": "bold",
        "good": "green",
        "bad": "bold red",
        "quiet": "dim",
        "found": "bold green",
    }
)
"""The styles of the command, by meaning."""


PIPE_COLUMNS = 1000


def console(*, error: bool = False) -> Console:
    """Return a console on standard output (or error); colors and boxes only on a terminal."""
    screen = Console(theme=THEME, stderr=error, highlight=False, soft_wrap=True)
    if not screen.is_terminal:
        # A table in a pipe has no width limit, so that no text is cut.
        screen.width = PIPE_COLUMNS
    return screen


def plain(text: str, style: str = "") -> Text:
    """Return untrusted text for a table or line; markup and control characters have no effect."""
    return Text(printable(text), style=style)


def is_terminal() -> bool:
    return sys.stdout.isatty()
