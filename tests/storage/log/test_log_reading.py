"""Tests of reading a log: limits, windows, gaps, times, and damage during a lookup."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import islice

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, filled, offsets_of, records_of
from tests.doubles.records import batch, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import decode
from topicfs.storage.errors import CorruptionError, OffsetOutOfRangeError, SegmentDeletedError
from topicfs.storage.model import Fetched, Isolation, Offset, SegmentInfo, Timestamp, TimestampOffset
from topicfs.storage.segment.scan import LOOKUP_WINDOW_BYTES, windows
from topicfs.storage.segment.trace import (
    BatchFound,
    BatchPassed,
    IndexSearched,
    LookupTrace,
    RecordFound,
    ScanBegan,
    SegmentPassed,
    SegmentsSearched,
    SegmentTaken,
)


def test_reads_outside_the_log():
    """Row 59: in a log that has only offset 1024, reads of 0 and 1026 raise an error, and a read of 1025 is empty."""
    on_disk = LogOnDisk()
    on_disk.log.replacer.truncate_fully_and_start_at(1024)
    on_disk.log.append(batch(b"a"))
    assert [1024] == offsets_of(on_disk.log)
    assert b"" == bytes(on_disk.log.read(1025, max_bytes=1000).data)
    assert 1025 == on_disk.log.read(1025, max_bytes=1000).next_offset
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError) as refused:
            on_disk.log.read(offset, max_bytes=1000)
        assert (1024, 1025) == (refused.value.start_offset, refused.value.end_offset)


def test_every_limit_makes_progress():
    """Row 58: with any limit, consecutive reads return each record once, in complete batches."""
    on_disk = LogOnDisk(internal_segment_bytes=700)
    for number in range(20):
        on_disk.log.append(sized_batch(100 + 7 * number))
    for max_bytes in (1, 61, 100, 150, 333, 1000, 10_000):
        assert list(range(20)) == [offset for offset, _ in records_of(on_disk.log, max_bytes=max_bytes)]


def test_a_read_stays_inside_a_segment_and_its_limit():
    """A read returns batches of one segment, up to the limit or one larger batch, and their position in the file."""
    on_disk = LogOnDisk(internal_segment_bytes=700)
    for _ in range(10):
        on_disk.log.append(sized_batch(200))
    fetched = on_disk.log.read(1, max_bytes=350)
    assert (200, 200, 0, 2) == (len(fetched.data), *fetched[1:4])
    assert 400 == len(on_disk.log.read(1, max_bytes=10_000).data)
    assert 200 == len(on_disk.log.read(1, max_bytes=5).data)
    with pytest.raises(TypeError):
        fetched.data[0] = 0


def test_nothing_at_or_above_the_high_watermark():
    """Row 60: reads end at the high watermark. Reads from there to the log end are empty."""
    on_disk = LogOnDisk()
    for number in range(10):
        on_disk.log.append(batch(bytes([number])))
    on_disk.reopen(high_watermark=3)
    for isolation in Isolation:
        assert 3 == on_disk.log.read(0, max_bytes=10_000, isolation=isolation).next_offset
        for offset in (3, 5, 10):
            assert b"" == bytes(on_disk.log.read(offset, max_bytes=10_000, isolation=isolation).data)
    on_disk.reopen(high_watermark=10)
    assert list(range(10)) == offsets_of(on_disk.log)


def test_a_high_watermark_inside_a_batch_hides_the_batch():
    """A batch is visible only if the whole batch is below the high watermark."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a", b"b"))
    on_disk.log.append(batch(b"c", b"d"))
    on_disk.reopen(high_watermark=3)
    assert [0, 1] == offsets_of(on_disk.log)


def test_the_high_watermark_keeps_its_bounds():
    """Row 65: the high watermark of a checkpoint is limited to the offsets of the log.

    A truncation below the high watermark lowers it. An append does not change it.
    """
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a", b"b", b"c"))
    assert 3 == on_disk.reopen(high_watermark=5).high_watermark
    on_disk.log.append(batch(b"d", b"e", b"f"))
    assert 3 == on_disk.log.high_watermark
    assert 6 == on_disk.reopen(high_watermark=6).high_watermark
    on_disk.log.replacer.truncate_to(3)
    assert 3 == on_disk.log.high_watermark
    on_disk.log.replacer.truncate_fully_and_start_at(100)
    assert 100 == on_disk.log.high_watermark
    assert 100 == on_disk.reopen(high_watermark=3, log_start_offset=100).high_watermark


