"""Tests of one segment: appends, lookups, truncation and recovery."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.headers import headers
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import batch, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import wait_until
from topicfs.storage.log.reading.fetch import fetch
from topicfs.storage.log.state import LogState
from topicfs.storage.model import Offset
from topicfs.storage.recovery.segment_recovery import read_end
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.roll import SegmentDirectory, SegmentSettings
from topicfs.storage.segment.segment import Segment
from topicfs.storage.segment.sparse import PlacedBatch

DIRECTORY = Path("/")


class OneSegment:
    """A segment on its own disk. Single batches are appended to the segment."""

    def __init__(
        self, base_offset: int = 40, *, interval: int = 10, index_bytes: int = 1200, **settings
    ) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.settings = SegmentSettings(interval, index_bytes, **settings)
        self.directory = SegmentDirectory(DIRECTORY, self.disk, self.clock)
        self.segment = Segment.create(self.directory, Offset(base_offset), self.settings)

    def append(self, offset: int, *values: bytes, timestamp: int = -1) -> int:
        """Append one batch and return its size."""
        data = batch(*(values or (b"hello",)), offset=offset, timestamp=timestamp)
        last_offset = offset + max(len(values), 1) - 1
        self.segment.append(data, [PlacedBatch(len(data), last_offset, timestamp)])
        return len(data)

    def load(self) -> Segment:
        """Open the same files again."""
        base_offset = self.segment.base_offset
        self.segment = Segment(self.directory, base_offset, self.settings)
        return self.segment

    def state(self) -> LogState:
        """Return the state of a log that has only this segment."""
        chain = Chain.of([self.segment])
        return LogState(chain, Offset(10**6), self.segment.size, Offset(0), None, None, (), {})

    def read(self, offset: int, max_bytes: int = 1000) -> tuple[int, int] | None:
        """Return the first offset and the size of the data that a read returns, or None."""
        fetched = fetch(self.state(), self.state().end, Offset(offset), max_bytes)
        if not fetched.data:
            return None
        return int.from_bytes(fetched.data[:8], "big"), len(fetched.data)

    def append_together(self, *timestamps: int) -> None:
        """Append a batch for each timestamp, from offset 0 on, in one append."""
        parts = [batch(b"hello", offset=offset, timestamp=time) for offset, time in enumerate(timestamps)]
        placed = [
            PlacedBatch(len(part), offset, time)
            for offset, (part, time) in enumerate(zip(parts, timestamps, strict=True))
        ]
        self.segment.append(bytearray().join(parts), placed)


@pytest.mark.parametrize(
    ("base_offset", "last_offset"), [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (2**31, 2**32)]
)
def test_offsets_outside_the_segments_range_are_refused(base_offset, last_offset):
    """Row 1: an offset below the base or more than 2^31-1 above it raises an error, and nothing is written."""
    one = OneSegment(base_offset)
    with pytest.raises(ValueError, match="does not fit"):
        one.segment.append(batch(b"x"), [PlacedBatch(80, last_offset, 1)])
    assert 0 == one.disk.size(one.segment.log.path)


@pytest.mark.parametrize(
    ("batches", "offset", "expected"),
    [
        pytest.param([], 40, None, id="an empty segment"),
        pytest.param([(50, 2)], 52, None, id="after the last offset"),
        pytest.param([(50, 4)], 41, 50, id="before the first offset"),
        pytest.param([(50, 2), (60, 2)], 55, 60, id="in a gap"),
        pytest.param([(50, 4)], 52, 50, id="in the middle of a batch"),
    ],
)
def test_a_read_begins_with_the_batch_that_ends_at_or_after_the_offset(batches, offset, expected):
    """Rows 2, 3 and 4: a read returns whole batches. From an offset at or after the segment's end it returns nothing."""
    one, size = OneSegment(), 0
    for first, count in batches:
        size = one.append(first, *[b"v"] * count)
    assert (None if expected is None else (expected, size)) == one.read(offset)


def test_a_small_limit_still_gives_a_whole_batch():
    """Row 58: a read returns at least one batch, and never a part of a batch."""
    one = OneSegment()
    first = one.append(40, b"v" * 100)
    second = one.append(41, b"w")
    assert (40, first) == one.read(40, max_bytes=1)
    assert (40, first) == one.read(40, max_bytes=first + second - 1)
    assert (40, first + second) == one.read(40, max_bytes=first + second)


