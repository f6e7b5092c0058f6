"""Tests that indexes that are lost, damaged or of another log are rebuilt from the log, or removed."""

from __future__ import annotations

from random import Random

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of
from tests.doubles.records import batch, sized_batch
from tests.storage.recovery.stopped_logs import stopped
from topicfs.storage.log.log import Log

FIRST = "00000000000000000000"


def lose_indexes(on_disk: LogOnDisk) -> None:
    for name in on_disk.index_files():
        on_disk.disk.unlink(DIRECTORY / name)


def fill_indexes_with_garbage(on_disk: LogOnDisk) -> None:
    random = Random(5)
    for name in on_disk.index_files():
        on_disk.write(name, random.randbytes(random.randrange(200)))


def assert_all_are_found(log: Log) -> None:
    """Check that each of the twelve batches of `filled` is found by its offset and by its time."""
    assert list(range(12)) == [log.locate(number).batch.base_offset for number in range(12)]
    assert list(range(12)) == [log.offset_for_timestamp(number * 10).offset for number in range(12)]


@pytest.mark.parametrize("damage", [lose_indexes, fill_indexes_with_garbage])
def test_all_indexes_are_rebuilt(damage):
    """Rows 12 and 34: deleted indexes and indexes of random bytes are rebuilt with the same bytes."""
    on_disk = stopped()
    before = on_disk.index_files()
    damage(on_disk)
    log = on_disk.load(clean=False)
    assert list(range(12)) == offsets_of(log)
    assert_all_are_found(log)
    log.close()
    assert before == on_disk.index_files()


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_rebuilt_from_its_log(clean):
    """A missing `.index` or `.timeindex` is rebuilt after any stop, clean or not."""
    on_disk = stopped()
    before = on_disk.index_files()
    on_disk.disk.unlink(DIRECTORY / f"{FIRST}.index")
    on_disk.disk.unlink(DIRECTORY / f"{3:020}.timeindex")
    log = on_disk.load(clean=clean, recovery_point=12)
    log.close()
    assert before == on_disk.index_files()
    assert list(range(12)) == offsets_of(log)


def damaged_indexes():
    """Yield ways to damage an index: the kind of file, and a function that damages its bytes."""
    for kind, slot in (("index", 8), ("timeindex", 12)):
        yield pytest.param(kind, lambda data: data.ljust(1200, b"\0"), id=f"{kind} never trimmed")
        yield pytest.param(kind, lambda data, slot=slot: data + bytes(slot), id=f"{kind} with an unused slot")
        yield pytest.param(kind, lambda data, slot=slot: data[:-slot] + bytes(slot), id=f"{kind} unwritten")
        yield pytest.param(kind, lambda _data, slot=slot: bytes(slot), id=f"{kind} of an unused slot alone")
        yield pytest.param(kind, lambda data: data[:-1], id=f"{kind} torn")
        yield pytest.param(kind, lambda data: data[:-4] + b"\xff" * 4, id=f"{kind} of another log")
    yield pytest.param("timeindex", lambda _data: b"", id="timeindex without an entry")
    yield pytest.param("timeindex", lambda data: data[12:] + data[:12], id="timeindex that descends")


@pytest.mark.parametrize(("kind", "damage"), list(damaged_indexes()))
@pytest.mark.parametrize("base_offset", [3, 9])
@pytest.mark.parametrize("way", ["clean", "below the recovery point", "read-only", "read-only and clean"])
def test_an_index_that_cannot_belong_to_its_log_is_rebuilt(kind, damage, base_offset, way):
    """A damaged index is rebuilt in any segment, even below the recovery point and in the last segment."""
    on_disk = stopped()
    before = on_disk.index_files()
    name = f"{base_offset:020}.{kind}"
    on_disk.write(name, damage(before[name]))
    reading = "read-only" in way
    log = on_disk.load(
        clean="clean" in way,
        recovery_point=12,
        disk=on_disk.disk.read_only_view() if reading else None,
    )
    assert [20, 50, 80, 110] == [segment.largest_timestamp for segment in log.segments()]
    assert_all_are_found(log)
    log.close()
    assert (damage(before[name]) if reading else before[name]) == on_disk.content(name)


def test_indexes_rebuilt_below_the_recovery_point_are_synced():
    """Indexes that are rebuilt below the recovery point are synced, because no later recovery checks them."""
    on_disk = stopped()
    before = on_disk.index_files()
    for name in before:
        on_disk.write(name, b"")
    on_disk.load(clean=False, recovery_point=9)
    on_disk.disk.crash(keep=0.0)
    below = [name for name in before if name < f"{9:020}"]
    assert [before[name] for name in below] == [on_disk.content(name) for name in below]


