"""Click commands whose help ends with examples to copy."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click


class Example(NamedTuple):
    line: str
    meaning: str


class _WithExamples(click.Command):
    """A command with examples: each example is a line to type, with a comment next to it or above it."""

    def __init__(self, *args: Any, examples: str | Iterable[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        found = _read(examples) if isinstance(examples, str) else examples
        self.examples = tuple(Example(*example) for example in found)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each below its comment."""
        del ctx
        formatter.write("\nExamples:\n")
        for example in self.examples:
            formatter.write(f"\n  # {example.meaning}\n  {example.line}\n")


def _read(text: str) -> Iterator[tuple[str, str]]:
    above = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            above = line.removeprefix("# ")
        else:
            typed, _, meaning = line.partition("  # ")
            yield typed, meaning or above


class ExampleCommand(_WithExamples):
    """A command with examples."""


class ExampleGroup(_WithExamples, click.Group):
    """A group of commands, with examples that use several of the commands."""
