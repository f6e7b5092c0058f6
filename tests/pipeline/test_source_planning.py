"""Tests of the arithmetic of planning: ranges to tasks, limits of triggers, bounds to offsets, and filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicfs.pipeline.errors import DataLossError, InvalidOptionError, PipelineError
from topicfs.pipeline.source.query.bounds import clamp, in_order, offsets_at, select, within
from topicfs.pipeline.source.query.narrowing import EVERYTHING, at_least, below, one_of
from topicfs.pipeline.source.query.offsets import AtOffsets, AtTimestamp, AtTimestamps, Everywhere
from topicfs.pipeline.source.query.options import Selection
from topicfs.pipeline.source.query.ranges import (
    OffsetRange,
    count_new,
    lag,
    lag_by_partition,
    limit_offsets,
    must_wait,
    split_ranges,
)
from topicfs.storage.errors import UnknownTopicError
from topicfs.storage.model import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def ranges(*sizes):
    return [OffsetRange(TopicPartition("orders", number), 0, size) for number, size in enumerate(sizes)]


def sizes_of(found):
    return [one.size for one in found]


def test_by_default_each_partition_is_one_task():
    """By default there is one task per partition, and none for an empty range."""
    assert [10, 5] == sizes_of(split_ranges(ranges(10, 0, 5), min_partitions=None, max_records=None))


@pytest.mark.parametrize(
    ("sizes", "least", "expected"),
    [
        ((100,), 3, [33, 33, 34]),
        ((100, 100), 4, [50, 50, 50, 50]),
        ((100, 1), 3, [50, 50, 1]),
        ((38,), 4, [9, 9, 10, 10]),
        ((125, 75), 4, [41, 42, 42, 37, 38]),
        ((1, 1), 10, [1, 1]),
        ((10, 10, 10), 2, [10, 10, 10]),
    ],
)
def test_the_larger_ranges_are_split_in_proportion(sizes, least, expected):
    """minPartitions splits the larger ranges in proportion to their size, and leaves small ranges whole."""
    assert expected == sizes_of(split_ranges(ranges(*sizes), min_partitions=least, max_records=None))


def test_no_task_has_more_records_than_allowed():
    """maxRecordsPerPartition limits every task, and is applied before minPartitions."""
    assert [3, 3, 4, 2] == sizes_of(split_ranges(ranges(10, 2), min_partitions=None, max_records=4))
    assert 6 <= len(split_ranges(ranges(10, 2), min_partitions=6, max_records=4))


@given(
    st.lists(st.integers(0, 1000), max_size=6),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 50),
)
def test_splitting_loses_and_doubles_nothing(sizes, least, most):
    """The parts of a partition are adjacent, never empty, and together the whole range."""
    found = split_ranges(ranges(*sizes), min_partitions=least, max_records=most)
    for whole in ranges(*sizes):
        parts = [one for one in found if one.partition == whole.partition]
        assert all(one.size > 0 for one in parts)
        cuts = [0, *(one.end_offset for one in parts)]
        assert cuts[:-1] == [one.start_offset for one in parts]
        assert whole.size == cuts[-1]


def test_a_trigger_takes_from_each_partition_its_share():
    """maxOffsetsPerTrigger is divided in proportion to new offsets. A partition with new offsets gets at least one."""
    start, end = {A: 0, B: 100, C: 5}, {A: 90, B: 110, C: 5}
    assert {A: 45, B: 105, C: 5} == limit_offsets(start, end, 50)
    assert {A: 1, B: 101, C: 5} == limit_offsets(start, end, 1)
    assert end == limit_offsets(start, end, 100)
    assert 100 == count_new(start, end)


@given(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 500), min_size=1), st.integers(1, 100))
def test_limited_triggers_come_to_the_end(end, limit):
    """Limited triggers reach the end, and no trigger goes beyond it."""
    at = dict.fromkeys(end, 0)
    for _ in range(sum(end.values()) + 1):
        after = limit_offsets(at, end, limit)
        assert all(at[one] <= after[one] <= end[one] for one in end)
        if after == at:
            break
        at = after
    assert end == at


def test_waiting_for_more():
    """A trigger waits for minOffsetsPerTrigger, but at most for maxTriggerDelay."""
    waits = [
        must_wait(new_offsets=new, min_offsets=least, waited_ms=waited, max_delay_ms=1000)
        for new, least, waited in [(5, None, 0), (5, 10, 0), (10, 10, 0), (5, 10, 1000)]
    ]
    assert [False, True, False, False] == waits


def test_lag():
    """The lag is reported by partition; if the query has not yet read a partition, all its records count as lag."""
    assert {A: 4, B: 7} == lag({A: 6}, {A: 10, B: 7})


def test_lag_from_a_querys_progress():
    """The lag is read from Spark's progress. Other sources, and queries before their first batch, have no lag."""
    ours = {
        "description": "org.apache.spark.sql.PythonMicroBatchStream@1",
        "endOffset": {"orders": {"0": 6}},
        "latestOffset": '{"orders": {"0": 10, "1": 7}}',
    }
    theirs = {"description": "RateStream", "endOffset": 5, "latestOffset": 9}
    before = ours | {"endOffset": None, "latestOffset": None}
    strange = ours | {"endOffset": 5, "latestOffset": {"a": 1}}
    assert {A: 4, B: 7} == lag_by_partition({"sources": [theirs, ours]})
    assert {} == lag_by_partition({"sources": [before, strange]})


