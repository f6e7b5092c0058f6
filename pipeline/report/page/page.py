"""The page of a report, made from the numbers of all partitions: one HTML file that needs no other files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from topicfs.pipeline.report.numbers import PartitionNumbers
from topicfs.pipeline.report.page.formatting import moment, plural, short, size, whole
from topicfs.pipeline.report.page.sections import lag, over_time, sizes
from topicfs.pipeline.report.page.selection import PageTopics, TopicNumbers, choose, combined
from topicfs.pipeline.report.page.style import STYLE
from topicfs.pipeline.report.page.tables import compression_table, group_table, partition_tables, topic_table


def page(numbers: Iterable[PartitionNumbers], *, place: str, now_ms: int | None, top: int) -> str:
    """Return the page as HTML; equal arguments give equal pages.

    If `now_ms` is None, the page shows no time of creation. `top` is the number of topics with plots of their own.
    """
    choice = choose(numbers, top=top)
    everything = [*choice.shown, *choice.others]
    total = combined(one for topic in everything for one in topic.partitions)
    title = f"Topics of {escape(place)}"
    sections = [
        _head(everything, total, title=title, now_ms=now_ms, top=top),
        topic_table(everything),
        partition_tables(choice.shown),
        group_table(everything),
        *_plots(choice),
        _foot(total),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style></head>",
            "<body>",
            *(section for section in sections if section),
            "</body></html>",
            "",
        ]
    )


def _plots(choice: PageTopics) -> Iterator[str]:
    drawn = list(choice.shown)
    if choice.others:
        partitions = [one for topic in choice.others for one in topic.partitions]
        summed = combined(partitions)
        drawn.append(TopicNumbers(f"{len(choice.others)} other topics", (summed,), summed))
    if not any(topic.total.records for topic in drawn):
        return
    yield over_time(drawn)
    yield sizes(drawn)
    yield lag(drawn)
    yield compression_table(drawn)


def _head(
    topics: Sequence[TopicNumbers], total: PartitionNumbers, *, title: str, now_ms: int | None, top: int
) -> str:
    now = "" if now_ms is None else f"As of {moment(now_ms)}. "
    stored = total.stored
    tiles = [
        ("Topics", whole(len(topics))),
        ("Partitions", whole(sum(len(topic.partitions) for topic in topics))),
        ("Records", short(total.records)),
        ("On disk", size(total.log_bytes)),
        ("Uncompressed", size(stored.uncompressed_bytes)),
        ("Compression", f"{stored.uncompressed_bytes / stored.bytes:.1f}×" if stored.bytes else "none"),
    ]
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return "\n".join(
        [
            f"<header><h1>{title}</h1>",
            f'<p class="quiet">{now}{_span(total)}</p></header>',
            *_warnings(total),
            f'<dl class="tiles">{cells}</dl>',
            _selection(len(topics), top),
        ]
    )


def _span(total: PartitionNumbers) -> str:
    if total.first_time is None:
        return "No record here has a time."
    return f"Records from {moment(total.first_time)} to {moment(total.last_time)}, all times in UTC."


def _warnings(total: PartitionNumbers) -> Iterator[str]:
    if total.damaged_batches:
        found = plural(total.damaged_batches, "damaged batch").replace("batchs", "batches")
        yield (
            f'<p class="warning"><strong>{found}</strong> left out of everything below: '
            "<code>topicfs pipeline verify</code> says where.</p>"
        )
    if total.changed_segments:
        found = plural(total.changed_segments, "segment")
        yield (
            f'<p class="warning"><strong>{found}</strong> removed or rewritten while this page was made, '
            "and left out of it.</p>"
        )


def _selection(topics: int, top: int) -> str:
    if topics <= top + 1:
        return ""
    others = topics - top
    return (
        f'<p class="quiet" style="margin-top:1rem">Plots show the {top} topics with the most bytes on disk, '
        f"and the other {others} as one; tables and totals have all.</p>"
    )


def _foot(total: PartitionNumbers) -> str:
    counted = [
        "Records are those that a consumer is shown, up to the high watermark; control records are not counted.",
        "Bytes over time are those of keys and values, before compression.",
        "On disk are the batches of one replica, without their indexes; uncompressed is what these would take there.",
    ]
    if not total.segments:
        counted.append("Clients of a cluster cannot see its segments, or when they were last appended to.")
    return f'<h2>How this was counted</h2><p class="quiet">{" ".join(counted)}</p>'
