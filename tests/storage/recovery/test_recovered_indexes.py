"""Tests that indexes that are lost, damaged or of another log are rebuilt from the log, or removed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.doubles.logs import LogOnDisk, filled, offsets_of
from tests.doubles.records import batch, sized_batch

FIRST = "00000000000000000000"


def test_lost_indexes_are_rebuilt():
    """Row 34: deleted indexes are rebuilt with the same bytes."""
    on_disk = filled()
    on_disk.log.close()
    before = on_disk.index_files()
    for name in before:
        on_disk.disk.unlink(Path("/data/orders-0") / name)
    log = on_disk.load(clean=False)
    assert list(range(12)) == offsets_of(log)
    assert list(range(12)) == [log.offset_for_timestamp(n * 10).offset for n in range(12)]
    log.close()
    assert before == on_disk.index_files()


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_rebuilt_from_its_log(clean):
    """A missing `.index` or `.timeindex` is rebuilt after any stop, clean or not."""
    on_disk = filled()
    on_disk.log.close()
    before = on_disk.index_files()
    on_disk.disk.unlink(Path(f"/data/orders-0/{FIRST}.index"))
    on_disk.disk.unlink(Path("/data/orders-0/00000000000000000003.timeindex"))
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
    on_disk = filled()
    on_disk.log.close()
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
    assert list(range(12)) == [log.offset_for_timestamp(n * 10).offset for n in range(12)]
    assert list(range(12)) == [log.locate(n).batch.base_offset for n in range(12)]
    log.close()
    assert (damage(before[name]) if reading else before[name]) == on_disk.content(name)


def test_indexes_rebuilt_below_the_recovery_point_are_synced():
    """Indexes that are rebuilt below the recovery point are synced, because no later recovery checks them."""
    on_disk = filled()
    on_disk.log.close()
    before = on_disk.index_files()
    for name in before:
        on_disk.write(name, b"")
    on_disk.load(clean=False, recovery_point=9)
    on_disk.disk.crash(keep=0.0)
    assert {name: before[name] for name in before if name < "00000000000000000009"} == {
        name: data for name, data in on_disk.index_files().items() if name < "00000000000000000009"
    }


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
def test_an_entry_of_zeros_is_rebuilt_if_later_records_have_times(clean):
    """If later records have timestamps, a time index with only an entry of zeros is rebuilt.

    Otherwise retention would take the records for records of 1970.
    """
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for timestamp in (0, 5, 7, 9):
        on_disk.log.append(sized_batch(100, timestamp=timestamp))
    on_disk.log.close()
    before = on_disk.index_files()
    on_disk.write(f"{FIRST}.timeindex", bytes(12))
    log = on_disk.load(clean=clean, recovery_point=4)
    assert [7, 9] == [segment.largest_timestamp for segment in log.segments()]
    assert 1 == log.offset_for_timestamp(5).offset
    log.close()
    assert before == on_disk.index_files()


@pytest.mark.parametrize("clean", [False, True])
def test_an_empty_time_index_is_rebuilt_if_later_records_have_times(clean):
    """An empty time index is rebuilt if later records have times, because retention would use the file's time."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for timestamp in (-1, 5, 7, 9):
        on_disk.log.append(sized_batch(100, timestamp=timestamp))
    on_disk.log.close()
    before = on_disk.index_files()
    on_disk.write(f"{FIRST}.timeindex", b"")
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


def test_garbage_in_indexes_is_replaced():
    """Rows 12 and 34: indexes of random bytes are rebuilt, so that all offsets and times are found."""
    on_disk = filled()
    on_disk.log.close()
    before = on_disk.index_files()
    random = Random(5)
    for name in before:
        on_disk.write(name, random.randbytes(random.randrange(200)))
    log = on_disk.load(clean=False)
    for number in range(12):
        assert number == log.locate(number).batch.base_offset
        assert number == log.offset_for_timestamp(number * 10).offset
    log.close()
    assert before == on_disk.index_files()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_garbage_in_the_last_segments_index_after_a_clean_stop_is_replaced(suffix):
    """After a clean stop the last segment's index is replaced if it has random bytes, however many."""
    whole = filled(internal_segment_bytes=10_000)
    whole.log.close()
    name = f"{FIRST}.{suffix}"
    before = whole.content(name)
    for seed in range(40):
        random = Random(seed)
        whole.write(name, random.randbytes(random.choice([1, 7, 8, 12, 24, 96, 120])))
        log = whole.load(clean=True)
        assert list(range(12)) == offsets_of(log)
        assert list(range(12)) == [log.offset_for_timestamp(10 * number).offset for number in range(12)]
        log.close()
        assert before == whole.content(name), seed


def test_indexes_without_a_log_are_removed():
    """Row 35: indexes without a `.log` are removed, and other files stay."""
    on_disk = filled(2)
    on_disk.log.close()
    for name in (
        "00000000000000000002.index",
        "00000000000000000005.timeindex",
        "00000000000000000005.txnindex",
    ):
        on_disk.write(name, b"x" * 24)
    kept = {"00000000000000000000.view": b"ours", "notes": b"theirs"}
    for name, data in kept.items():
        on_disk.write(name, data)
    on_disk.load(clean=False)
    assert set(kept) < set(on_disk.names())
    assert not {"00000000000000000002.index", "00000000000000000005.timeindex"} & set(on_disk.names())
    assert "00000000000000000005.txnindex" not in on_disk.names()


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_active_segment_without_indexes(clean):
    """Row 52: the missing indexes of an empty active segment are created."""
    on_disk = filled(3)
    on_disk.log.close()
    on_disk.write("00000000000000000003.log", b"")
    log = on_disk.load(clean=clean)
    assert [0, 3] == [segment.base_offset for segment in log.segments()]
    assert 1200 == len(on_disk.content("00000000000000000003.index"))
    assert 3 == log.append(batch(b"next")).base_offset


def test_a_clean_start_trims_an_untrimmed_index():
    """A clean start trims an untrimmed index, so that the index's zeros are not read as entries."""
    on_disk = filled(2)
    on_disk.log.close()
    on_disk.write(f"{FIRST}.index", on_disk.content(f"{FIRST}.index").ljust(1200, b"\0"))
    on_disk.log = on_disk.load(clean=True)
    on_disk.log.append(sized_batch(80))
    assert [0] == on_disk.base_offsets()
