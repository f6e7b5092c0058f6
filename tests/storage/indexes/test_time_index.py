"""Tests of the time index: lookups, the reserved slot, and truncation by offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.simulated_disk import ends_of
from topicfs.storage.disk.memory import MemoryFile
from topicfs.storage.errors import CorruptionError
from topicfs.storage.indexes.time_index import SLOT, TimeEntry, TimeIndex, may_end
from topicfs.storage.model import Offset, Timestamp

BASE = Offset(45)
ENTRIES = 30


def new_index() -> TimeIndex:
    return TimeIndex(MemoryFile(Path("/45.timeindex")), BASE, new_bytes=ENTRIES * 12)


def append(index: TimeIndex, count: int) -> None:
    """Append `count` entries with timestamps 10, 20, … at the offsets after the base."""
    for number in range(1, count + 1):
        index.append(Timestamp(number * 10), Offset(BASE + number))


def test_lookup():
    """Row 24: a lookup returns the last entry that is not above the timestamp, or (-1, base)."""
    index = new_index()
    assert (-1, 45) == index.lookup(Timestamp(100))
    append(index, ENTRIES - 1)
    assert (-1, 45) == index.lookup(Timestamp(9))
    assert (20, 47) == index.lookup(Timestamp(25))
    assert (30, 48) == index.lookup(Timestamp(30))
    assert (290, 74) == index.lookup(Timestamp(10_000))


def test_the_last_slot_is_kept_for_the_final_entry():
    """Row 25: the index is full one slot early, because only a final entry may use the last slot."""
    index = new_index()
    append(index, ENTRIES - 2)
    assert not index.full
    index.append(Timestamp(9000), Offset(900))
    assert index.full
    with pytest.raises(ValueError, match="full"):
        index.append(Timestamp(10_000), Offset(1000))
    index.append(Timestamp(10_000), Offset(1000), final=True)
    assert ENTRIES == index.entries
    assert (10_000, 1000) == index.last


def test_descending_offsets_and_timestamps_are_refused():
    """Row 25: a smaller offset or timestamp is refused, even for a final entry."""
    index = new_index()
    append(index, 5)
    with pytest.raises(ValueError, match="below the last one"):
        index.append(Timestamp(10_000), Offset(47), final=True)
    with pytest.raises(ValueError, match="below the last one"):
        index.append(Timestamp(40), Offset(1000), final=True)


def test_an_equal_timestamp_adds_nothing():
    """Row 25: an entry with the same timestamp as the last entry is not added."""
    index = new_index()
    append(index, 3)
    index.append(Timestamp(30), Offset(60))
    assert [(10, 46), (20, 47), (30, 48)] == list(index)


def test_truncation_is_by_offset():
    """Row 26: truncation removes entries at or above the offset, whatever their timestamps are."""
    index = new_index()
    append(index, 9)
    index.truncate_to(Offset(BASE + 4))
    assert [(10, 46), (20, 47), (30, 48)] == list(index)
    index.truncate_to(BASE)
    assert [] == list(index)
    assert (-1, 45) == index.last


def test_truncation_with_offsets_that_repeat():
    """Entries with the same offset are either all removed or all kept."""
    index = new_index()
    for timestamp, offset in ((1, 46), (2, 48), (3, 48), (4, 48), (5, 50)):
        index.append(Timestamp(timestamp), Offset(offset))
    index.truncate_to(Offset(49))
    assert [(1, 46), (2, 48), (3, 48), (4, 48)] == list(index)
    index.truncate_to(Offset(48))
    assert [(1, 46)] == list(index)


def test_sanity_check_for_tools():
    """Row 27: `check` refuses an index whose last offset is below the base offset.

    `check` also refuses a last timestamp below the first timestamp, and a size that is not a multiple of 12.
    """
    index = new_index()
    append(index, 5)
    index.check()
    for data, message in (
        (SLOT.pack(5, 1) + SLOT.pack(4, 2), "below the first"),
        (SLOT.pack(0, -1), "below the base offset"),
        (SLOT.pack(0, -1) + b"\0", "multiple of 12"),
    ):
        file = MemoryFile(Path("/45.timeindex"))
        file.append(data)
        with pytest.raises(CorruptionError, match=message):
            TimeIndex(file, BASE).check()


@pytest.mark.parametrize(
    ("entries", "first_batch", "right"),
    [
        ([], (-1, 3), True),
        ([], (0, 3), False),
        ([(5, 1)], (5, 1), True),
        ([(5, 1), (4, 2)], (5, 1), False),
        ([(5, 1), (5, 2)], (5, 1), True),
        ([(5, -1)], (5, 1), False),
        ([(5, 1), (0, 0)], (5, 1), False),
        ([(0, 0)], (0, 0), True),
        ([(0, 0)], (0, 1), False),
        ([(0, 0)], (1, 0), False),
        ([(0, 0), (0, 0)], (0, 0), False),
        ([(0, 0), (7, 1)], (0, 0), True),
    ],
)
def test_the_end_of_an_index_shows_whether_it_fits_a_log(
    entries: list[tuple[int, int]], first_batch: tuple[int, int], right: bool
) -> None:
    """Row 27: an index can belong to a log only if its last slot is whole and in use.

    The last entry must be neither below the base offset nor before the index's first entry.
    """
    data = b"".join(SLOT.pack(*entry) for entry in entries)
    first = TimeEntry(Timestamp(first_batch[0]), Offset(first_batch[1]))
    assert right == may_end(ends_of(data, SLOT.size), lambda: first, has_later=lambda: False)
    nothing_used = entries in ([], [(0, 0)])
    assert (right and not nothing_used) == may_end(
        ends_of(data, SLOT.size), lambda: first, has_later=lambda: True
    )
    assert not may_end(ends_of(data + b"\0", SLOT.size), lambda: first, has_later=lambda: False)


def test_an_unused_slot_cannot_be_read():
    """A slot after the last entry raises IndexError."""
    with pytest.raises(IndexError):
        new_index().entry(0)