class Ends:
    """Partitions with offsets 10 to 20, and a record per second from 1000 on."""

    def earliest(self, _):
        return 10

    def latest(self, _):
        return 20

    def at_time(self, _, timestamp):
        offset = max(10, 10 + -(-(timestamp - 1000) // 1000))
        return offset if offset < 20 else None


def starts_at(bound, *partitions, latest_after_last_record=False):
    """Return the offsets at which a read of `partitions` starts."""
    return offsets_at(
        bound,
        partitions,
        Ends(),
        option="startingOffsets",
        latest_after_last_record=latest_after_last_record,
    )


def test_ends_become_offsets():
    """Bounds (-2, -1, offsets and times) become offsets. An ending time after the last record means latest."""
    assert {A: 10, B: 13} == starts_at(AtOffsets({A: -2, B: 13}), A, B)
    assert {A: 10} == starts_at(AtTimestamp(-2), A)
    assert {A: 20} == starts_at(AtTimestamp(-1), A)
    assert {A: 12, B: 10} == starts_at(AtTimestamps({A: 3000, B: -2}), A, B)
    assert {A: 20} == offsets_at(AtTimestamp(10**9), [A], Ends(), option="endingOffsets")
    assert {A: 20} == offsets_at(Everywhere(-1), [A], Ends(), option="endingOffsets")
    assert {A: 20} == starts_at(AtTimestamp(10**9), A, latest_after_last_record=True)


def test_beginning_after_the_last_record_is_an_error():
    """A starting time after the last record raises an error, unless the strategy is latest."""
    with pytest.raises(PipelineError, match="startingOffsetsByTimestampStrategy=latest"):
        starts_at(AtTimestamp(10**9), A)


@pytest.mark.parametrize("named", [{A: 0}, {A: 0, B: 0, C: 0}])
def test_offsets_name_exactly_what_is_read(named):
    """Offsets must be given for exactly the partitions that are read."""
    with pytest.raises(InvalidOptionError, match="must name exactly the partitions"):
        starts_at(AtOffsets(named), A, B)


def test_choosing_partitions(caplog):
    """Partitions are chosen by name, pattern or number. Named topics must exist; assigned partitions need not."""
    other = TopicPartition("orders-old", 0)
    present = [A, B, other]
    assert [A, B] == select(Selection(topics=("orders",)), present)
    assert [B] == select(Selection(assigned=frozenset({B})), present)
    assert [A] == select(Selection(assigned=frozenset({A, C})), present)
    assert "assign: skipped partitions that do not exist: orders-2" in caplog.text
    for named in (
        Selection(topics=("orders", "payments")),
        Selection(assigned=frozenset({A, TopicPartition("payments", 0)})),
    ):
        with pytest.raises(UnknownTopicError, match="payments: no such topic"):
            select(named, present)
    assert [] == select(Selection(topics=("payments",)), present, must_exist=False)
    assert [] == select(Selection(assigned=frozenset()), present)


def test_a_pattern_finds_parts_of_names():
    """A pattern matches any part of a name, as in the connector, but matches none of Kafka's internal topics."""
    other, own = TopicPartition("orders-old", 0), TopicPartition("__consumer_offsets", 0)
    present = [A, B, other, own]
    assert [A, B, other] == select(Selection(pattern="rder"), present)
    assert [A, B] == select(Selection(pattern="^ord.rs$"), present)
    assert [A, B, other] == select(Selection(pattern=".*"), present)
    assert [own] == select(Selection(topics=("__consumer_offsets",)), present)


def test_a_range_that_ends_before_it_begins():
    """A range that ends before it begins raises an error, even with failOnDataLoss=false."""
    assert OffsetRange(A, 5, 5) == in_order(A, 5, 5)
    with pytest.raises(PipelineError, match="orders-0: the range would begin at 6, after its end, 5"):
        in_order(A, 6, 5)


def test_an_empty_range_at_the_end_is_not_lost():
    """An empty range at the end of a log does not count as lost records."""
    assert (20, 20) == within(A, 20, 20, earliest=10, latest=20)
    assert (10, 20) == within(A, 10, 20, earliest=10, latest=20)


@pytest.mark.parametrize(("start", "end"), [(5, 15), (21, 22), (15, 30)])
def test_ranges_that_are_not_there(start, end):
    """A range outside of the log raises an error by default. failOnDataLoss=false cuts the range to the log."""
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        within(A, start, end, earliest=10, latest=20)
    low, high = clamp(start, end, earliest=10, latest=20)
    assert 10 <= low <= high <= 20


def test_filters_narrow():
    """All filters apply together. Spark filters out the additional records that a narrowed range admits."""
    found = below(at_least(EVERYTHING, "offset", 5), "offset", 9)
    assert (5, 9) == (found.start_offset, found.end_offset)
    found = one_of(found, "offset", [6, 7, None])
    assert (6, 8) == (found.start_offset, found.end_offset)
    found = one_of(one_of(EVERYTHING, "topic", ["a", "b"]), "topic", ["b", "c"])
    assert frozenset({"b"}) == found.topics
    numbers = below(at_least(one_of(EVERYTHING, "partition", [0, 1, 2]), "partition", 1), "partition", 2)
    assert [B] == [one for one in (A, B, C) if numbers.admits(one)]
    assert 1000 == at_least(EVERYTHING, "timestamp", 1000).start_timestamp
    assert EVERYTHING == below(EVERYTHING, "timestamp", 1000)
    assert not one_of(EVERYTHING, "offset", [None]).admits(A)
