"""Tests of the start and stop of a read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import topicfs
from topicfs import Record, errors


@pytest.fixture
def times():
    """Four times: before yesterday, late yesterday, at the start of today, and now."""
    now = datetime.now(UTC)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [day - timedelta(days=1, minutes=1), day - timedelta(hours=1), day, now]


@pytest.fixture
def orders(tmp_path, times):
    """A topic with one record for each of `times` at offsets 2 to 5; the records at offsets 0 and 1 are deleted."""
    with topicfs.open(tmp_path / "data") as topics:
        created = topics.create("orders", config={"retention.ms": "-1"})
        created[0].append_many([b"gone", b"gone too"])
        for number, time in enumerate(times):
            created.append(b"%d" % number, timestamp=time)
        topics._engine.partition("orders", 0).delete_records(2)
        yield created


def read(orders, *places) -> bytes:
    return b"".join(record.value for record in orders[0].records(*places))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((), b"0123"),
        ((3,), b"123"),
        (("3",), b"123"),
        ((6,), b""),
        ((0,), b"0123"),
        ((3, 5), b"12"),
        ((3, 3), b""),
        ((5, 3), b""),
        ((None, 4), b"01"),
        ((None, 2**70), b"0123"),
        ((-1,), b"3"),
        (("-2",), b"23"),
        ((-(2**70),), b"0123"),
        (("earliest", "latest"), b"0123"),
        (("latest",), b""),
        (("@yesterday",), b"123"),
        (("@yesterday", "@today"), b"1"),
        (("@today",), b"23"),
        ((datetime.max.replace(tzinfo=UTC),), b""),
        ((datetime.min.replace(tzinfo=UTC),), b"0123"),
    ],
)
def test_records_of_a_range(orders, places, expected):
    """Start and stop may be an offset, a negative count from the end, a word or a time; stop is exclusive."""
    assert expected == read(orders, *places)


@pytest.mark.parametrize("place", ["-10m", "@10m"])
def test_a_duration_counts_back_from_now(tmp_path, place):
    """A read that starts at a duration begins with the first record of the last ten minutes."""
    with topicfs.open(tmp_path / "data") as topics:
        orders = topics.create("orders")
        now = datetime.now(UTC)
        for value, time in ((b"an hour ago", now - timedelta(hours=1)), (b"now", now)):
            orders.append(value, timestamp=time)
        assert b"now" == read(orders, place)


def test_a_time_is_the_first_record_from_then_on(orders, times):
    """A read that starts at a time begins with the first record at or after it. Times are exact to the microsecond."""
    assert b"123" == read(orders, times[1])
    assert b"23" == read(orders, times[1] + timedelta(microseconds=1))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_start_beyond_the_end_is_an_error(orders, isolation):
    """A start beyond the end is an error, so that no reader waits for offsets that do not exist."""
    with pytest.raises(errors.OffsetOutOfRangeError, match=r"orders-0: offset 7 is outside \[2, 6\)"):
        orders.records(7, isolation=isolation)


@pytest.mark.parametrize(
    "place", ["42-99", "42-", "@yesterday-@today", "-", "soon", "", "007", "42.json", "@never", "-10x"]
)
def test_an_invalid_text_as_start_is_an_error(orders, place):
    """A start or stop that is an invalid text raises ValueError with a list of valid texts."""
    for call in (orders.records, orders.follow, orders.arrow):
        with pytest.raises(ValueError, match=r"not a"):
            call(place)


def test_a_place_of_another_type_is_an_error(orders):
    """A start of type bool, float or bytes, a time without a zone, and an unknown isolation are errors."""
    for place in (True, 1.5, b"42"):
        with pytest.raises(TypeError, match="a place is an offset"):
            orders.records(place)
    with pytest.raises(ValueError, match="a time must have a zone"):
        orders.records(datetime.fromisoformat("2026-11-21"))
    with pytest.raises(ValueError, match="read_commited"):
        orders.records(isolation="read_commited")


def test_an_offset_needs_a_partition(tmp_path):
    """Starting at an offset is an error for a topic of several partitions; starting at a time is allowed."""
    with topicfs.open(tmp_path / "data") as topics:
        clicks = topics.create("clicks", partitions=2)
        clicks[1].append(Record(b"one", timestamp=5))
        for place in (0, -1, "0", "-1"):
            for call in (clicks.records, clicks.arrow, lambda start: next(clicks.follow(start))):
                with pytest.raises(ValueError, match="an offset applies to one partition"):
                    call(place)
        assert [b"one"] == [record.value for record in clicks.records("@1970-01-01", "latest")]
