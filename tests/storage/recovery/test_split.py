"""Tests that a segment whose offsets do not fit its indexes is split without loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of, records_of
from tests.doubles.records import batch
from tests.storage.recovery.stopped_logs import sync_all
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.model import Offset

BEYOND = 2**31
"""The first offset that an index with base offset 0 cannot hold."""

FIRST = segment_file(Offset(0), SegmentFileKind.LOG)


def with_segment(*offsets: int, tail: bytes = b"", **settings) -> LogOnDisk:
    """Return an unflushed log with one segment at 0. The segment has a batch of one record at each of `offsets`."""
    on_disk = LogOnDisk(**settings)
    on_disk.log.close()
    data = b"".join(
        bytes(batch(b"at %d" % offset, offset=offset, timestamp=10 + number))
        for number, offset in enumerate(offsets)
    )
    for name in on_disk.names():
        on_disk.disk.unlink(DIRECTORY / name)
    on_disk.write(FIRST, data + tail)
    return on_disk


def recovered(*offsets: int, tail: bytes = b"") -> LogOnDisk:
    """Make the log with `with_segment`, kill its process, and return the recovered log."""
    on_disk = with_segment(*offsets, tail=tail)
    on_disk.kill()
    return on_disk


def expected(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, b"at %d" % offset) for offset in offsets]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("offsets", "bases"),
    [
        ((0, 5, BEYOND + 1), [0, BEYOND + 1]),
        ((0, BEYOND + 5, BEYOND + 6), [0, BEYOND + 5]),
        ((BEYOND, BEYOND + 1), [0, BEYOND]),
        ((0, BEYOND - 1, BEYOND, BEYOND + 1), [0, BEYOND]),
        ((3, BEYOND, 2 * BEYOND - 1, 2 * BEYOND, 5 * BEYOND), [0, BEYOND, 2 * BEYOND, 5 * BEYOND]),
        ((BEYOND + 7, BEYOND + 8), [0, BEYOND + 7]),
    ],
)
def test_a_segment_is_split_where_the_indexes_end(indexed, offsets, bases):
    """Row 40: a segment is split without loss, even if its first batch is already out of range."""
    on_disk = with_segment(*offsets)
    if indexed:
        on_disk.write(FIRST.replace(".log", ".index"), b"")
    on_disk.kill()
    assert bases == on_disk.base_offsets()
    assert expected(*offsets) == records_of(on_disk.log)
    assert [] == on_disk.temporary_files()
    found = on_disk.log.offset_for_timestamp(10 + len(offsets) - 1)
    assert found is not None
    assert offsets[-1] == found.offset
    assert expected(*offsets) == records_of(on_disk.reopen())
    assert offsets[-1] + 1 == on_disk.log.append(batch(b"next")).base_offset


def test_a_segment_is_split_below_the_recovery_point_too():
    """A segment below the recovery point is split when its missing index is rebuilt."""
    offsets = (0, 5, BEYOND + 1)
    on_disk = with_segment(*offsets, index_interval_bytes=0)
    on_disk.write(segment_file(Offset(3 * BEYOND), SegmentFileKind.LOG), b"")
    on_disk.kill(recovery_point=3 * BEYOND)
    assert [0, BEYOND + 1, 3 * BEYOND] == on_disk.base_offsets()
    assert expected(*offsets) == records_of(on_disk.log)
    assert [] == on_disk.temporary_files()
    on_disk.log.close()
    sizes = [len(on_disk.content(name)) for name in on_disk.names() if name.endswith(".index")]
    assert [8, 0] == sizes[:2]


def test_after_a_clean_stop_no_segment_is_split():
    """After a clean stop a segment with indexes is not split, and the next append rolls the log."""
    on_disk = with_segment(0, BEYOND + 1)
    on_disk.write(FIRST.replace(".log", ".index"), b"")
    on_disk.write(FIRST.replace(".log", ".timeindex"), (10).to_bytes(8, "big") + bytes(4))
    on_disk.log = on_disk.load(clean=True)
    assert [0] == on_disk.base_offsets()
    on_disk.log.append(batch(b"next"))
    assert [0, BEYOND + 2] == on_disk.base_offsets()
    assert [0, BEYOND + 1, BEYOND + 2] == offsets_of(on_disk.log)


def test_the_segments_beside_it_stay():
    """Splitting a segment keeps the other segments."""
    on_disk = with_segment(0, BEYOND)
    on_disk.write(
        segment_file(Offset(BEYOND + 5), SegmentFileKind.LOG), bytes(batch(b"last", offset=BEYOND + 5))
    )
    on_disk.kill()
    assert [0, BEYOND, BEYOND + 5] == on_disk.base_offsets()
    assert [0, BEYOND, BEYOND + 5] == offsets_of(on_disk.log)


def test_a_torn_tail_is_cut_from_the_last_part():
    """A torn end is removed from the last part of a split segment."""
    on_disk = recovered(0, BEYOND, tail=bytes(batch(b"torn", offset=BEYOND + 1))[:-1])
    assert [0, BEYOND] == offsets_of(on_disk.log)
    assert len(batch(b"at %d" % BEYOND)) == on_disk.log.segments()[-1].size_bytes


def test_batches_below_the_base_offset_are_cut():
    """A batch below the segment's base offset counts as damaged, and is removed."""
    on_disk = with_segment(7)
    on_disk.disk.rename(DIRECTORY / FIRST, DIRECTORY / segment_file(Offset(10), SegmentFileKind.LOG))
    on_disk.kill()
    assert (10, 10) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)


