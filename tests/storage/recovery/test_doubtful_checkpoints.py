"""Tests that a checkpoint beyond the log's end never deletes a record or skips a segment."""

from __future__ import annotations

import re

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of
from tests.doubles.simulated_disk import SimulatedDisk
from tests.storage.recovery.stopped_logs import cut, log_file, of_epochs, overwrite, stopped
from topicfs.storage.disk import names
from topicfs.storage.errors import CorruptionError, PartitionOfflineError


@pytest.fixture
def disk():
    """A cleanly closed data directory with one partition of three records and the log start 1."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    engine.create_topic("t", partitions=1)
    for line in ("a", "b", "c"):
        append_lines(engine.partition("t", 0), line + "\n")
    engine.partition("t", 0).delete_records(1)
    engine.close()
    return disk


def put_offset(disk, name, offset):
    """Write `offset` as the partition's offset into the checkpoint file `name`."""
    disk.write_bytes(DATA / name, b"0\n1\nt 0 %d\n" % offset)


def test_a_log_start_beyond_the_end_takes_the_partition_offline(disk):
    """If the log start is beyond the log's end, the partition is offline, and the status has reason and remedy.

    No start deletes a file, and the partition is online again after the checkpoint was corrected.
    """
    put_offset(disk, names.LOG_START_OFFSETS, 91)
    content = disk.read_bytes(DATA / "t-0" / log_file(0))
    for _ in range(2):
        engine = engine_on(disk)
        state = engine.partition("t", 0).status().state
        assert f"{names.LOG_START_OFFSETS}: " in state
        assert "t-0: log start 91 is beyond the log's end 3" in state
        assert re.search("correct or remove the line", state)
        with pytest.raises(PartitionOfflineError):
            append_lines(engine.partition("t", 0), "d\n")
        engine.close()
        assert content == disk.read_bytes(DATA / "t-0" / log_file(0))
    put_offset(disk, names.LOG_START_OFFSETS, 1)
    engine = engine_on(disk)
    assert ["b", "c"] == read_lines(engine.partition("t", 0))
    engine.close()


def test_a_log_start_is_confirmed_before_it_is_kept(disk):
    """Each write of a log start also writes the high watermark.

    If a power loss then removes the end of the log, the high watermark shows that the log start is not a mistake.
    """
    engine = engine_on(disk)
    partition = engine.partition("t", 0)
    append_lines(partition, "d\ne\n")
    partition.delete_records(5)
    engine.keep_log_starts()
    assert b"t 0 5\n" in disk.read_bytes(DATA / names.LOG_START_OFFSETS)
    assert b"t 0 5\n" in disk.read_bytes(DATA / names.HIGH_WATERMARKS)
    disk.crash(keep=0.0)
    engine = engine_on(disk)
    assert "online" == engine.partition("t", 0).status().state
    assert 5 == append_lines(engine.partition("t", 0), "f\n").base_offset
    engine.close()


@pytest.mark.parametrize("clean", [True, False])
def test_no_second_checkpoint_confirms_the_start(clean):
    """If the log ends below the log start, nothing is deleted, whether or not the log was closed cleanly."""
    on_disk = stopped(6)
    before = {name: on_disk.content(name) for name in on_disk.names() if name.endswith(".log")}
    with pytest.raises(CorruptionError, match="log start 60 is beyond the log's end 6"):
        on_disk.load(clean=clean, log_start_offset=60, recovery_point=59, reached=59)
    assert before == {name: on_disk.content(name) for name in on_disk.names() if name.endswith(".log")}
    assert list(range(6)) == offsets_of(on_disk.load(clean=clean))


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_without_a_record_begins_at_its_start(clean):
    """An empty log starts at the checkpointed start, because this deletes no record."""
    on_disk = LogOnDisk()
    on_disk.log.close()
    log = on_disk.load(clean=clean, log_start_offset=60)
    assert (60, 60) == (log.log_start_offset, log.log_end_offset)


def test_a_recovery_point_beyond_the_end_skips_no_segment():
    """If the recovery point is beyond the log's end, recovery begins at the first segment."""
    on_disk = stopped()
    overwrite(on_disk, 3, -1, b"\xff")
    log = on_disk.load(clean=False, recovery_point=120)
    assert (5, 0) == (log.log_end_offset, log.recovery_point)


def test_a_gap_below_the_recovery_point_on_disk_stays():
    """A gap below the recovery point stays.

    This holds even if the log now ends below the recovery point and recovery begins before the gap.
    """
    on_disk = stopped()
    on_disk.disk.unlink(DIRECTORY / log_file(3))
    cut(on_disk, 9, -1)
    point = 12
    for _ in range(2):
        log = on_disk.load(clean=False, dense=True, recovery_point=point)
        assert [0, 1, 2, 6, 7, 8, 9, 10] == offsets_of(log)
        point = log.recovery_point


def test_damage_at_the_end_does_not_make_the_recovery_point_doubtful():
    """If the last batch reaches the recovery point and is damaged, segments below this point are not recovered."""
    on_disk = stopped()
    for base_offset in (3, 9):
        overwrite(on_disk, base_offset, -1, b"\xff")
    log = on_disk.load(clean=False, recovery_point=12)
    assert (11, 11) == (log.log_end_offset, log.recovery_point)


@pytest.mark.parametrize(
    "content", [b"0\n1\nt 0 5\n", b"0\n1\nt 0 garbage\n"], ids=["beyond the end", "unreadable"]
)
def test_a_first_dirty_offset_in_doubt_is_the_log_start(disk, content):
    """A wrong first dirty offset in the checkpoint counts as the log start.

    The partition's line stays in the checkpoint. Such a line shows that the log may have gaps.
    """
    disk.write_bytes(DATA / names.CLEANER_OFFSETS, content)
    engine = engine_on(disk)
    assert 1 == engine.partition("t", 0).parts.first_dirty_offset
    engine.close()
    assert b"t 0 1\n" in disk.read_bytes(DATA / names.CLEANER_OFFSETS)


@pytest.mark.parametrize("clean", [True, False])
def test_an_epoch_that_the_log_has_is_not_dropped(clean):
    """If an epoch in the file starts beyond the log's end although batches have this epoch, the log is not loaded."""
    on_disk = of_epochs({0: 0, 1: 1, 2: 2})
    on_disk.write(names.LEADER_EPOCHS, b"0\n3\n0 0\n1 1\n2 22\n")
    with pytest.raises(CorruptionError, match="epoch 2 starts at 22, beyond the log's end 3"):
        on_disk.load(clean=clean)
    assert b"0\n3\n0 0\n1 1\n2 22\n" == on_disk.content(names.LEADER_EPOCHS)


def test_an_epoch_whose_batches_were_lost_is_dropped():
    """An epoch in the file is dropped if its first batch was lost, so that no batch has this epoch."""
    on_disk = of_epochs({0: 0, 1: 0, 2: 0})
    on_disk.write(names.LEADER_EPOCHS, b"0\n2\n0 0\n1 5\n")
    assert ((0, 0),) == on_disk.load(clean=False).epochs.entries


def test_a_base_offset_in_doubt_is_no_reason_to_keep_a_log_offline():
    """A flipped bit in the first base offset is repaired, and does not take the log offline."""
    on_disk = of_epochs({0: 0, 1: 0, 2: 0})
    on_disk.disk.unlink(DIRECTORY / names.LEADER_EPOCHS)
    overwrite(on_disk, 0, 6, b"\2")
    assert 3 == on_disk.load(clean=False).log_end_offset
