"""The tables of a report: topics, the partitions of the topics with plots, groups, and compression."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeAlias

from topicfs.pipeline.report.numbers import GroupLag, PartitionNumbers
from topicfs.pipeline.report.page.formatting import moment, size, whole
from topicfs.pipeline.report.page.selection import TopicNumbers, combined

Cell: TypeAlias = str | tuple[str, float]
"""The text of a cell, or the text and the width of a bar behind it as a share of the cell (0 to 1)."""
MAX_TOPICS = 100
"""Maximum number of topics with a row of their own. In a larger table, one row stands for all other topics."""

_LAST = ("On disk", "Uncompressed", "Ratio", "First", "Last")


def topic_table(topics: Sequence[TopicNumbers]) -> str:
    """Return a table with a row per topic, the largest topic first, and a row with their sum."""
    named = topics if len(topics) <= MAX_TOPICS + 1 else topics[:MAX_TOPICS]
    others = topics[len(named) :]
    largest = max((topic.total.log_bytes for topic in topics), default=0)
    total = combined(topic.total for topic in topics)
    segments = total.segments > 0
    rows = [
        [topic.name, whole(len(topic.partitions)), *_cells(topic.total, largest, segments=segments)]
        for topic in named
    ]
    if others:
        of_others = sum(len(topic.partitions) for topic in others)
        rest = combined(topic.total for topic in others)
        rows.append([f"{len(others)} others", whole(of_others), *_cells(rest, 0, segments=segments)])
    partitions = sum(len(topic.partitions) for topic in topics)
    foot = ["All", whole(partitions), *_cells(total, 0, segments=segments)] if len(topics) > 1 else None
    heads = ("Topic", "Partitions", *_heads(segments=segments))
    return f'<h2 id="topics">Topics</h2>\n{_table(heads, rows, foot)}'


def partition_tables(topics: Sequence[TopicNumbers]) -> str:
    """Return a table of the partitions of each topic that has several partitions. The table is folded at first."""
    segments = any(topic.total.segments for topic in topics)
    rows = []
    for topic in topics:
        if len(topic.partitions) < 2:
            continue
        largest = max(one.log_bytes for one in topic.partitions)
        rows += [
            [f"{topic.name} {one.partition.partition}", *_cells(one, largest, segments=segments)]
            for one in topic.partitions
        ]
    if not rows:
        return ""
    table = _table(("Partition", *_heads(segments=segments)), rows)
    return f"<details><summary>Each partition of the topics that are drawn</summary>\n{table}\n</details>"


def group_table(topics: Sequence[TopicNumbers]) -> str:
    """Return a table with the lag of each group in each topic that it reads, sorted by name; empty without groups."""
    lags: dict[tuple[str, str], list[GroupLag]] = {}
    for topic in topics:
        for one in topic.partitions:
            for lag in one.groups:
                lags.setdefault((lag.group, topic.name), []).append(lag)
    if not lags:
        return ""
    rows = [
        [group, topic, whole(len(found)), whole(sum(one.lag for one in found))]
        for (group, topic), found in sorted(lags.items())
    ]
    return f'<h2 id="groups">Groups</h2>\n{_table(("Group", "Topic", "Partitions", "Lag"), rows)}'


def compression_table(topics: Sequence[TopicNumbers]) -> str:
    """Return a table with the compression ratio of each topic and codec; empty without batches."""
    found = [(topic.name, *one) for topic in topics for one in sorted(topic.total.codecs.items())]
    if not found:
        return ""
    ratios = [stored.uncompressed_bytes / stored.bytes for *_, stored in found]
    rows: list[list[Cell]] = []
    for (name, codec, stored), ratio in zip(found, ratios, strict=True):
        bar = f"{ratio:.2f}×", ratio / max(ratios)
        rows.append([name, codec, size(stored.uncompressed_bytes), size(stored.bytes), bar])
    text = "<p>Bytes that batches would take uncompressed, against those they take on disk.</p>"
    table = _table(("Topic", "Codec", "Uncompressed", "On disk", "Ratio"), rows)
    return f'<h2 id="compression">Compression</h2>\n{text}\n{table}'


def _heads(*, segments: bool) -> tuple[str, ...]:
    return ("Records", "Keys and values", *(("Segments",) if segments else ()), *_LAST)


def _cells(numbers: PartitionNumbers, largest: int, *, segments: bool) -> list[Cell]:
    """Return the cells under `_heads`. A full bar means `largest` bytes. If `largest` is 0, no bar is drawn."""
    stored = numbers.stored
    return [
        whole(numbers.records),
        size(numbers.keys.total + numbers.values.total),
        *((whole(numbers.segments),) if segments else ()),
        (size(numbers.log_bytes), numbers.log_bytes / largest if largest else 0),
        size(stored.uncompressed_bytes),
        f"{stored.uncompressed_bytes / stored.bytes:.2f}×" if stored.bytes else "none",
        moment(numbers.first_time),
        moment(numbers.last_time),
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], foot: Sequence[Cell] | None = None) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(_row(heads, row) for row in rows)
    last = f"<tfoot>{_row(heads, foot)}</tfoot>" if foot else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>{last}</table></div>'


def _row(heads: Sequence[str], cells: Sequence[Cell]) -> str:
    """Return a row. Each cell contains the head of its column, which a narrow screen shows next to the cell."""
    parts = [f'<th scope="row">{escape(str(cells[0]))}</th>']
    for name, cell in zip(heads[1:], cells[1:], strict=True):
        text, share = (cell, None) if isinstance(cell, str) else cell
        bar = "" if share is None else f' class="share" style="--share:{share:.1%}"'
        parts.append(f'<td data-head="{name}"{bar}>{escape(text)}</td>')
    return f"<tr>{''.join(parts)}</tr>\n"