@pytest.mark.parametrize("first", [3, BEYOND])
def test_offsets_that_go_back_are_damage(first):
    """A batch whose successor has a smaller offset is damaged, and the segment is not split."""
    on_disk = recovered(0, first + BEYOND, first)
    assert [0] == on_disk.base_offsets()
    assert [0] == offsets_of(on_disk.log)


def test_damage_behind_the_split_is_cut_from_the_last_part():
    """Damage after the split point is removed, and earlier batches stay."""
    on_disk = recovered(0, BEYOND, BEYOND + 1, BEYOND + 1, BEYOND + 2)
    assert [0, BEYOND, BEYOND + 1] == offsets_of(on_disk.log)


def test_a_dense_log_has_no_offsets_far_apart():
    """In a log without gaps a batch with a distant offset counts as damaged."""
    on_disk = with_segment(0, BEYOND)
    assert [0] == offsets_of(on_disk.load(clean=False, dense=True))


def test_a_read_only_load_shows_records_below_the_split():
    """A read-only load shows the records up to the end of the indexes, and keeps the segment."""
    on_disk = with_segment(0, 5, BEYOND + 1)
    names = on_disk.names()
    shown = on_disk.load(clean=False, disk=on_disk.disk.read_only_view())
    assert [0, 5] == offsets_of(shown)
    assert names == on_disk.names()


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("operation", ["open", "pwrite", "rename", "sync", "sync_directory", "unlink"])
def test_a_crash_at_any_step_loses_nothing(operation, keep):
    """After a crash at any step all records are stored, in the old segment or in the new ones."""
    offsets = (0, BEYOND, BEYOND + 1, 2 * BEYOND)
    steps = 0
    for after in range(60):
        on_disk = with_segment(*offsets)
        sync_all(on_disk.disk)
        on_disk.disk.fail(operation, after=after)
        try:
            on_disk.load(clean=False)
        except OSError:
            steps += 1
        else:
            break
        on_disk.disk.heal()
        on_disk.crash(keep=keep)
        assert expected(*offsets) == records_of(on_disk.log)
        assert [] == on_disk.temporary_files()
        assert [0, BEYOND, 2 * BEYOND] == on_disk.base_offsets()
    assert steps


def test_the_parts_keep_the_time_of_the_old_segment():
    """The parts keep the time of the old file, because retention uses it if records have no timestamps."""
    on_disk = with_segment(0, BEYOND)
    on_disk.disk.set_modified_time(Path(DIRECTORY / FIRST), 123_456)
    on_disk.kill()
    assert [123_456, 123_456] == [segment.modified_time for segment in on_disk.log.chain.segments]
