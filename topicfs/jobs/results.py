"""A job's rows as text: a table for people, lines for pipes, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from topicfs.storage.messages import printable
from topicfs.terminal import console, is_terminal


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, as_program: bool) -> None:
    """Print a job's rows: JSON where it is asked for, a table on a terminal, else fields separated by tabs."""
    if as_program:
        click.echo(json.dumps([dict(row) for row in rows], default=str))
    elif is_terminal():
        console().print(table(columns, rows))
    else:
        for row in rows:
            click.echo("\t".join(_plain(row[column]) for column in columns))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with numbers to the right, with their thousands apart."""
    made = Table(box=None, header_style="quiet", pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row[column], int | float | None) for row in rows)
        made.add_column(column.replace("_", " "), justify="right" if rows and numeric else "left")
    for row in rows:
        made.add_row(*(_for_people(row[column]) for column in columns))
    return made


def _for_people(value: Any) -> Text:
    if value is None:
        return Text("-")
    # A partition or an offset is a name more than a number, but a long one is read more easily in groups.
    return Text(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _plain(value))


def _plain(value: Any) -> str:
    return "" if value is None else printable(str(value))


_LAST_DATE = 253_402_300_799_999
"""Beyond the year 9999 the number is printed as it is."""


def as_time(column: str) -> str:
    """Return a column of milliseconds as text under its own name, in SQL: 2026-01-02T03:04:05.678Z; records may claim any time."""
    return (
        f"CASE WHEN {column} BETWEEN 0 AND {_LAST_DATE} "
        f"THEN date_format(timestamp_millis({column}), \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") "
        f"ELSE string({column}) END AS {column}"
    )
