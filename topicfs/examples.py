"""Help that teaches by example: a click command whose help ends with lines to copy."""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class Example(NamedTuple):
    """One line to type, and what it is for."""

    line: str
    meaning: str


class ExampleCommand(click.Command):
    """A command with examples; they stand in its help in the order given."""

    def __init__(self, *args: Any, examples: tuple[tuple[str, str], ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(Example(*example) for example in examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each under what it is for."""
        del ctx
        if not self.examples:
            return
        formatter.write_paragraph()
        formatter.write("Examples:\n")
        for example in self.examples:
            formatter.write(f"\n  # {example.meaning}\n  {example.line}\n")