def test_sequential_reads_do_not_search(monkeypatch):
    """Sequential reads use cached positions, so they search an index only once."""
    on_disk = LogOnDisk(internal_segment_bytes=2000)
    for _ in range(50):
        on_disk.log.append(sized_batch(100))
    searches = []
    segment_type = type(on_disk.log.chain.active)
    search = segment_type.read_batch
    monkeypatch.setattr(
        segment_type,
        "read_batch",
        lambda self, *arguments: searches.append(arguments) or search(self, *arguments),
    )
    assert list(range(50)) == offsets_of(on_disk.log)
    assert 1 == len(searches)


@pytest.mark.parametrize("offset", [0, 10, 11, 19])
def test_a_lookup_reads_its_batch_once(monkeypatch, offset):
    """A lookup reads the batch of an index entry and the next batch in a single call."""
    on_disk = LogOnDisk()
    for _ in range(10):
        on_disk.log.append(batch(b"x" * 8000, b"y" * 8000))
    file = on_disk.log.chain.active.log
    reads = []
    monkeypatch.setattr(file, "pread", lambda *of, pread=file.pread: reads.append(of) or pread(*of))
    fetched = on_disk.log.read(offset, max_bytes=1)
    assert 1 == len(reads)
    assert [offset // 2 * 2] == [header.base_offset for header in scan(fetched.data)]
    assert (offset // 2 * len(fetched.data), 0, offset // 2 * 2 + 2) == fetched[1:4]


@pytest.mark.parametrize("offset", [3, 10, 11])
def test_a_search_passes_large_batches_by_their_headers(monkeypatch, offset):
    """A search reads a large batch completely only if the batch contains the offset."""
    on_disk = LogOnDisk(index_interval_bytes=10**9, internal_segment_bytes=10**9)
    for _ in range(10):
        on_disk.log.append(batch(b"x" * 80_000, b"y" * 80_000))
    file = on_disk.log.chain.active.log
    sizes, pread = [], file.pread
    monkeypatch.setattr(file, "pread", lambda size, at: sizes.append(size) or pread(size, at))
    fetched = on_disk.log.read(offset, max_bytes=1)
    assert [offset // 2 * 2] == [header.base_offset for header in scan(fetched.data)]
    assert len(fetched.data) == sizes[-1]
    assert {LOOKUP_WINDOW_BYTES} == set(sizes[:-1])


def test_a_reader_at_the_end_goes_on_after_a_roll():
    """A reader at the end of a segment continues in the next segment after a roll."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    on_disk.log.append(sized_batch(250))
    end = on_disk.log.read(0, max_bytes=1000).next_offset
    assert b"" == bytes(on_disk.log.read(end, max_bytes=1000).data)
    on_disk.log.append(sized_batch(250))
    fetched = on_disk.log.read(end, max_bytes=1000)
    assert (1, 0) == (fetched.segment_base_offset, fetched.position)


def test_truncation_ends_cached_positions():
    """A truncation invalidates cached positions, so that no read starts inside a batch."""
    on_disk = LogOnDisk()
    for _ in range(4):
        on_disk.log.append(sized_batch(100))
    assert list(range(4)) == offsets_of(on_disk.log)
    on_disk.log.replacer.truncate_to(1)
    for _ in range(4):
        on_disk.log.append(sized_batch(130))
    for start in range(5):
        assert list(range(start, 5)) == offsets_of(on_disk.log, start)


def test_a_batch_damaged_on_disk_is_named():
    """A damaged header raises an error with file and position. Records before the header are read."""
    on_disk = LogOnDisk()
    on_disk.log.append(sized_batch(100))
    on_disk.log.append(sized_batch(100))
    on_disk.log.chain.active.log.pwrite(b"\x09", 116)
    assert 0 == first_offset_of(on_disk.log.read(0, max_bytes=10_000))
    with pytest.raises(CorruptionError, match=r"00000000000000000000\.log: position 100: "):
        on_disk.log.read(1, max_bytes=1000)


def test_records_by_time():
    """Rows 66 and 140: lookups by time, `earliest`, `latest` and `largest_timestamp` return the leader epoch, too."""
    on_disk = LogOnDisk()
    assert on_disk.log.offset_for_timestamp(0) is None
    assert on_disk.log.largest_timestamp() is None
    first, second = on_disk.clock.now, on_disk.clock.now + 10
    on_disk.log.appender.append_as_follower(batch(b"a", timestamp=first, offset=0, epoch=0))
    on_disk.log.appender.append_as_follower(batch(b"b", timestamp=second, offset=1, epoch=2))
    for time in (0, first - 1, first):
        assert TimestampOffset(first, 0, 0) == on_disk.log.offset_for_timestamp(time)
    assert TimestampOffset(second, 1, 2) == on_disk.log.offset_for_timestamp(second)
    assert TimestampOffset(second, 1, 2) == on_disk.log.offset_for_timestamp(first + 1)
    assert on_disk.log.offset_for_timestamp(second + 1) is None
    assert TimestampOffset(-1, 0, 0) == on_disk.log.earliest()
    assert TimestampOffset(-1, 2, 2) == on_disk.log.latest()
    assert TimestampOffset(second, 1, 2) == on_disk.log.largest_timestamp()


def test_the_largest_timestamp_need_not_be_the_last():
    """Row 66: the first record with the largest timestamp is found, even if times do not ascend."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for timestamp in (100, 900, 300, 900, 200):
        on_disk.log.append(sized_batch(140, timestamp=timestamp))
    assert TimestampOffset(900, 1, 0) == on_disk.log.largest_timestamp()
    assert 1 == on_disk.log.offset_for_timestamp(101).offset
    assert 0 == on_disk.log.offset_for_timestamp(100).offset


def test_records_by_time_in_many_segments():
    """Row 10: a lookup by time finds the first matching record in the order of the log, over all segments."""
    times = [50, 10, 10, 20, 5, 80, 80, 60, 7, 100, 90, 3]
    on_disk = LogOnDisk(internal_segment_bytes=300, index_interval_bytes=0)
    for timestamp in times:
        on_disk.log.append(sized_batch(140, timestamp=timestamp))
    for _ in range(2):
        for target in range(102):
            expected = next((offset for offset, time in enumerate(times) if time >= target), None)
            found = on_disk.log.offset_for_timestamp(target)
            assert expected == (None if found is None else found.offset)
        on_disk.reopen()


def test_records_by_time_below_the_high_watermark():
    """A lookup by time finds no record above the high watermark."""
    on_disk = LogOnDisk()
    for timestamp in (10, 20, 30):
        on_disk.log.append(batch(b"a", timestamp=timestamp))
    on_disk.reopen(high_watermark=2)
    assert 1 == on_disk.log.offset_for_timestamp(11).offset
    assert on_disk.log.offset_for_timestamp(21) is None


@pytest.fixture
def of_two_segments() -> LogOnDisk:
    """A log of eight batches of 100 bytes, four in each segment, with a sparse index."""
    return filled(8, internal_segment_bytes=420, index_interval_bytes=150)


def test_each_step_of_a_lookup_is_told(of_two_segments):
    """The trace of a lookup has the segments, the index entry below the offset, and each batch."""
    on_disk = of_two_segments
    trace = LookupTrace()
    location = on_disk.log.locate(7, trace)
    assert (4, 300) == (location.segment_base_offset, location.batch.position)
    assert [
        SegmentsSearched(7, (0, 4), 4),
        IndexSearched("00000000000000000004.index", 1, 7, ((0, 6, 200),), 6, 200),
        ScanBegan("00000000000000000004.log", 200),
        BatchPassed(200, 6, 6),
        BatchFound(300, 100, 7, 7),
    ] == trace.steps


def test_each_step_of_a_lookup_by_time_is_told(of_two_segments):
    """The trace of a lookup by time has the segments, time index, offset index, batches and the record."""
    on_disk = of_two_segments
    trace = LookupTrace()
    found = on_disk.log.offset_for_timestamp(65, trace=trace)
    assert TimestampOffset(70, 7, 0) == found
    assert [
        SegmentPassed(0, 30),
        SegmentTaken(4, 70),
        IndexSearched("00000000000000000004.timeindex", 1, 65, ((0, 60, 6),), 60, 6),
        IndexSearched("00000000000000000004.index", 1, 6, ((0, 6, 200),), 6, 200),
        ScanBegan("00000000000000000004.log", 200),
        BatchPassed(200, 6, 6),
        BatchFound(300, 100, 7, 7),
        RecordFound(7, 70),
    ] == trace.steps


def test_a_lookup_outside_the_log_is_refused():
    """A lookup at the log's end or before its start raises OffsetOutOfRangeError."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    for offset in (-1, 1):
        with pytest.raises(OffsetOutOfRangeError):
            on_disk.log.locate(offset)


def test_segments_as_users_see_them():
    """Segments are listed with base, exclusive end, size, time and files. The active segment is last."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for timestamp in (10, 20, 30):
        on_disk.log.append(sized_batch(140, timestamp=timestamp))
    first, second = on_disk.log.segments()
    files = tuple(f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))
    assert SegmentInfo(0, 2, 280, 20, active=False, files=files) == first
    assert SegmentInfo(2, 3, 140, 30, active=True, files=second.files) == second
    assert f"{2:020d}.log" == second.files[0]
    assert f"{2:020d}.snapshot" in second.files


def test_the_files_of_a_segment_are_shown_byte_for_byte():
    """A segment's file is mapped byte for byte. The `.log` of the active segment is mapped up to the visible end.

    A name that is not a file of a present segment is refused.
    """
    on_disk = LogOnDisk(internal_segment_bytes=300, preallocate=True)
    for _ in range(3):
        on_disk.log.append(sized_batch(140))
    for name in on_disk.log.segments()[0].files:
        assert on_disk.content(name) == bytes(on_disk.log.open_segment_file(name))
    active = on_disk.log.segments()[1].files[0]
    assert on_disk.content(active)[:140] == bytes(on_disk.log.open_segment_file(active))
    on_disk.log.replacer.delete_oldest_segments(1, "test")
    for name in ("00000000000000000000.log", "leader-epoch-checkpoint", "../orders-0/x", ""):
        with pytest.raises(SegmentDeletedError):
            on_disk.log.open_segment_file(name)


def test_status():
    """Each field of `status` equals the number counted from the files."""
    on_disk = LogOnDisk(internal_segment_bytes=300, segment_index_bytes=120)
    for timestamp in (10, 20, 5):
        on_disk.log.append(sized_batch(140, timestamp=timestamp))
    status = on_disk.reopen().status()
    assert ("online", 2, 420) == (status.state, status.segments, status.log_bytes)
    assert (10, 20) == (status.first_timestamp, status.last_timestamp)
    assert 12 + 12 == status.index_bytes
    assert 3 == status.offsets.recovery_point


@pytest.mark.slow
def test_readers_in_other_threads_see_one_state_at_a_time():
    """Readers in other threads always see a consistent state.

    A reader never sees a log end that is beyond the segments, and never a repeated or missing offset.
    """
    log = LogOnDisk(internal_segment_bytes=300).log
    stop, problems, readers = threading.Event(), [], 3

    def look() -> None:
        offset = Offset(0)
        while not stop.is_set() or offset < log.log_end_offset:
            state = log.parts.state
            if not state.chain.base_offsets[0] <= state.start_offset <= state.end_offset:
                problems.append(state)
            try:
                fetched = log.read(offset, max_bytes=200)
            except OffsetOutOfRangeError:
                offset = log.log_start_offset
                continue
            if len(fetched.data) and not first_offset_of(fetched) <= offset < fetched.next_offset:
                problems.append((offset, fetched))
            offset = fetched.next_offset

    threads = [threading.Thread(target=look) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for number in range(1000):
        log.append(sized_batch(100))
        if number % 50 == 49:
            log.replacer.delete_oldest_segments(5, "test")
    stop.set()
    for thread in threads:
        thread.join()
    assert [] == problems


def test_a_file_that_ends_early_has_one_window_that_tells_so():
    """If a file is shorter than expected, the reader returns a window with a problem and stops.

    This holds even if the file ends between two batches.
    """
    on_disk = LogOnDisk()
    on_disk.log.append(sized_batch(140))
    file = on_disk.log.chain.active.log
    found = list(islice(windows(file, 0, 280, window_bytes=140), 5))
    assert [(0, 1, None), (140, 0, "the file ends early")] == [
        (each.position, len(each.batches), each.problem and each.problem.cause) for each in found
    ]


@pytest.mark.parametrize("left", [0, 5, 61, 140, 145, 280])
@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda log: log.read(Offset(2), max_bytes=1000), id="read"),
        pytest.param(lambda log: log.locate(Offset(2)), id="locate"),
        pytest.param(lambda log: log.offset_for_timestamp(Timestamp(2)), id="by time"),
        pytest.param(lambda log: log.largest_timestamp(), id="largest time"),
        pytest.param(lambda log: log.open_segment_file(f"{0:020}.log"), id="file"),
    ],
)
def test_a_log_file_that_somebody_cut_is_corrupt(look, left):
    """A truncated log file raises CorruptionError for each kind of access, even after an earlier read."""
    for was_there in (False, True):
        on_disk = LogOnDisk()
        for timestamp in range(3):
            on_disk.log.append(sized_batch(140, timestamp=timestamp))
        if was_there:
            on_disk.log.read(Offset(1), max_bytes=1)
        on_disk.disk.open(DIRECTORY / f"{0:020}.log").truncate(left)
        with pytest.raises(CorruptionError):
            look(on_disk.log)


