"""Tests of loading a directory: which files are completed, which are not changed, and the resulting offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.logs import LogOnDisk, filled, offsets_of
from tests.doubles.manual_flusher import ManualFlusher
from tests.storage.recovery.stopped_logs import of_epochs, overwrite, stopped
from topicfs.storage.disk.names import LEADER_EPOCHS
from topicfs.storage.errors import InvalidNameError
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.segment.roll import SegmentDirectory

FIRST = "00000000000000000000"


def test_an_empty_directory_is_an_empty_log():
    """Row 56: a log without a segment gets an empty segment at offset 0 or at the checkpointed start."""
    on_disk = LogOnDisk()
    assert (0, 0) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)
    assert [
        f"{FIRST}.index",
        f"{FIRST}.log",
        f"{FIRST}.timeindex",
        LEADER_EPOCHS,
    ] == on_disk.names()
    other = LogOnDisk()
    for name in other.names():
        other.disk.unlink(Path("/data/orders-0") / name)
    log = other.load(clean=True, log_start_offset=7)
    assert (7, 7) == (log.log_start_offset, log.log_end_offset)


def test_a_directory_that_is_no_partitions():
    """The partition's name is the directory's name. If this is not a partition's name, InvalidNameError is raised."""
    on_disk = LogOnDisk()
    on_disk.disk.make_directory(Path("/data/nothing"))
    nothing = SegmentDirectory(Path("/data/nothing"), on_disk.disk, on_disk.clock)
    with pytest.raises(InvalidNameError):
        load_log(nothing, on_disk.config, clean=True)
    assert ("orders", 0) == (on_disk.log.topic, on_disk.log.number)


@pytest.mark.parametrize("recovery_point", [0, 10, 12])
def test_the_same_log_comes_back(recovery_point):
    """Row 33: the end of the log and its indexes are the same after a clean stop and after an unclean stop.

    The last entry of the time index has the largest timestamp.
    """
    on_disk = filled()
    on_disk.log.sync()
    active = on_disk.log.chain.active
    before = (list(active.offset_index), active.time_index.entries)
    on_disk.reopen()
    after_clean = on_disk.log.chain.active
    assert before[0] == list(after_clean.offset_index)
    assert (110, 11) == after_clean.time_index.last
    on_disk.kill(recovery_point=recovery_point)
    active = on_disk.log.chain.active
    assert (12, before[0]) == (on_disk.log.log_end_offset, list(active.offset_index))
    assert (110, 11) == active.time_index.last
    assert recovery_point == on_disk.log.offsets().recovery_point
    on_disk.log.sync()
    assert 12 == on_disk.log.offsets().recovery_point


def test_a_clean_start_sets_the_recovery_point():
    """After a clean close the recovery point is the log's end."""
    on_disk = filled()
    assert 12 == on_disk.reopen(recovery_point=3).recovery_point


def test_deleted_files_vanish():
    """Row 36: leftover `.deleted` files are unlinked when the log is loaded."""
    on_disk = filled()
    on_disk.log.replacer.delete_oldest_segments(2, "test")
    assert any(name.endswith(".deleted") for name in on_disk.names())
    on_disk.reopen()
    assert [] == [name for name in on_disk.names() if name.endswith(".deleted")]
    assert 6 == on_disk.log.log_start_offset


def test_truncation_after_a_restart():
    """Row 37: after a restart the log can be truncated to offset 3."""
    on_disk = filled(5, internal_segment_bytes=10_000)
    on_disk.reopen()
    on_disk.log.replacer.truncate_to(3)
    assert [0] == on_disk.base_offsets()
    assert (3, [0, 1, 2]) == (on_disk.log.log_end_offset, offsets_of(on_disk.log))


def test_segments_below_the_recovery_point_are_not_read():
    """Recovery begins at the segment with the recovery point, so that damage before it is not noticed."""
    on_disk = stopped()
    overwrite(on_disk, 0, -1, b"\xff")
    assert 12 == on_disk.load(clean=False, recovery_point=3).log_end_offset
    assert 2 == on_disk.load(clean=False, recovery_point=2).log_end_offset


def test_a_clean_start_looks_at_nothing():
    """Neither topicfs nor a broker notices a flipped byte at a clean start."""
    on_disk = stopped(3)
    overwrite(on_disk, 0, -1, b"\xff")
    assert 3 == on_disk.load(clean=True).log_end_offset


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ({0: 1, 1: 2, 2: 2, 3: 3}, ((1, 0), (2, 1), (3, 3))),
        ({104: 0, 106: 1, 108: 1, 110: 2}, ((0, 104), (1, 106), (2, 110))),
    ],
    ids=["from 0", "with gaps"],
)
def test_lost_epochs_come_back(batches, expected):
    """Rows 14 and 48: lost epochs are rebuilt from the batches. An entry has an epoch and its first offset."""
    on_disk = of_epochs(batches)
    on_disk.write(LEADER_EPOCHS, b"")
    assert expected == on_disk.load(clean=False).epochs.entries


def test_epochs_outside_the_log_go():
    """Epochs at or after the log's end are dropped. Epochs before the start become one epoch that begins there."""
    on_disk = of_epochs({offset: offset for offset in range(6)})
    on_disk.write(LEADER_EPOCHS, b"0\n6\n0 0\n1 1\n2 2\n4 4\n5 5\n9 9\n")
    log = on_disk.load(clean=True, log_start_offset=3)
    assert ((2, 3), (4, 4), (5, 5)) == log.epochs.entries


def test_the_file_of_epochs_follows_what_loading_dropped():
    """The epoch file is updated in the background after loading, as in a broker, unless the disk is full."""
    on_disk = of_epochs({0: 0, 1: 1, 2: 2})
    on_disk.flusher = flusher = ManualFlusher()
    stale = b"0\n4\n0 0\n1 1\n2 2\n9 9\n"
    on_disk.write(LEADER_EPOCHS, stale)
    on_disk.load(clean=False, log_start_offset=1)
    assert stale == on_disk.content(LEADER_EPOCHS)
    on_disk.disk.fill(0)
    assert 1 == flusher.run()
    assert stale == on_disk.content(LEADER_EPOCHS)
    on_disk.disk.fill(None)
    on_disk.load(clean=False, log_start_offset=1)
    assert 1 == flusher.run()
    assert b"0\n2\n1 1\n2 2\n" == on_disk.content(LEADER_EPOCHS)
    on_disk.load(clean=False, log_start_offset=1)
    assert 0 == flusher.run()


def test_checkpointed_offsets_are_kept_within_the_log():
    """The log start is at least the first base offset. The high watermark and recovery point are within the log."""
    on_disk = filled(6)
    on_disk.log.replacer.delete_oldest_segments(1, "test")
    log = on_disk.reopen(log_start_offset=1, high_watermark=1)
    assert (3, 3) == (log.log_start_offset, log.high_watermark)
    log.close()
    log = on_disk.load(clean=False, log_start_offset=5, high_watermark=99, recovery_point=99)
    assert (5, 6, 0) == (log.log_start_offset, log.high_watermark, log.recovery_point)