def test_a_record_of_1970_has_an_entry_that_reads_as_unused():
    """A time index entry of zeros is valid if the segment's first batch has a single record with timestamp 0."""
    on_disk = LogOnDisk(internal_segment_bytes=300, index_interval_bytes=0)
    for _ in range(6):
        on_disk.log.append(sized_batch(100, timestamp=0))
    on_disk.log.close()
    assert bytes(12) == on_disk.content(f"{FIRST}.timeindex")
    on_disk.disk.calls.clear()
    log = on_disk.load(clean=True)
    assert [] == [path for operation, path in on_disk.disk.calls if operation == "pwrite" and FIRST in path]
    assert [0, 0] == [segment.largest_timestamp for segment in log.segments()]
    on_disk.write("00000000000000000003.timeindex", bytes(12) + bytes(12))
    on_disk.load(clean=True).close()
    assert bytes(12) == on_disk.content("00000000000000000003.timeindex")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(
    ("first_time", "content"), [(0, bytes(12)), (-1, b"")], ids=["an entry of zeros", "no entry"]
)
def test_a_time_index_without_a_time_is_rebuilt_if_later_records_have_times(first_time, content, clean):
    """A time index that is empty or has only an entry of zeros is rebuilt if later records have timestamps.

    Otherwise retention would use the file's time, or take the records for records of 1970.
    """
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for timestamp in (first_time, 5, 7, 9):
        on_disk.log.append(sized_batch(100, timestamp=timestamp))
    on_disk.log.close()
    before = on_disk.index_files()
    on_disk.write(f"{FIRST}.timeindex", content)
    log = on_disk.load(clean=clean, recovery_point=4)
    assert [7, 9] == [segment.largest_timestamp for segment in log.segments()]
    assert 1 == log.offset_for_timestamp(5).offset
    log.close()
    assert before == on_disk.index_files()


def test_an_empty_time_index_is_right_where_no_record_has_a_time():
    """An empty time index is valid if no record has a timestamp."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for _ in range(4):
        on_disk.log.append(sized_batch(100, timestamp=-1))
    on_disk.log.close()
    assert b"" == on_disk.content(f"{FIRST}.timeindex")
    on_disk.disk.calls.clear()
    on_disk.load(clean=True)
    assert [] == [path for operation, path in on_disk.disk.calls if operation == "pwrite" and FIRST in path]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_garbage_in_the_last_segments_index_after_a_clean_stop_is_replaced(suffix):
    """After a clean stop the last segment's index is replaced if it has random bytes, however many."""
    whole = stopped(internal_segment_bytes=10_000)
    name = f"{FIRST}.{suffix}"
    before = whole.content(name)
    for seed in range(40):
        random = Random(seed)
        whole.write(name, random.randbytes(random.choice([1, 7, 8, 12, 24, 96, 120])))
        log = whole.load(clean=True)
        assert list(range(12)) == offsets_of(log)
        assert_all_are_found(log)
        log.close()
        assert before == whole.content(name), seed


def test_indexes_without_a_log_are_removed():
    """Row 35: indexes without a `.log` are removed, and other files stay."""
    on_disk = stopped(2)
    lonely = {f"{2:020}.index", f"{5:020}.timeindex", f"{5:020}.txnindex"}
    kept = {f"{0:020}.view", "notes"}
    for name in lonely | kept:
        on_disk.write(name, b"x" * 24)
    on_disk.load(clean=False)
    assert kept == (lonely | kept) & set(on_disk.names())


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_active_segment_without_indexes(clean):
    """Row 52: the missing indexes of an empty active segment are created."""
    on_disk = stopped(3)
    on_disk.write(f"{3:020}.log", b"")
    log = on_disk.load(clean=clean)
    assert [0, 3] == [segment.base_offset for segment in log.segments()]
    assert 1200 == len(on_disk.content("00000000000000000003.index"))
    assert 3 == log.append(batch(b"next")).base_offset


def test_a_clean_start_trims_an_untrimmed_index():
    """A clean start trims an untrimmed index, so that the index's zeros are not read as entries."""
    on_disk = stopped(2)
    on_disk.write(f"{FIRST}.index", on_disk.content(f"{FIRST}.index").ljust(1200, b"\0"))
    on_disk.log = on_disk.load(clean=True)
    on_disk.log.append(sized_batch(80))
    assert [0] == on_disk.base_offsets()