class AppendingDisk(SimulatedDisk):
    """A disk on which another thread calls `look` whenever an append creates an index file."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        super().__init__()
        self.look, self.looking, self._threads = None, [], threads

    def happens(self, operation, path, *, changes):
        super().happens(operation, path, changes=changes)
        if self.look is not None and operation == "open" and changes and path.name.endswith("index"):
            self.looking.append(self._threads.submit(self.look))
            # Threads that do not need the lock of the log get time to finish. A thread that needs this lock
            # gets its result later.
            wait(self.looking, timeout=0.05)


def test_the_largest_timestamp_is_found_while_a_larger_one_is_appended():
    """While a record with a larger timestamp is appended, `largest_timestamp` returns the old or the new record."""
    with ThreadPoolExecutor() as threads:
        disk = AppendingDisk(threads)
        log = LogOnDisk(disk=disk, index_interval_bytes=0).log
        log.append(batch(b"a", timestamp=5))
        log.appender.roll()
        log.append(batch(b"b", timestamp=6))
        disk.look = log.largest_timestamp
        log.append(batch(b"c", timestamp=7))
        found = [each.result() for each in disk.looking]
    assert found
    assert {(6, 1), (7, 2)} >= {each and (each.timestamp, each.offset) for each in found}


class CutDisk(SimulatedDisk):
    """A disk that calls `change` in the middle of a read."""

    change = None

    def happens(self, operation, path, *, changes):
        super().happens(operation, path, changes=changes)
        if operation == "pread" and self.change is not None:
            change, self.change = self.change, None
            change()


@pytest.mark.parametrize("new", [[], [b"n"], [b"new"]])
def test_a_read_during_a_truncation_shows_what_is_left(new):
    """A read during a truncation raises no error, and returns the records that remain after the truncation."""
    disk = CutDisk()
    log = LogOnDisk(disk=disk).log
    for value in (b"a", b"b", b"c"):
        log.append(batch(value))

    def cut() -> None:
        log.replacer.truncate_to(1)
        for value in new:
            log.append(batch(value))

    disk.change = cut
    fetched = log.read(Offset(1), max_bytes=1000)
    assert new == [record.value for columns in decode(fetched.data) for record in columns]
    assert 1 + len(new) == fetched.next_offset


def first_offset_of(fetched: Fetched) -> int:
    return int.from_bytes(fetched.data[:8], "big")
