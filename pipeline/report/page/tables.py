"""The tables of a report: the topics, and the partitions of those that are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from topicfs.pipeline.report.numbers import GroupLag, PartitionNumbers
from topicfs.pipeline.report.page.formatting import moment, size, whole
from topicfs.pipeline.report.page.selection import TopicNumbers, combined

MAX_TOPICS = 100
"""Most rows of the table; the other topics share its last row."""

_COMMON = ("Records", "Keys and values")
_OF_FILES = ("Segments", "On disk", "Uncompressed", "Ratio")


def topic_table(topics: Sequence[TopicNumbers], *, from_files: bool) -> str:
    """Return a row a topic, the largest first, and their sum."""
    named = topics if len(topics) <= MAX_TOPICS + 1 else topics[:MAX_TOPICS]
    others = topics[len(named) :]
    largest = max((_weight(topic.total, from_files=from_files) for topic in topics), default=0)
    rows = [
        _row(escape(topic.name), len(topic.partitions), topic.total, largest, from_files=from_files)
        for topic in named
    ]
    partitions = sum(len(topic.partitions) for topic in topics)
    if others:
        of_others = sum(len(topic.partitions) for topic in others)
        rest = combined(topic.total for topic in others)
        rows.append(_row(f"{len(others)} others", of_others, rest, 0, from_files=from_files))
    total = combined(topic.total for topic in topics)
    foot = _row("All", partitions, total, 0, from_files=from_files) if len(topics) > 1 else ""
    return "\n".join(
        [
            '<h2 id="topics">Topics</h2>',
            _table("Topic", rows, foot, counted="Partitions", from_files=from_files),
        ]
    )


def partition_tables(topics: Sequence[TopicNumbers], *, from_files: bool) -> str:
    """Return the partitions of topics that have several, to be unfolded."""
    rows = []
    for topic in topics:
        if len(topic.partitions) < 2:
            continue
        largest = max(_weight(one, from_files=from_files) for one in topic.partitions)
        rows += [
            _row(f"{escape(topic.name)} {one.partition.partition}", None, one, largest, from_files=from_files)
            for one in topic.partitions
        ]
    if not rows:
        return ""
    table = _table("Partition", rows, "", counted=None, from_files=from_files)
    return f"<details><summary>Each partition of the topics that are drawn</summary>\n{table}\n</details>"


def group_table(topics: Sequence[TopicNumbers]) -> str:
    """Return a row for each group and topic that it reads, by name: how far it is behind; empty without groups."""
    lags: dict[tuple[str, str], list[GroupLag]] = {}
    for topic in topics:
        for one in topic.partitions:
            for lag in one.groups:
                lags.setdefault((lag.group, topic.name), []).append(lag)
    if not lags:
        return ""
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Group", "Topic", "Partitions", "Lag"))
    rows = [
        f'<tr><th scope="row">{escape(group)}</th>{_cell(escape(topic))}{_cell(whole(len(found)))}'
        f"{_cell(whole(sum(one.lag for one in found)))}</tr>\n"
        for (group, topic), found in sorted(lags.items())
    ]
    return (
        f'<h2 id="groups">Groups</h2>\n<div class="scroll"><table><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _weight(numbers: PartitionNumbers, *, from_files: bool) -> int:
    """Return the number that a row's bar shows."""
    return numbers.log_bytes if from_files else numbers.keys.total + numbers.values.total


def _table(what: str, rows: Sequence[str], foot: str, *, counted: str | None, from_files: bool) -> str:
    heads = [*([counted] if counted else []), *_COMMON, *(_OF_FILES if from_files else ()), "First", "Last"]
    head = f'<th scope="col">{what}</th>' + "".join(f'<th scope="col">{name}</th>' for name in heads)
    parts = [
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>',
        f"<tbody>{''.join(rows)}</tbody>",
        f"<tfoot>{foot}</tfoot></table></div>",
    ]
    return "\n".join(parts)


def _row(
    name: str, partitions: int | None, numbers: PartitionNumbers, largest: int, *, from_files: bool
) -> str:
    """Return a row; `largest` is what a full bar stands for; 0: none is drawn."""
    stored = numbers.stored
    cells = [] if partitions is None else [_cell(whole(partitions))]
    cells.append(_cell(whole(numbers.records)))
    payload = _cell(size(numbers.keys.total + numbers.values.total))
    share = _weight(numbers, from_files=from_files) / largest if largest else 0
    bar = (
        f'<td class="share" style="--share:{share:.1%}">{size(_weight(numbers, from_files=from_files))}</td>'
    )
    if from_files:
        ratio = f"{stored.uncompressed_bytes / stored.bytes:.2f}×" if stored.bytes else "none"
        cells += [payload, _cell(whole(numbers.segments)), bar]
        cells += [_cell(size(stored.uncompressed_bytes)), _cell(ratio)]
    else:
        cells.append(bar)
    cells += [_cell(moment(numbers.first_time)), _cell(moment(numbers.last_time))]
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>\n'


def _cell(text: str) -> str:
    return f"<td>{text}</td>"
