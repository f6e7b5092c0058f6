"""The table of topics: its columns, order, filter, and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from topicfs.storage.messages import printable
from topicfs.terminal import plain
from topicfs.top.samples import ClientRow, PartitionSample, TopicSample, TopRow, TopSample, rate_of
from topicfs.top.terminal_keys import BACKSPACE, DOWN, END, ENTER, ESCAPE, HOME, PAGE_DOWN, PAGE_UP, UP

WIDE = 120
"""Terminal width from which all columns of the table are shown."""
LINES_AROUND = 3
"""Lines of the screen above and below the tables."""
HEADER = "bold cyan"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _bytes(value: float | None) -> str:
    return "-" if value is None else decimal(int(value)).replace(" bytes", " B").replace(" byte", " B")


def _programs(programs: Sequence[str]) -> str:
    return ", ".join(programs) or "-"


class TopColumn(NamedTuple):
    key: str
    """The key that sorts the table by this column; empty if no key does."""
    title: str
    field: str
    """The field of TopRow that the column shows."""
    spelled: Callable[[Any], str]
    least_width: int = 0
    """Terminal width from which the column is shown."""

    def shown(self, row: TopRow) -> str:
        return self.spelled(getattr(row, self.field))

    def value(self, row: TopRow) -> float:
        """Return the number by which rows are sorted, largest first. For a column of programs, return their number."""
        found = getattr(row, self.field)
        return -1 if found is None else len(found) if isinstance(found, tuple) else found


COLUMNS = (
    TopColumn("r", "records/s", "records_per_second", _number),
    TopColumn("b", "bytes/s", "bytes_per_second", _bytes, least_width=70),
    TopColumn("p", "partitions", "partitions", _number, least_width=WIDE),
    TopColumn("c", "records", "records", _number, least_width=WIDE),
    TopColumn("e", "end", "end_offsets", _number, least_width=60),
    TopColumn("s", "size", "log_bytes", _bytes, least_width=50),
    TopColumn("l", "lag", "lag", _number, least_width=40),
    TopColumn("", "group", "group", lambda group: group or "-", least_width=WIDE),
    TopColumn("w", "writers", "writers", _programs, least_width=WIDE),
    TopColumn("d", "readers", "readers", _programs, least_width=WIDE),
)
BY_NAME = "n"
FOOT = "↵ open  / filter  n r b e s l sort  ? help  q quit"
TOPIC_FOOT = "esc back  ? help  q quit"
HELP = """\
↑ ↓ PgUp PgDn Home End    move
enter                     open a topic
esc                       back; in the list: all topics again
/                         show topics with a part of their name
n                         sort by name
r b e s l                 sort by records/s, bytes/s, end, size, lag
p c w d                   sort by partitions, records, writers, readers
?                         this help
q                         quit"""
MOVES = (UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END)


@dataclass(slots=True)
class TopScreen:
    name: str
    sorted_by: str = "r"
    filter: str = ""
    typing: bool = False
    """True while the user types the filter."""
    selected: str | None = None
    """The selected topic; None: the first row."""
    opened: str | None = None
    """The topic that is shown instead of the list."""
    partitions: list[PartitionSample] = field(default_factory=list)
    looked: float = 0
    rates: dict[int, float | None] = field(default_factory=dict)
    """Records per second by partition, since the last load."""
    first: int = 0
    """Number of partitions scrolled off the top."""
    helps: bool = False
    """True while the help covers the screen."""
    ended: bool = False
    rows: list[TopRow] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)
    sample: TopSample | None = None
    problem: str = ""
    """Why the last sample failed."""
    page: int = 10
    """Number of rows that PgUp and PgDn move: as many as were last shown."""

    def show(self, sample: TopSample, rows: list[TopRow], clients: Sequence[ClientRow] = ()) -> None:
        """Show new rows. The selected topic stays selected."""
        self.sample, self.rows, self.clients, self.problem = sample, rows, list(clients), ""

    def show_partitions(self, partitions: list[PartitionSample], at: float) -> None:
        """Show the opened topic's partitions, with their rates since the last call."""
        ends = {one.number: one.end_offset for one in self.partitions}
        self.rates = {
            one.number: rate_of(one.end_offset, ends.get(one.number), at - self.looked) for one in partitions
        }
        self.partitions, self.looked = partitions, at

    def visible(self) -> list[TopRow]:
        """Return the rows that match the filter, in order."""
        found = [row for row in self.rows if self.filter.lower() in row.topic.lower()]
        found.sort(key=lambda row: row.topic)
        if self.sorted_by != BY_NAME:
            column = next(one for one in COLUMNS if one.key == self.sorted_by)
            found.sort(key=column.value, reverse=True)
        return found

    def press(self, key: str) -> None:
        """Handle a key."""
        if self.helps:
            self.helps = False
            self.ended = key == "q"
        elif self.typing:
            self._type(key)
        elif key == "q":
            self.ended = True
        elif key == "?":
            self.helps = True
        elif self.opened is not None:
            self._press_in_topic(key)
        else:
            self._press_in_list(key)

    def _press_in_list(self, key: str) -> None:
        if key == "/":
            self.typing = True
        elif key == ESCAPE:
            self.filter = ""
        elif key in MOVES:
            self._move(key)
        elif key == ENTER:
            self.opened, self.partitions, self.first = self._selected_row(), [], 0
        elif key == BY_NAME or any(key == column.key for column in COLUMNS):
            self.sorted_by = key

    def _press_in_topic(self, key: str) -> None:
        if key in (ESCAPE, BACKSPACE):
            self.opened = None
        elif key in MOVES:
            last = len(self.partitions) - self.page
            self.first = max(min(_moved(self.first, key, self.page, len(self.partitions)), last), 0)

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

    def _move(self, key: str) -> None:
        names = [row.topic for row in self.visible()]
        selected = self._selected_row()
        if selected is not None:
            self.selected = names[_moved(names.index(selected), key, self.page, len(names))]

    def render(self, width: int, height: int) -> Layout:
        """Return the whole screen, with as many lines as the terminal."""
        inside = max(height - LINES_AROUND - bool(self.problem), 1)
        foot = "any key: back"
        if self.helps:
            parts: list[RenderableType] = [Text(line, no_wrap=True) for line in HELP.splitlines()[:inside]]
        elif self.opened is not None:
            foot, parts = TOPIC_FOOT, self._topic(self.opened, width, inside)
        else:
            parts = self._list(width, inside)
            foot = f"/{self.filter}{'▏' if self.typing else '   esc: all topics'}"
            if not self.typing and not self.filter:
                foot = FOOT
        style, screen = "yellow" if foot.startswith("/") else "dim", Layout()
        screen.split_column(
            Layout(self._head(width), size=2 + bool(self.problem)),
            Layout(Group(*parts)),
            Layout(Text(printable(foot), style, no_wrap=True, overflow="ellipsis"), size=1),
        )
        return screen

    def _list(self, width: int, height: int) -> list[RenderableType]:
        rows, selected = self.visible(), self._selected_row()
        groups: list[RenderableType] = []
        lags = [] if self.sample is None else _lags(self.sample.topics)[: height // 4]
        if lags and height >= 12:
            groups = [Text(""), _groups(lags, topics=True)]
            height -= len(lags) + 2
        clients = self.clients[: height // 4]
        if clients and height >= 12:
            groups += [Text(""), clients_of(clients, width=width)]
            height -= len(clients) + 2
        self.page = most = max(height - 2, 1)
        at = next((number for number, row in enumerate(rows) if row.topic == selected), 0)
        first = min(max(at - most + 1, 0), max(len(rows) - most, 0))
        shown = rows[first : first + most]
        left = len(rows) - len(shown)
        more = [Text(f"{left:,} more topics", style="dim")] if left else []
        return [table_of(shown, width=width, sorted_by=self.sorted_by, selected=selected), *more, *groups]

    def _topic(self, name: str, width: int, height: int) -> list[RenderableType]:
        """Return a topic: its partitions, and to their right its groups, writers and readers."""
        row = next((one for one in self.rows if one.topic == name), None)
        if row is None or self.sample is None:
            return [plain(f"{name} is deleted", "bad")]
        self.page = most = max(height - 4, 1)
        word = "partition" if row.partitions == 1 else "partitions"
        title = Text.assemble(
            (printable(name), "bold"),
            f"  {_number(row.partitions)} {word}  {_number(row.records)} records  {_bytes(row.log_bytes)}  ",
            (f"{_number(row.records_per_second)} records/s  {_bytes(row.bytes_per_second)}/s", "green"),
            no_wrap=True,
        )
        wide = width >= WIDE
        numbers = ("partition", *(("start",) if wide else ()), "end", "records", "records/s")
        partitions = _table(*numbers, words=("state",))
        partitions.columns[-1].max_width = 40 if wide else 10  # Leave room for the tables to the right.
        for one in self.partitions[self.first : self.first + most]:
            start = (one.start_offset,) if wide else ()
            counts = (one.number, *start, one.end_offset, one.end_offset - one.start_offset)
            style = "" if one.state == "online" else "bad"
            rate = self.rates.get(one.number)
            shown = Text(_number(rate), style=style or ("green" if rate else "dim"))
            partitions.add_row(*(f"{count:,}" for count in counts), shown, _word(one.state), style=style)
        beside: list[RenderableType] = [_groups(_lags({name: self.sample.topics[name]}), topics=False)]
        for title_of, programs in (("writers", row.writers), ("readers", row.readers)):
            beside += [Text(""), Text(title_of, style=HEADER), *(plain(one) for one in programs or ("-",))]
        grid = Table.grid(padding=(0, 3))
        grid.add_column(no_wrap=True)  # If space is short, names are cut before numbers.
        grid.add_column()
        left = len(self.partitions) - partitions.row_count
        more = Text(f"{left:,} more partitions" if left else "", style="dim")
        grid.add_row(Group(partitions, more), Group(*beside))
        return [title, Text(""), grid]

    def _head(self, width: int) -> Text:
        rate = sum(row.records_per_second or 0 for row in self.rows)
        offline = sum(row.offline for row in self.rows)
        notes, disks = (0, ()) if self.sample is None else (len(self.sample.notes), self.sample.disks)
        connections = None if self.sample is None else self.sample.connections
        head = Text.assemble(
            ("topicfs top", HEADER),
            f"  {len(self.rows):,} topic{'s' * (len(self.rows) != 1)}  {_number(rate)} records/s",
            (f"  {offline:,} offline" if offline else "", "bad"),
            "" if connections is None else f"  {connections:,} connection{'s' * (connections != 1)}",
            (f"  {notes:,} warning{'s' * (notes > 1)}" if notes else "", "yellow"),
            (f"  {printable(self.name)}", "bold"),
            *((f"  {_bytes(one.free_bytes)} of {_bytes(one.size_bytes)} free", "dim") for one in disks[:2]),
            no_wrap=True,
        )
        if self.problem:
            head.append(f"\n{printable(self.problem)}", style="bad")
        head.truncate(width * (2 if self.problem else 1), overflow="ellipsis")
        return head


def _moved(at: int, key: str, page: int, count: int) -> int:
    steps = {UP: -1, DOWN: 1, PAGE_UP: -page, PAGE_DOWN: page, HOME: -count, END: count}
    return max(min(at + steps[key], count - 1), 0)


def _table(*numbers: str, words: Sequence[str]) -> Table:
    """Return an empty table: number columns first, then word columns, which are cut if they do not fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style=HEADER)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    for (
        title
    ) in words:  # rich narrows wrapping columns before other columns; no_wrap in the cells prevents wrapping.
        table.add_column(title, overflow="ellipsis")
    return table


def _word(text: str) -> Text:
    found = plain(text)
    found.no_wrap = True
    return found


def _lags(topics: Mapping[str, TopicSample]) -> list[tuple[int, str, str]]:
    """Return (lag, group, topic) for each group, with the topic of its largest lag; largest first."""
    found: dict[str, dict[str, int]] = {}
    for name, topic in topics.items():
        for group, lag in topic.lags.items():
            found.setdefault(group, {})[name] = lag
    lags = [
        (sum(each.values()), group, max(each, key=each.__getitem__) if any(each.values()) else "-")
        for group, each in found.items()
    ]
    return sorted(lags, key=lambda one: (-one[0], one[1]))


def _groups(lags: Sequence[tuple[int, str, str]], *, topics: bool) -> Table:
    """Return groups as a table. If `topics`, the table also names the topic in which each group has its largest lag."""
    table = _table("lag", words=("group", "furthest behind in") if topics else ("group",))
    for lag, *words in lags or [(0, "-", "-")]:
        number = Text(_number(lag) if lags else "-", style="yellow" if lag else "dim")
        table.add_row(number, *map(_word, words if topics else words[:1]))
    return table


def clients_of(rows: Sequence[ClientRow], *, width: int) -> Table:
    """Return Kafka clients as a table. On a narrow terminal, it leaves out errors and connections."""
    wide = width >= WIDE
    more = ("errors/s", "connections") if wide else ()
    table = _table("requests/s", "in/s", "out/s", *more, words=("client", "software"))
    for row in rows:
        numbers = [
            _number(row.requests_per_second),
            _bytes(row.received_per_second),
            _bytes(row.sent_per_second),
            *((_number(row.errors_per_second), _number(row.connections)) if wide else ()),
        ]
        style = "green" if row.requests_per_second else "dim"
        shown = [Text(number, style=style) for number in numbers]
        if wide and row.errors_per_second:
            shown[3].style = "bad"
        table.add_row(*shown, _word(row.client or "-"), _word(row.software or "-"))
    return table


def table_of(
    rows: Sequence[TopRow], *, width: int, sorted_by: str = "", selected: str | None = None
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), width=width, expand=False, header_style=HEADER)
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
        style = "reverse" if row.topic == selected else "bad" if row.offline else ""
        cells = [plain(column.shown(row), "" if style else _style(row, column)) for column in columns]
        table.add_row(plain(row.topic, "bold"), *cells, style=style)
    return table


def _style(row: TopRow, column: TopColumn) -> str:
    """Return the color of a number: green for rates, yellow for lags."""
    if column.key in ("r", "b"):
        return "green" if row.records_per_second else "dim"
    return "yellow" if column.key == "l" and row.lag else ""
