"""Tests of one segment: appends, lookups, truncation and recovery."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.headers import headers
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import batch
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.waiting import wait_until
from topicfs.storage.codec.records import BatchStamp
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.reading.fetch import fetch
from topicfs.storage.log.reading.times import Search, TimeSearch
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

    def find_time(self, timestamp: int) -> int | None:
        bound = self.state().end
        found = TimeSearch().find(
            Chain.of([self.segment]), bound, Search(timestamp, self.segment.base_offset)
        )
        return None if found is None else found.offset


@pytest.mark.parametrize(
    ("base_offset", "last_offset"), [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (2**31, 2**32)]
)
def test_offsets_outside_the_segments_range_are_refused(base_offset, last_offset):
    """Row 1: an offset below the base or more than 2^31-1 above it raises an error, and nothing is written."""
    one = OneSegment(base_offset)
    with pytest.raises(ValueError, match="does not fit"):
        one.segment.append(batch(b"x"), [PlacedBatch(80, last_offset, 1)])
    assert 0 == one.disk.size(one.segment.log.path)


def test_reading_an_empty_segment():
    """Row 2: reading an empty segment returns no result and no error."""
    assert OneSegment().read(40) is None


def test_reading_after_the_last():
    """Row 2: reading after the last offset returns no result."""
    one = OneSegment()
    one.append(50, b"hello", b"there")
    assert one.read(52) is None


def test_reading_before_the_first_offset():
    """Row 3: with base offset 40 and records from offset 50 on, a read at 41 begins at 50."""
    one = OneSegment()
    size = one.append(50, b"hello", b"there", b"little", b"bee")
    assert (50, size) == one.read(41)


def test_reading_from_a_gap():
    """Row 3: with batches at 50-51 and 60-61, a read at 55 begins at 60."""
    one = OneSegment()
    one.append(50, b"hello", b"there")
    size = one.append(60, b"alpha", b"beta")
    assert (60, size) == one.read(55)


def test_reading_from_the_middle_of_a_batch():
    """Row 4: reading offset 52, inside a batch that begins at 50, returns the whole batch."""
    one = OneSegment()
    size = one.append(50, b"a", b"b", b"c", b"d")
    assert (50, size) == one.read(52)


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


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(420, 42), (421, 43), (430, 43), (431, 44), (491, None), (401, 41), (399, 40), (490, 49)],
)
def test_finding_an_offset_by_timestamp(timestamp, expected):
    """Row 10: the first record at or after a time is found. For a time after the last record, none is found."""
    one = OneSegment()
    for offset in range(40, 50):
        one.append(offset, timestamp=offset * 10)
    assert expected == one.find_time(timestamp)


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
    data = bytearray()
    placed = []
    for offset in range(3):
        part = batch(b"hello", offset=offset, timestamp=1)
        placed.append(PlacedBatch(len(part), offset, 1))
        data += part
    one.segment.append(data, placed)
    assert [1, 2] == [entry.offset for entry in one.segment.offset_index]


def test_the_time_index_takes_only_higher_maxima():
    """Row 18: with timestamps 1, 0, 2 the time index gets (1, 0) and then (2, 2)."""
    one = OneSegment(0, interval=1)
    data = bytearray()
    placed = []
    for offset, timestamp in enumerate((1, 0, 2)):
        part = batch(b"hello", offset=offset, timestamp=timestamp)
        placed.append(PlacedBatch(len(part), offset, timestamp))
        data += part
    one.segment.append(data, placed)
    assert [(1, 0), (2, 2)] == list(one.segment.time_index)


def test_the_sparse_rule_on_batches_of_1071_bytes():
    """With an interval of 4096 bytes, an index entry is due after more than 4096 bytes.

    Batches of 1071 bytes get entries for offset 4 at position 4284 and for offset 8 at position 8568.
    """
    one = OneSegment(0, interval=4096)
    for offset in range(10):
        data = batch(b"v" * 1000, offset=offset, timestamp=offset)
        data = batch(b"v" * (1000 + 1071 - len(data)), offset=offset, timestamp=offset)
        one.segment.append(data, [PlacedBatch(len(data), offset, offset)])
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


def test_a_damaged_batch_on_the_way_is_named():
    """A lookup that meets a damaged batch raises an error with file and position."""
    one = OneSegment(interval=10_000)
    size = one.append(40)
    one.append(41)
    one.segment.log.pwrite(b"\x7f", size + 16)
    with pytest.raises(CorruptionError, match=f"40.log: position {size}: "):
        one.read(41)


def test_timestamps_of_log_append_time_are_found():
    """A lookup by time finds the first record of a batch with LogAppendTime."""
    one = OneSegment()
    stamp = BatchStamp(timestamp_type=1)
    data = batch(b"a", b"b", offset=40, timestamp=[5, 100], stamp=stamp)
    one.segment.append(data, [PlacedBatch(len(data), 41, 100)])
    assert 40 == one.find_time(50)


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