def test_truncation_removes_from_the_offset_on():
    """Row 6: batches that begin at or after the offset are removed."""
    one = OneSegment()
    for offset in range(40, 70, 2):
        size = one.append(offset, b"hello", b"there")
    one.segment.truncate_to(Offset(52))
    assert (50, size) == one.read(50)
    assert one.read(52) is None
    assert (Offset(52), one.segment.size) == read_end(one.segment)


def test_truncation_in_a_gap():
    """Row 6: truncating at an offset in a gap removes the batches after the gap."""
    one = OneSegment()
    size = one.append(40, b"a")
    one.append(100, b"b")
    one.segment.truncate_to(Offset(70))
    assert (40, size) == one.read(40)
    assert one.read(41) is None
    assert size == one.segment.size


def test_truncating_an_empty_segment_gives_indexes_their_room_back():
    """Row 7: truncating an empty segment gives its trimmed indexes their full size, so that they are not full."""
    one = OneSegment(interval=0)
    one.segment.deactivate()
    assert 0 == one.segment.time_index.slots.capacity
    one.segment.truncate_to(Offset(45))
    assert not one.segment.index_full
    one.append(40)
    one.append(41)
    assert 1 == one.segment.offset_index.entries


def test_truncating_everything_restarts_the_creation_clock():
    """Row 8: an emptied segment's age counts from the truncation, and its indexes are not full."""
    one = OneSegment(interval=0, index_bytes=36)
    one.clock.advance(500)
    for offset in range(40, 43):
        one.append(offset, timestamp=offset)
    assert one.segment.index_full
    assert one.segment.created_ms + 500 == one.clock.now
    one.segment.truncate_to(Offset(0))
    assert 0 == one.segment.size
    assert one.clock.now == one.segment.created_ms
    assert not one.segment.index_full
    assert -1 == one.segment.first_timestamp


def test_largest_timestamp_and_end_after_truncation():
    """Row 9: a segment with 30 batches and 14 time index entries is truncated to one record.

    No time index entry is left. The largest timestamp is 400 and the end is 41.
    """
    probe = OneSegment()
    size = probe.append(40, timestamp=400)
    one = OneSegment(interval=2 * size - 1)
    for offset in range(40, 70):
        one.append(offset, timestamp=offset * 10)
    assert 14 == one.segment.time_index.entries
    one.segment.truncate_to(Offset(41))
    assert 0 == one.segment.time_index.entries
    assert (400, 40) == one.segment.largest
    assert (Offset(41), size) == read_end(one.segment)


def test_renaming_moves_the_files_that_exist():
    """Row 11: index files that do not exist yet are later created under the new name."""
    one = OneSegment()
    one.disk.make_directory(Path("/new"))
    one.disk.rename(DIRECTORY / "00000000000000000040.log", Path("/new/00000000000000000040.log"))
    one.segment.moved(Path("/new"))
    one.append(40)
    one.append(41)
    assert [
        "00000000000000000040.index",
        "00000000000000000040.log",
        "00000000000000000040.timeindex",
    ] == [entry.name for entry in one.disk.list_directory(Path("/new"))]


def test_preallocation_keeps_the_logical_size_apart():
    """Row 16: a preallocated file has its full size, but the segment counts only appended bytes."""
    one = OneSegment(preallocated_bytes=512 * 1024)
    size = one.append(50, b"hello", b"there")
    assert 512 * 1024 == one.disk.size(one.segment.log.path)
    assert size == one.segment.size
    assert (50, size) == one.read(41)


def test_closing_trims_a_preallocated_file():
    """Row 16: a clean close truncates a preallocated file to its batches."""
    one = OneSegment(preallocated_bytes=512 * 1024)
    size = one.append(50, b"hello", b"there")
    one.segment.deactivate()
    segment = one.load()
    assert size == segment.size
    assert (Offset(52), size) == read_end(segment)
    one.append(52, b"again")
    assert (52, segment.size - size) == one.read(52)


