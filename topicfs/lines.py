"""Lines of text for people, without control characters. Commands that print no table need not import `terminal`."""

from __future__ import annotations

import click

from storage.messages import printable


def say(text: str, *, error: bool = False) -> None:
    """Print one line on standard output (or error); names and texts in it may come from anywhere."""
    click.echo(printable(text), err=error)
