"""Tests of the screen of `topicfs top`: rates, order, filter, selection and layout."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from topicfs.terminal import THEME
from topicfs.top.samples import (
    ClientSample,
    DiskSample,
    PartitionSample,
    TopicSample,
    TopRow,
    TopSample,
    client_rows,
    rows_of,
)
from topicfs.top.screen import COLUMNS, TopScreen
from topicfs.top.terminal_keys import BACKSPACE, DOWN, END, ENTER, ESCAPE, HOME, PAGE_DOWN, PAGE_UP, UP


def topic(records: int = 0, **given: Any) -> TopicSample:
    found = {
        "partitions": 1,
        "records": records,
        "appended_records": records,
        "appended_bytes": 10 * records,
        "end_offsets": records,
    }
    return TopicSample(**(found | given))


def sample(at: float, **topics: TopicSample) -> TopSample:
    return TopSample(at=at, topics=topics, disks=[DiskSample(path="/d", free_bytes=10**9, size_bytes=10**10)])


def screen(*rows: TopRow, **given: Any) -> TopScreen:
    found = TopScreen("mnt", **given)
    found.show(sample(0), list(rows))
    return found


def row(name: str, **given: Any) -> TopRow:
    (found,) = rows_of(TopSample(at=1, topics={name: topic(**given)}), None)
    return found


def names(found: TopScreen) -> list[str]:
    return [one.topic for one in found.visible()]


def printed(found: TopScreen, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), theme=THEME)
    console.print(found.render(width, height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_rates_are_those_between_two_samples():
    """A rate is computed from the number of appended records, so that retention does not lower it."""
    before = sample(10, orders=topic(100))
    (found,) = rows_of(sample(12, orders=topic(50, appended_records=140, appended_bytes=1400)), before)
    assert (20, 200, 50) == (found.records_per_second, found.bytes_per_second, found.records)


def test_without_two_samples_there_is_no_rate():
    """With a single sample, or with no time between two samples, there is no rate."""
    now = sample(10, orders=topic(5), remote=topic(5, appended_bytes=None))
    assert {None} == {one.records_per_second for one in rows_of(now, None)}
    assert {None} == {one.records_per_second for one in rows_of(now, now)}
    assert [0, None] == [one.bytes_per_second for one in rows_of(now, sample(9, **now.topics))]


def test_a_topic_that_is_new_or_made_again_has_a_rate_of_its_own():
    """All records of a new topic count for its rate. A topic that was recreated has the rate 0 at first."""
    found = rows_of(sample(2, again=topic(1), new=topic(8)), sample(0, again=topic(100), gone=topic(7)))
    assert [("again", 0), ("new", 4)] == [(one.topic, one.records_per_second) for one in found]


def test_the_group_that_is_furthest_behind_is_shown():
    """The row of a topic shows the group with the largest lag."""
    now = sample(1, a=topic(lags={"x": 5, "y": 9}), b=topic())
    assert [(9, "y"), (None, "")] == [(one.lag, one.group) for one in rows_of(now, None)]


def test_keys_sort_and_equals_are_by_name():
    """A key sorts the rows by its column, with the largest value first. Rows with equal values are sorted by name.

    Names themselves are sorted in ascending order.
    """
    rows = [row("b", records=5), row("a", records=5), row("c", records=9, lags={"g": 1})]
    for key, expected in {"n": "abc", "e": "cab", "l": "cab", "r": "abc", "x": "abc"}.items():
        found = screen(*rows)
        found.press(key)
        assert list(expected) == names(found), key


def test_every_column_that_has_a_key_sorts():
    """Each column that has a key sorts the rows; unknown numbers come after zeros."""
    keys = [column.key for column in COLUMNS if column.key]
    assert len(keys) == len(set(keys))
    for key in keys:
        found = screen(row("a", end_offsets=None, log_bytes=None), row("b"))
        found.press(key)
        assert (["b", "a"] if key == "e" else ["a", "b"]) == names(found)


def test_the_filter_is_part_of_a_name():
    """The filter matches a part of a name. While it is typed, letters are not commands. Escape removes the filter."""
    found = screen(*(row(name) for name in ("Orders", "clicks", "reorders")))
    for key in ("/", "q", BACKSPACE, "o", "r", "d"):
        found.press(key)
    assert ["Orders", "reorders"] == names(found)
    found.press(ENTER)
    found.press(ESCAPE)
    assert (3, False) == (len(names(found)), found.ended)


def selected(found: TopScreen) -> str | None:
    """Return the name of the topic that the enter key opens."""
    found.press(ENTER)
    opened, found.opened = found.opened, None
    return opened


def test_the_selection_stays_on_its_topic():
    """The selection stays on its topic when the order changes, and stops at the first and the last topic."""
    found = screen(*(row(name) for name in "abc"), sorted_by="n")
    assert "a" == selected(found)
    for key, expected in ((DOWN, "b"), (DOWN, "c"), (DOWN, "c"), (UP, "b")):
        found.press(key)
        assert expected == selected(found)
    found.show(sample(1), [row("b"), row("d"), row("a")])
    assert "b" == selected(found)
    found.show(sample(2), [row("d")])
    assert "d" == selected(found)
    found.show(sample(3), [])
    assert selected(found) is None


def test_pages_and_ends():
    """A page key moves by the number of visible rows; Home and End select the first and the last topic."""
    found = screen(*(row(f"{number:03}") for number in range(100)), sorted_by="n")
    printed(found)
    moves = (
        (PAGE_DOWN, found.page),
        (PAGE_DOWN, 2 * found.page),
        (PAGE_UP, found.page),
        (END, 99),
        (HOME, 0),
    )
    for key, expected in (*moves, (PAGE_UP, 0)):
        found.press(key)
        assert f"{expected:03}" == selected(found)
        assert any(line.startswith(f"{expected:03}") for line in printed(found))


def test_groups_are_below_the_topics():
    """Groups are listed below the topics, largest lag first, even in 80 columns and 24 lines."""
    lags = {"orders": {"billing": 4, "audit": 0}, "clicks": {"billing": 1234}}
    topics = {name: topic(lags=of) for name, of in lags.items()}
    found = TopScreen("mnt")
    found.show(sample(0, **topics), rows_of(sample(0, **topics), None))
    lines = [line.split() for line in printed(found)]
    at = lines.index(["lag", "group", "furthest", "behind", "in"])
    assert [["1,238", "billing", "clicks"], ["0", "audit", "-"]] == lines[at + 1 : at + 3]


def client(name: str, requests: int, **given: Any) -> ClientSample:
    found = {"software": "librdkafka", "connections": 1, "errors": 0, "received_bytes": 0, "sent_bytes": 0}
    return ClientSample(client=name, requests=requests, **(found | given))


def test_kafka_clients_are_below_the_groups():
    """The busiest clients with open connections are listed with their rates, even in 80 columns and 24 lines."""
    lags = {"orders": topic(lags={"billing": 4})}
    before = replace(sample(0, **lags), clients=[client("kcat", 10), client("gone", 5)], connections=2)
    clients = [
        client("kcat", 20, sent_bytes=4000),
        client("new", 2, errors=2),
        client("gone", 5, connections=0),
    ]
    now = replace(sample(2, **lags), clients=clients, connections=2)
    found = TopScreen("mnt")
    found.show(now, rows_of(now, before), client_rows(now, before))
    lines = printed(found)
    assert "2 connections" in lines[0]
    words = [line.split() for line in lines]
    at = words.index(["requests/s", "in/s", "out/s", "client", "software"])
    assert [
        ["5", "0", "B", "2.0", "kB", "kcat", "librdkafka"],
        ["1", "0", "B", "0", "B", "new", "librdkafka"],
    ] == words[at + 1 : at + 3]
    assert words.index(["lag", "group", "furthest", "behind", "in"]) < at
    wide = [line.split() for line in printed(found, 200, 50)]
    assert ["1", "0", "B", "0", "B", "1", "1", "new", "librdkafka"] in wide


def opened(partitions: int = 3, **given: Any) -> TopScreen:
    now = sample(0, orders=topic(**given))
    found = TopScreen("mnt")
    found.show(now, rows_of(now, None))
    found.press(ENTER)
    found.show_partitions(looked_at(partitions), 0)
    return found


def looked_at(partitions: int, more: int = 0) -> list[PartitionSample]:
    return [
        PartitionSample(
            number=number, start_offset=10, end_offset=1010 + number + more * number, state="online"
        )
        for number in range(partitions)
    ]


def test_a_topic_opens_to_its_partitions_groups_writers_and_readers():
    """An open topic shows partitions, groups, writers and readers. Escape goes back."""
    found = opened(lags={"billing": 7}, writers=("nginx (99)",), readers=("tail (12)", "cat (13)"))
    text = "\n".join(printed(found))
    for words in (
        r"2 +1,012 +1,002 +- +online",
        "7 +billing",
        "nginx [(]99[)]",
        "tail [(]12[)]",
        "cat [(]13[)]",
    ):
        assert re.search(words, text), words
    found.press(ESCAPE)
    assert (None, False) == (found.opened, found.ended)


def test_a_partition_shows_how_fast_it_grows():
    """The rate of a partition requires two samples of this partition."""
    found = opened()
    found.show_partitions(looked_at(4, more=7), 2)
    assert {0: 0, 1: 3.5, 2: 7, 3: None} == found.rates
    assert any(re.search(r"^ +1 +1,018 +1,008 +3.5 +online", line) for line in printed(found))
    for key in (ESCAPE, ENTER):
        found.press(key)
    found.show_partitions(looked_at(2, more=9), 3)
    assert {0: None, 1: None} == found.rates


def test_numbers_of_an_open_topic_are_whole_in_80_columns():
    """In 80 columns the numbers of an open topic are shown completely; names of groups and reasons are cut."""
    found = opened(lags={"a group with a name as long as this one": 12_000_000}, readers=("python3 (900)",))
    found.show_partitions(
        [PartitionSample(number=9999, start_offset=0, end_offset=9_000_000_000, state="offline: I/O error")],
        1,
    )
    text = "\n".join(printed(found))
    assert re.search(r"9,999 +9,000,000,000 +9,000,000,000 +- +offline", text), text
    assert re.search(r"12,000,000 +a", text), text
    assert "start" in "\n".join(printed(found, width=200))


def test_many_partitions_of_a_topic_are_moved_through():
    """Page keys scroll through many partitions, up to the last page."""
    found = opened(partitions=500)
    assert "0" == printed(found)[5].split()[0]
    found.press(PAGE_DOWN)
    assert str(found.page) == printed(found)[5].split()[0]
    for _ in range(2):
        found.press(END)
        assert any(line.startswith("      499") for line in printed(found))
    found.press(HOME)
    assert "0" == printed(found)[5].split()[0]


def test_a_topic_that_is_deleted_while_it_is_open_is_said_to_be():
    """If the open topic is deleted, the screen shows that."""
    found = opened()
    found.show(sample(1), [])
    assert any("orders is deleted" in line for line in printed(found))


def test_the_help_names_every_key_that_sorts():
    """The help shows each key that sorts, until any key is pressed."""
    found = screen(row("a"))
    found.press("?")
    keys = {word for line in printed(found) if "sort by" in line for word in line.split("sort by")[0].split()}
    assert {"n", *(column.key for column in COLUMNS if column.key)} == keys
    found.press("x")
    assert any(line.startswith("a ") for line in printed(found))


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (80, 24), (120, 30), (200, 50)])
def test_the_screen_fits_the_terminal(width: int, height: int):
    """The screen fits into the terminal even with many topics and long names, and the selection is visible."""
    found = screen(*(row(f"{number:05}{'x' * 240}", records=10**12) for number in range(200)), sorted_by="n")
    now = replace(sample(1), clients=[client(f"{number}{'y' * 300}", number) for number in range(100)])
    found.clients = client_rows(now, now)
    for _ in range(150):
        found.press(DOWN)
    lines = printed(found, width, height)
    assert height == len(lines)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("00150"[: max(width // 20, 3)]) for line in lines)


def test_hostile_names_are_text():
    """Markup and control characters in names are escaped."""
    found = screen(row("[bold]a\x1b[2J\n"), sorted_by="n")
    found.problem = "broken\x1b[2J"
    text = "\n".join(printed(found))
    assert "[bold]a" in text
    assert "\x1b[2J" not in text


def test_an_error_is_shown_with_the_last_rows():
    """An error is shown together with the last rows, until the next successful sample."""
    found = screen(row("orders"))
    found.problem = "nobody answers"
    assert any("nobody answers" in line for line in printed(found))
    assert any("orders" in line for line in printed(found))
    found.show(sample(1), [row("orders")])
    assert not any("nobody answers" in line for line in printed(found))
