"""Help with examples: click commands whose help ends with lines to copy."""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class Example(NamedTuple):
    line: str
    meaning: str


class _WithExamples(click.Command):
    def __init__(self, *args: Any, examples: tuple[tuple[str, str], ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(Example(*example) for example in examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each under what it is for."""
        del ctx
        formatter.write("\nExamples:\n")
        for example in self.examples:
            formatter.write(f"\n  # {example.meaning}\n  {example.line}\n")


class ExampleCommand(_WithExamples):
    """A command with examples; they are in its help in the order given."""


class ExampleGroup(_WithExamples, click.Group):
    """A group of commands with examples of how they are used together."""
