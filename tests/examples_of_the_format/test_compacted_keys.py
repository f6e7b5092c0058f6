"""Tests of the usual example of compaction: the newest value of each key is kept."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk
from topicfs.storage.codec.records import decode, encode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.model import Offset, Record, Timestamp

DAY_MS = 86_400_000
WRITTEN = [(b"K1", b"V1"), (b"K2", b"V2"), (b"K1", b"V3"), (b"K1", b"V4"), (b"K3", b"V5"), (b"K4", b"V6")]
WRITTEN += [(b"K5", b"V7"), (b"K5", b"V8"), (b"K2", b"V9"), (b"K3", None), (b"K6", b"V11")]


class Example:
    """A compacted topic with two records per segment; the last record is in the active segment."""

    def __init__(self) -> None:
        self.on_disk = LogOnDisk(
            cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=DAY_MS
        )
        self.on_disk.clock.advance(1_700_000_000_000)
        for number, (key, value) in enumerate(WRITTEN):
            if number % 2 == 0 and number:
                self.on_disk.log.appender.roll()
            record = Record(Offset(0), Timestamp(self.on_disk.clock.now), key, value)
            self.on_disk.log.append(encode([record]))

    def clean(self, *, days_later: int = 0) -> None:
        self.on_disk.clock.advance(days_later * DAY_MS)
        now = Timestamp(self.on_disk.clock.now)
        clean(self.on_disk.log, plan(cleaning_params(self.on_disk.log, Offset(0), now)), now=now)

    def records(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        log, found = self.on_disk.log, {}
        offset = Offset(0)
        while len((fetched := log.read(offset, max_bytes=1000)).data):
            for columns in decode(fetched.data):
                found |= {record.offset: (record.key, record.value) for record in columns}
            offset = fetched.next_offset
        return found


@pytest.fixture
def example() -> Example:
    return Example()


def test_the_newest_value_of_each_key_stays_at_its_offset(example):
    """The clean part has gaps between offsets, the dirty part has none, and removed offsets are not used again."""
    assert list(range(11)) == list(example.records())
    example.clean()
    assert {
        3: (b"K1", b"V4"),
        5: (b"K4", b"V6"),
        7: (b"K5", b"V8"),
        8: (b"K2", b"V9"),
        9: (b"K3", None),
        10: (b"K6", b"V11"),
    } == example.records()
    assert (
        11 == example.on_disk.log.append(encode([Record(Offset(0), Timestamp(0), b"K7", b"V12")])).base_offset
    )


def test_a_read_at_a_gap_begins_at_the_next_record(example):
    """Reads at the removed offsets 0, 1 and 2 begin at record 3."""
    example.clean()
    for offset in (0, 1, 2, 3):
        fetched = example.on_disk.log.read(Offset(offset), max_bytes=1)
        assert 3 == next(record.offset for columns in decode(fetched.data) for record in columns)


def test_a_null_value_deletes_its_key_and_goes_a_day_later(example):
    """The first pass keeps a tombstone for readers and sets its delete horizon; a pass after the horizon removes it."""
    example.clean()
    example.clean()
    assert (b"K3", None) == example.records()[9]
    example.clean(days_later=1)
    assert 9 not in example.records()


def test_an_empty_value_deletes_nothing():
    """An empty value is not a tombstone, because it is not null, although articles say "empty"."""
    example = Example()
    example.on_disk.log.append(encode([Record(Offset(0), Timestamp(0), b"K1", b"")]))
    example.on_disk.log.appender.roll()
    example.clean()
    example.clean(days_later=2)
    assert (b"K1", b"") == example.records()[11]
