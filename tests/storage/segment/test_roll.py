"""Tests of the decision whether a segment rolls, without files."""

from __future__ import annotations

import pytest

from tests.doubles.compacted_log import CompactedLog
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.segment import roll

NOTHING_DUE = roll.RollParameters(
    size_bytes=500,
    base_offset=100,
    first_timestamp=10_000,
    created_ms=0,
    index_full=False,
    max_segment_bytes=1000,
    max_wait_ms=60_000,
    append_bytes=500,
    append_last_offset=150,
    append_max_timestamp=20_000,
    now=1_000_000,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"append_bytes": 501}, roll.RollReason.SIZE),
        ({"size_bytes": 0, "append_bytes": 1000}, None),
        ({"append_max_timestamp": 70_000}, None),
        ({"append_max_timestamp": 70_001}, roll.RollReason.TIME),
        ({"append_max_timestamp": 70_001, "size_bytes": 0}, None),
        ({"first_timestamp": -1, "now": 60_000}, None),
        ({"first_timestamp": -1, "now": 60_001}, roll.RollReason.TIME),
        ({"index_full": True}, roll.RollReason.INDEX_FULL),
        ({"append_last_offset": 100 + 2**31 - 1}, None),
        ({"append_last_offset": 100 + 2**31}, roll.RollReason.OFFSET_RANGE),
        ({"append_last_offset": 99}, roll.RollReason.OFFSET_RANGE),
    ],
)
def test_each_reason_at_its_limit(changes, expected):
    """A value above its limit causes a roll. A value that equals its limit does not.

    An empty segment is never rolled by time.
    """
    assert expected is roll.roll_reason(NOTHING_DUE._replace(**changes))


@pytest.mark.parametrize("size", [0, 500, 501])
@pytest.mark.parametrize("timestamp", [0, 70_000, 70_001])
@pytest.mark.parametrize("offset", [99, 100, 100 + 2**31 - 1, 100 + 2**31])
@pytest.mark.parametrize("index_full", [False, True])
def test_the_quick_check_agrees_with_the_full_check(size: int, timestamp: int, offset: int, index_full: bool):
    """If the quick check says that no roll is due, the full check agrees.

    If the quick check says that a roll is due, it is due unless the segment is empty.
    """
    p = NOTHING_DUE._replace(
        size_bytes=size, append_max_timestamp=timestamp, append_last_offset=offset, index_full=index_full
    )
    quick = roll.stays_active(
        size_bytes=p.size_bytes + p.append_bytes,
        max_bytes=p.max_segment_bytes,
        relative_offset=p.append_last_offset - p.base_offset,
        span_ms=p.append_max_timestamp - p.first_timestamp,
        max_wait_ms=p.max_wait_ms,
        index_full=p.index_full,
    )
    assert not (quick and roll.roll_reason(p))
    assert quick or roll.roll_reason(p) or not size


def test_waiting_is_measured_in_record_time():
    """Age counts from the first batch's timestamp, or if there is none, from the segment's creation."""
    assert 10_000 == roll.waited_ms(NOTHING_DUE)
    assert 1_000_000 == roll.waited_ms(NOTHING_DUE._replace(first_timestamp=-1))


def test_jitter_lies_below_both_limits():
    """The jitter is in [0, min(jitter, segment.ms)), and is 0 if either of these settings is 0."""

    def draws(**settings: int) -> set[int]:
        return {roll.segment_settings(TopicConfig(**settings)).jitter_ms for _ in range(1000)}

    assert {0, 1, 2, 3, 4} == draws(segment_jitter_ms=5, segment_ms=1000)
    assert {0} == draws(segment_jitter_ms=0, segment_ms=1000)
    assert {0, 1, 2} == draws(segment_jitter_ms=1000, segment_ms=3)


@pytest.mark.parametrize("index_bytes", [4, 7, 8, 11, 12, 23, 24, 36])
def test_the_smallest_indexes_that_kafka_accepts_hold_entries(index_bytes):
    """With the smallest index sizes no append, roll, compaction, kill or close loses a record."""
    log = CompactedLog(segment_index_bytes=index_bytes, index_interval_bytes=0)
    for number in range(6):
        log.put((b"k%d" % (number % 4), b"%d" % number))
    log.log.appender.roll()
    log.clean()
    log.kill()
    log.put((b"k9", b"9"))
    log.reopen()
    log.put((b"k8", b"8"))
    found = {b"k0": b"4", b"k1": b"5", b"k2": b"2", b"k3": b"3", b"k8": b"8", b"k9": b"9"}
    assert found == log.table()
