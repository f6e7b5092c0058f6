"""The sections of a report with plots. Each section has a heading, a description, and a panel per topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape

from topicfs.pipeline.report.histograms import SizeHistogram
from topicfs.pipeline.report.page import plots
from topicfs.pipeline.report.page.formatting import duration, each, moment, plural, short, size
from topicfs.pipeline.report.page.plots import SHADES, SMALL, WIDE, described
from topicfs.pipeline.report.page.selection import Series, TopicNumbers, series_of, time_axis

_LAG_LINES = 30
"""Maximum number of topics in the plot of segments' lags, which has a line per topic."""


def over_time(topics: Sequence[TopicNumbers]) -> str:
    axis = time_axis(topics)
    if axis is None:
        return "<h2>Over time</h2><p>No record here has a time.</p>"
    drawn = [(topic, series_of(topic)) for topic in topics if topic.total.records]
    width = each(axis.width_ms)
    stacked = ", stacked by partition" if any(len(series) > 1 for _, series in drawn) else ""
    shared = " All panels share the time axis (UTC); each has a scale of its own." if len(drawn) > 1 else ""
    left_out = (
        f" {plural(axis.left_out, 'record')} with times outside of it {'is' if axis.left_out == 1 else 'are'} not drawn."
        if axis.left_out
        else ""
    )
    parts = []
    for name, title, in_bytes in (("records", "Records", False), ("bytes", "Bytes", True)):
        panels = []
        for number, (topic, series) in enumerate(drawn):
            amounts = [axis.amounts(one.numbers.times) for one in series]
            columns = [[amount.bytes if in_bytes else amount.records for amount in one] for one in amounts]
            draw = partial(plots.over_time, axis, columns, in_bytes=in_bytes)
            say = size if in_bytes else short
            sums = [sum(bucket) for bucket in zip(*columns, strict=True)]
            most = max(sums)
            when = moment(axis.start_ms + sums.index(most) * axis.width_ms)
            total = say(sum(sums))
            caption = f"{total} in all; at most {say(most)} per {width}" if most else "nothing on this axis"
            text = f"{title} over time of {topic.name}: {caption}, from {when}."
            panels.append(_figure(topic.name, caption, _drawn(draw, f"{name}-{number}", text, of=drawn)))
        what = "Bytes of keys and values" if in_bytes else "Records"
        parts += [
            f'<h2 id="{name}">{title} over time</h2>',
            f"<p>{what} per {width}{stacked}.{shared}{left_out}</p>",
            _partition_legend([series for _, series in drawn]),
            _grid(panels),
        ]
    return "\n".join(parts)


def sizes(topics: Sequence[TopicNumbers]) -> str:
    drawn = [topic for topic in topics if topic.total.keys.count + topic.total.values.count]
    bounds = _bounds(histogram for topic in drawn for histogram in (topic.total.keys, topic.total.values))
    if bounds is None:
        return ""
    panels = []
    for number, topic in enumerate(drawn):
        total = topic.total
        captions = [
            f"values {_sizes_in_words(total.values, total.null_values)}",
            f"keys {_sizes_in_words(total.keys, total.null_keys)}",
        ]
        draw = partial(plots.sizes, total.keys, total.values, bounds)
        text = f"Sizes of keys and values of {topic.name}: {'; '.join(captions)}."
        drawing = _drawn(draw, f"sizes-{number}", text, of=drawn)
        panels.append(_figure(topic.name, "<br>".join(captions), drawing))
    return "\n".join(
        [
            '<h2 id="sizes">Sizes of keys and values</h2>',
            (
                "<p>How many keys and values have which size in bytes. The area of an outline stands for all of them. "
                "Each step of the axis doubles the size. Medians and percentiles are at most a quarter too large or "
                "too small.</p>"
            ),
            _legend([("--values", "values"), ("--keys", "keys")]),
            _grid(panels),
        ]
    )


def lag(topics: Sequence[TopicNumbers]) -> str:
    """Draw the lags of records: exact if the broker stamped them, otherwise estimated from the files' mtimes."""
    exact = [topic for topic in topics if topic.total.lags.count]
    roughly = [topic for topic in topics if topic.total.segment_lags]
    if not exact and not roughly:
        return ""
    parts = ['<h2 id="lag">Lag from record time to append time</h2>']
    if exact:
        parts += _exact_lags(exact)
    if roughly:
        parts += _segment_lags(roughly)
    return "\n".join(parts)


