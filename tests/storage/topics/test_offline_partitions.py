"""Tests of a partition that cannot be served: it alone is offline, has the reason, and can be reopened."""

from __future__ import annotations

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, listing, read_lines
from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.errors import (
    CorruptionError,
    PartitionGoneError,
    PartitionOfflineError,
    SegmentDeletedError,
)
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Offset, Timestamp


def test_partition_of_another_topic_is_offline(disk: SimulatedDisk, engine: LogManager) -> None:
    """Row 64: a partition with another topic's ID is offline, and the other partitions are served."""
    engine.create_topic("t", partitions=2)
    engine.close()
    disk.write_bytes(DATA / "t-1" / "partition.metadata", b"version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg")
    engine = engine_on(disk)
    append_lines(engine.partition("t", 0), "x\n")
    assert (
        engine.partition("t", 1).status().state.startswith("offline: its topic id is 1EvPSKI_SvihSIy3lMKMvg")
    )
    with pytest.raises(PartitionOfflineError, match="t-1"):
        append_lines(engine.partition("t", 1), "x\n")


def test_damaged_partition_does_not_keep_others_from_opening(disk: SimulatedDisk, engine: LogManager) -> None:
    """Row 32: a damaged partition is offline until it is reopened. Its checkpoint lines stay; the close is unclean."""
    engine.create_topic("t", partitions=2)
    for number in (0, 1):
        append_lines(engine.partition("t", number), "x\ny\n")
    engine.close()
    disk.write_bytes(DATA / "t-1" / "leader-epoch-checkpoint", b"rubbish\n")
    engine = engine_on(disk)
    assert "t-1: offline" in engine.warnings[0]
    assert ["x", "y"] == read_lines(engine.partition("t", 0))
    offline = engine.partition("t", 1)
    for refused in (
        lambda: offline.read(Offset(0), max_bytes=1),
        offline.sync,
        lambda: offline.delete_records(Offset(0)),
        lambda: offline.open_segment_file("x"),
        lambda: offline.offset_for_timestamp(0),  # type: ignore[arg-type]
    ):
        with pytest.raises(PartitionOfflineError, match="leader-epoch-checkpoint"):
            refused()
    engine.close()
    assert ".kafka_cleanshutdown" not in listing(disk)
    assert b"t 1 2\n" in disk.read_bytes(DATA / "recovery-point-offset-checkpoint")

    engine = engine_on(disk)
    with pytest.raises(CorruptionError):
        engine.reopen_partition("t", 1)
    disk.write_bytes(DATA / "t-1" / "leader-epoch-checkpoint", b"0\n1\n0 0\n")
    assert ["x", "y"] == read_lines(engine.reopen_partition("t", 1))
    assert "online" == engine.partition("t", 1).status().state


def test_partition_whose_flush_failed_is_opened_again(disk: SimulatedDisk, engine: LogManager) -> None:
    """A partition whose flush failed refuses writes until it is reopened. It then continues at its recovery point."""
    engine.create_topic("t")
    old = engine.partition("t", 0)
    append_lines(old, "x\n")
    disk.fail("sync", suffix=".log")
    with pytest.raises(OSError, match="log"):
        old.sync()
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "y\n")
    assert engine.partition("t", 0).status().state.startswith("offline")
    again = engine.reopen_partition("t", 0)
    append_lines(again, "z\n")
    assert ["x", "z"] == read_lines(engine.partition("t", 0))
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "y\n")


def test_a_partition_that_is_opened_again_keeps_its_log_start(engine: LogManager) -> None:
    """Reopening keeps a log start that no checkpoint has yet."""
    engine.create_topic("t")
    append_lines(engine.partition("t", 0), "x\ny\nz\n")
    engine.partition("t", 0).delete_records(Offset(2))
    again = engine.reopen_partition("t", 0)
    assert (2, ["z"]) == (again.log_start_offset, read_lines(again))


def test_a_replaced_log_writes_no_file(disk: SimulatedDisk, engine: LogManager) -> None:
    """Background work that waits for a replaced log writes nothing, because the files may belong to a new topic."""
    engine.create_topic("t")
    append_lines(engine.partition("t", 0), "x\n")
    engine.close()
    epochs = DATA / "t-0" / "leader-epoch-checkpoint"
    disk.write_bytes(epochs, b"0\n2\n0 0\n7 9\n")
    flusher = ManualFlusher()
    engine = engine_on(disk, flusher=flusher)
    engine.partition("t", 0)
    engine.reopen_partition("t", 0)
    engine.delete_topic("t")
    engine.create_topic("t")
    before = disk.read_bytes(epochs)
    flusher.run()
    assert before == disk.read_bytes(epochs)


def test_a_replaced_log_cannot_be_read(disk: SimulatedDisk, engine: LogManager) -> None:
    """A replaced log cannot be read, because its files may belong to a new log.

    If the replacement fails, the old log can be read.
    """
    engine.create_topic("t")
    old = engine.partition("t", 0)
    append_lines(old, "x\n")
    epochs = DATA / "t-0" / "leader-epoch-checkpoint"
    sound = disk.read_bytes(epochs)
    disk.write_bytes(epochs, b"rubbish\n")
    with pytest.raises(CorruptionError):
        engine.reopen_partition("t", 0)
    assert ["x"] == read_lines(old)
    with pytest.raises(PartitionOfflineError) as caught:
        append_lines(old, "y\n")
    assert not isinstance(caught.value, PartitionGoneError)
    disk.write_bytes(epochs, sound)
    assert ["x"] == read_lines(engine.reopen_partition("t", 0))
    for refused in (
        lambda: old.read(Offset(0), max_bytes=1),
        lambda: old.open_segment_file("00000000000000000000.log"),
        lambda: old.offset_for_timestamp(Timestamp(0)),
    ):
        with pytest.raises(SegmentDeletedError, match="t-0: the partition was reopened"):
            refused()
    with pytest.raises(PartitionGoneError):
        append_lines(old, "y\n")
