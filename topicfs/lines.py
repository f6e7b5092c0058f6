"""Prints lines of text without control characters. Commands without tables use it to avoid importing `terminal`."""

from __future__ import annotations

import sys
from typing import TextIO

import click

from topicfs.storage.messages import printable


def say(text: str, *, error: bool = False) -> None:
    """Print one line on standard output (or error), with untrusted characters escaped."""
    click.echo(fitted(printable(text), sys.stderr) if error else printable(text), err=error)


def fitted(text: str, stream: TextIO) -> str:
    """Wrap a message to the width of a terminal; leave the message on one line for any other stream."""
    if not stream.isatty():
        return text
    from shutil import get_terminal_size
    from textwrap import fill

    width = get_terminal_size().columns
    return fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