def test_every_batch_of_an_append_is_indexed_when_it_is_due():
    """Row 17: a single append of three batches adds index entries at offsets 1 and 2."""
    one = OneSegment(0, interval=1)
    one.append_together(1, 1, 1)
    assert [1, 2] == [entry.offset for entry in one.segment.offset_index]


def test_the_time_index_takes_only_higher_maxima():
    """Row 18: with timestamps 1, 0, 2 the time index gets (1, 0) and then (2, 2)."""
    one = OneSegment(0, interval=1)
    one.append_together(1, 0, 2)
    assert [(1, 0), (2, 2)] == list(one.segment.time_index)


def test_the_sparse_rule_on_batches_of_1071_bytes():
    """With an interval of 4096 bytes, an index entry is due after more than 4096 bytes.

    Batches of 1071 bytes get entries for offset 4 at position 4284 and for offset 8 at position 8568.
    """
    one = OneSegment(0, interval=4096)
    for offset in range(10):
        data = sized_batch(1071, offset=offset, timestamp=offset)
        one.segment.append(data, [PlacedBatch(1071, offset, offset)])
    assert 10_710 == one.segment.size
    assert [(4, 4284), (8, 8568)] == list(one.segment.offset_index)
    assert [(4, 4), (8, 8)] == list(one.segment.time_index)


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(-1, 50)), min_size=1, max_size=60),
    st.integers(0, 2000),
    st.integers(1, 20),
)
def test_a_rebuild_makes_the_entries_that_appending_made(batches, interval, window):
    """Rebuilding an index gives the same entries as appending, for windows of any size."""
    appended, rebuilt = OneSegment(0, interval=interval), OneSegment(0, interval=interval)
    found, position = [], 0
    for offset, (size, timestamp) in enumerate(batches):
        appended.segment.append(bytearray(size), [PlacedBatch(size, offset, timestamp)])
        found.append({"position": position, "last_offset": offset, "max_timestamp": timestamp})
        position += size
    for start in range(0, len(batches), window):
        begins = found[start]["position"]
        rows = headers({**row, "position": row["position"] - begins} for row in found[start:])
        rebuilt.segment.index_window(rows, min(window, len(rows)), begins)
    assert list(appended.segment.offset_index) == list(rebuilt.segment.offset_index)
    assert list(appended.segment.time_index) == list(rebuilt.segment.time_index)
    assert appended.segment.largest == rebuilt.segment.largest
    assert appended.segment.first_timestamp == rebuilt.segment.first_timestamp


def test_a_failed_write_leaves_the_segment_as_it_was():
    """A failed write to the log or an index leaves no byte, entry or timestamp."""
    for suffix in (".log", ".index", ".timeindex"):
        one = OneSegment(0, interval=1)
        one.append(0, timestamp=5)
        before = (one.disk.read_bytes(one.segment.log.path), one.segment.size, one.segment.largest)
        one.disk.fail("pwrite", suffix=suffix)
        with pytest.raises(OSError, match="Input/output"):
            one.append(1, timestamp=9)
        assert before == (one.disk.read_bytes(one.segment.log.path), one.segment.size, one.segment.largest)
        assert [] == list(one.segment.offset_index)
        assert [] == list(one.segment.time_index)
        one.append(1, timestamp=7)
        assert [1] == [entry.offset for entry in one.segment.offset_index]
        assert [(7, 1)] == list(one.segment.time_index)


def test_a_listing_includes_files_created_meanwhile(monkeypatch: pytest.MonkeyPatch):
    """A reader may create indexes while the files of a segment are listed.

    The list includes these indexes, so that a removal of the segment misses no file.
    """
    one = OneSegment()
    segment, exists = one.segment, one.disk.exists
    (made,) = makers = [Thread(target=segment.create_indexes)]

    def exists_then_more(path: Path) -> bool:
        found = exists(path)
        if path.suffix == ".index" and makers:
            makers.clear()  # Only once, because the maker itself calls this function.
            made.start()
            wait_until(
                lambda: segment._opening.locked() or not made.is_alive(),
                "the other thread makes the indexes",
            )
        return found

    monkeypatch.setattr(one.disk, "exists", exists_then_more)
    segment.file_names()
    made.join()
    assert [".log", ".index", ".timeindex"] == [Path(name).suffix for name in segment.file_names()]
