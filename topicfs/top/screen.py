"""The table of topics: its columns, its order, its filter, and what each key does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from storage.messages import printable
from topicfs.terminal import plain
from topicfs.top.samples import TopRow, TopSample
from topicfs.top.terminal_keys import BACKSPACE, DOWN, ENTER, ESCAPE, UP

WIDE = 120
"""Columns of a terminal from which on all columns of the table are shown."""
LINES_AROUND = 6
"""Lines of a screen that are no rows of the table."""


class TopColumn(NamedTuple):
    """A column of the table."""

    key: str
    """The key that sorts by it; empty for one that is not sorted by."""
    title: str
    shown: Callable[[TopRow], str]
    value: Callable[[TopRow], float]
    """The number by which rows are sorted, the largest first."""
    least_width: int = 0
    """Columns of a terminal from which on it is shown."""


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _bytes(value: float | None) -> str:
    return "-" if value is None else decimal(int(value)).replace(" bytes", " B").replace(" byte", " B")


def _programs(programs: Sequence[str]) -> str:
    return ", ".join(programs) or "-"


COLUMNS = (
    TopColumn(
        "r", "records/s", lambda row: _number(row.records_per_second), lambda row: row.records_per_second or 0
    ),
    TopColumn(
        "b",
        "bytes/s",
        lambda row: _bytes(row.bytes_per_second),
        lambda row: row.bytes_per_second or 0,
        least_width=70,
    ),
    TopColumn(
        "p", "partitions", lambda row: _number(row.partitions), lambda row: row.partitions, least_width=WIDE
    ),
    TopColumn("c", "records", lambda row: _number(row.records), lambda row: row.records, least_width=WIDE),
    TopColumn(
        "e", "end", lambda row: _number(row.end_offsets), lambda row: row.end_offsets or 0, least_width=60
    ),
    TopColumn("s", "size", lambda row: _bytes(row.log_bytes), lambda row: row.log_bytes or 0, least_width=50),
    TopColumn(
        "l",
        "lag",
        lambda row: _number(row.lag),
        lambda row: -1 if row.lag is None else row.lag,
        least_width=40,
    ),
    TopColumn("", "group", lambda row: row.group or "-", lambda row: len(row.group), least_width=WIDE),
    TopColumn(
        "w", "writers", lambda row: _programs(row.writers), lambda row: len(row.writers), least_width=WIDE
    ),
    TopColumn(
        "d", "readers", lambda row: _programs(row.readers), lambda row: len(row.readers), least_width=WIDE
    ),
)
BY_NAME = "n"
HELP = "n name  r rec/s  b bytes/s  e end  s size  l lag  / filter  ↵ record  q quit"
"""It fits into 80 columns."""


@dataclass(slots=True)
class TopScreen:
    """The state of the screen, changed by keys."""

    name: str
    """The place whose topics are shown."""
    sorted_by: str = "r"
    filter: str = ""
    """Part of the names that are shown."""
    typing: bool = False
    """True while the filter is being typed."""
    selected: str | None = None
    """The topic on which the selection is."""
    record: str | None = None
    """The record that is shown in place of the table."""
    ended: bool = False
    rows: list[TopRow] = field(default_factory=list)
    sample: TopSample | None = None
    problem: str = ""
    """The reason why the newest look at the topics failed."""

    def show(self, sample: TopSample, rows: list[TopRow]) -> None:
        """Show newer rows; the selection stays on its topic."""
        self.sample, self.rows, self.problem = sample, rows, ""

    def visible(self) -> list[TopRow]:
        """Return the rows that pass the filter, in their order."""
        found = [row for row in self.rows if self.filter.lower() in row.topic.lower()]
        found.sort(key=lambda row: row.topic)
        if self.sorted_by != BY_NAME:
            column = next(one for one in COLUMNS if one.key == self.sorted_by)
            found.sort(key=column.value, reverse=True)
        return found

    def press(self, key: str) -> str | None:
        """Do what a key asks for; return the topic whose newest record is wanted."""
        if self.record is not None:
            self.record = None
            self.ended = key == "q"
        elif self.typing:
            self._type(key)
        elif key == "q":
            self.ended = True
        elif key == "/":
            self.typing = True
        elif key == ESCAPE:
            self.filter = ""
        elif key in (UP, DOWN):
            self._move(1 if key == DOWN else -1)
        elif key == ENTER:
            return self._selected_row()
        elif key == BY_NAME or any(key == column.key for column in COLUMNS):
            self.sorted_by = key
        return None

    def _type(self, key: str) -> None:
        if key in (ENTER, ESCAPE):
            self.typing = False
            self.filter = "" if key == ESCAPE else self.filter
        elif key == BACKSPACE:
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _selected_row(self) -> str | None:
        names = [row.topic for row in self.visible()]
        if self.selected in names:
            return self.selected
        return names[0] if names else None

    def _move(self, step: int) -> None:
        names = [row.topic for row in self.visible()]
        if names:
            at = names.index(self.selected) if self.selected in names else 0 if step > 0 else 1
            at = at if self.selected is None and step > 0 else at + step
            self.selected = names[min(max(at, 0), len(names) - 1)]

    def render(self, width: int, height: int) -> Group:
        """Return the whole screen."""
        if self.record is not None:
            lines = self.record.splitlines() or ["no record"]
            body: Text | Table = Text("\n".join(lines[: max(height - 3, 1)]))
            return Group(self._head(width), Text(""), body, Text("any key: back to the topics", style="dim"))
        rows = self.visible()
        selected = self._selected_row()
        most = max(height - LINES_AROUND, 1)
        at = next((number for number, row in enumerate(rows) if row.topic == selected), 0)
        first = min(max(at - most + 1, 0), max(len(rows) - most, 0))
        shown = rows[first : first + most]
        table = table_of(shown, width=width, sorted_by=self.sorted_by, selected=selected)
        left = len(rows) - len(shown)
        more = Text(f"{left:,} more topics" if left else "", style="dim")
        return Group(self._head(width), table, more, self._foot())

    def _head(self, width: int) -> Text:
        sample = self.sample
        parts = [f"{len(self.rows):,} topics"]
        if sample is not None:
            offline = sum(row.offline for row in self.rows)
            parts += [f"{offline:,} partitions offline"] if offline else []
            parts += [
                f"{_bytes(one.free_bytes)} of {_bytes(one.size_bytes)} free" for one in sample.disks[:2]
            ]
            parts += [f"{len(sample.notes)} warnings"] if sample.notes else []
        parts.append(printable(self.name))
        head = Text("  ".join(parts), style="bold", no_wrap=True, overflow="ellipsis")
        if self.problem:
            head.append(f"\n{printable(self.problem)}", style="bold red")
        head.truncate(width * (2 if self.problem else 1), overflow="ellipsis")
        return head

    def _foot(self) -> Text:
        if self.typing or self.filter:
            cursor = "▏" if self.typing else "   esc: all topics"
            return Text(f"/{printable(self.filter)}{cursor}", style="yellow")
        return Text(HELP, style="dim", no_wrap=True, overflow="ellipsis")


def table_of(
    rows: Sequence[TopRow], *, width: int, sorted_by: str = "", selected: str | None = None
) -> Table:
    """Return rows as a table that fits into a width."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), width=width, expand=False)
    columns = [one for one in COLUMNS if width >= one.least_width]
    mark = "▼" if sorted_by == BY_NAME else ""
    table.add_column(f"topic{mark}", no_wrap=True, overflow="ellipsis", ratio=2)
    for column in columns:
        words = column.title in ("group", "writers", "readers")
        title = f"{column.title}{'▼' if column.key and column.key == sorted_by else ''}"
        table.add_column(
            title,
            justify="left" if words else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if words else None,
        )
    for row in rows:
        style = "reverse" if row.topic == selected else "bold red" if row.offline else ""
        table.add_row(plain(row.topic), *(plain(column.shown(row)) for column in columns), style=style)
    return table