def _exact_lags(topics: Sequence[TopicNumbers]) -> list[str]:
    bounds = _bounds(topic.total.lags for topic in topics)
    assert bounds is not None
    panels = []
    for number, topic in enumerate(topics):
        found, early = topic.total.lags, topic.total.early_records
        half, most = found.quantile(0.5), found.quantile(0.99)
        assert half is not None
        assert most is not None
        caption = f"median {duration(half)}, 99 % ≤ {duration(most)}, largest {duration(found.largest)}"
        if early:
            caption += f"; {plural(early, 'record')} from clocks that were ahead"
        text = f"Lag of the records of {topic.name}: {caption}."
        drawing = _drawn(partial(plots.lags, found, bounds), f"lag-{number}", text, of=topics)
        panels.append(_figure(topic.name, caption, drawing))
    names = "This topic has" if len(topics) == 1 else "These topics have"
    return [
        "<h3>Exact, record by record: LogAppendTime</h3>",
        (
            f"<p>{names} the broker's append time in each batch, and the producers' times as well: the plot shows "
            "how many records have which lag. The area of an outline stands for all of a topic's records.</p>"
        ),
        _grid(panels),
    ]


def _segment_lags(topics: Sequence[TopicNumbers]) -> list[str]:
    shown = topics[:_LAG_LINES]
    lines = [(topic.name, topic.total.segment_lags) for topic in shown]
    lags = [lag_ms for _, found in lines for lag_ms in found]
    text = f"Lag of the last append of each segment, a line a topic: from {duration(min(lags))} to {duration(max(lags))}."
    ahead = sum(lag_ms < 0 for lag_ms in lags)
    ahead_text = (
        f" {plural(ahead, 'segment')} whose records are ahead of its mtime at the left edge." if ahead else ""
    )
    left_out = f" The {_LAG_LINES} largest topics are shown." if len(topics) > len(shown) else ""
    drawing = _drawn(partial(plots.segment_lags, lines), "segment-lags", text)
    return [
        "<h3>Roughly, segment by segment: CreateTime</h3>",
        (
            "<p>If producers set the record times, only the time of a segment's last append is known: its file's mtime. Each "
            "dot is that time minus the segment's largest record time. Copying "
            "files without their mtimes makes these lags meaningless."
            f"{ahead_text}{left_out}</p>"
        ),
        f'<figure class="wide">{drawing}</figure>',
    ]


def _sizes_in_words(found: SizeHistogram, nulls: int) -> str:
    if not found.count:
        return "all null" if nulls else "none"
    half, most = found.quantile(0.5), found.quantile(0.99)
    assert half is not None
    assert most is not None
    text = f"median {size(half)}, 99 % ≤ {size(most)}, largest {size(found.largest)}"
    return f"{text}, {plural(nulls, 'null')}" if nulls else text


def _bounds(histograms: Iterable[SizeHistogram]) -> tuple[int, int] | None:
    """Return the first and the last bin that any of the histograms uses; None if all are empty."""
    numbers = [number for histogram in histograms for number in histogram.bins]
    return (min(numbers), max(numbers)) if numbers else None


def _drawn(draw: Callable[..., str], name: str, text: str, *, of: Sequence[object] = ("one",)) -> str:
    """Return the drawing of one of the panels `of`. If `of` has only one, return a broad and a narrow drawing."""
    if len(of) > 1:
        return described(draw(panel=SMALL, name=name), text)
    broad, narrow = draw(panel=WIDE, name=name), draw(panel=SMALL, name=f"{name}-narrow")
    return described(broad, text, "broad") + described(narrow, text, "narrow")


def _grid(panels: Sequence[str]) -> str:
    """Arrange panels side by side; a single panel has the whole width."""
    style = ' style="grid-template-columns:1fr"' if len(panels) == 1 else ""
    return f'<div class="grid"{style}>\n{"".join(panels)}</div>'


def _figure(title: str, caption: str, svg: str) -> str:
    return (
        f'<figure class="panel"><figcaption><h3>{escape(title)}</h3>{caption}</figcaption>\n{svg}</figure>\n'
    )


def _partition_legend(all_series: Sequence[Sequence[Series]]) -> str:
    """Return a legend with a shade for each partition; empty if no topic has several partitions.

    The legend has as many entries as the topic with the most partitions.
    """
    longest = max((len(series) for series in all_series), default=0)
    if longest < 2:
        return ""
    entries = [(plots.NAMES[SHADES[number]], f"partition {number}") for number in range(longest)]
    if any(series[-1].label.endswith("others") for series in all_series):
        entries = [(variable, f"{_ORDINALS[number]} shown") for number, (variable, _) in enumerate(entries)]
        entries[-1] = (entries[-1][0], "last shown, or all others")
    return _legend(entries)


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><i style="background:var({variable})"></i>{escape(text)}</li>' for variable, text in entries
    )
    return f'<ul class="legend">{items}</ul>'
