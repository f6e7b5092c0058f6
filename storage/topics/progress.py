"""How far work has come that takes long, for status pages."""

from __future__ import annotations


class Progress:
    """One line, or none. Written by who works, read from any thread."""

    def __init__(self) -> None:
        self.line: str | None = None

    def say(self, line: str) -> None:
        """This is done now."""
        self.line = line

    def done(self) -> None:
        """Nothing is done any more."""
        self.line = None
