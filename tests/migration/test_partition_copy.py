"""Copies of a partition's files: which files are copied, and what is left after a power loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.doubles import handover
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import read_records
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.migration.partition_copy import PartitionCopy, copy_partition
from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.checkpoints.leader_epochs import decode_epochs
from topicfs.storage.codec.batch import scan
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk import names
from topicfs.storage.model import TopicPartition
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.segment.roll import SegmentDirectory

pytestmark = pytest.mark.slow


def leave_unused_slots(disk: SimulatedDisk, directory: Path) -> None:
    """Leave unused slots in the indexes of a sealed segment, as a kill during a roll does."""
    for partition in ("orders-0", "orders-1", "trimmed-0"):
        for kind in ("index", "timeindex"):
            name = directory / partition / f"{0:020}.{kind}"
            disk.write_bytes(name, disk.read_bytes(name).ljust(1200, b"\0"))


def indexes_of(disk: SimulatedDisk, directory: Path) -> dict[str, bytes]:
    """Return the contents of sealed segments' indexes by partition and name."""
    found = {path: data for path, data in handover.below(disk, directory).items() if path.endswith("index")}
    return {"/".join(Path(path).parts[-2:]): data for path, data in found.items() if f"{0:020}" in path}


@pytest.mark.parametrize("way", ["handover", "takeover"])
def test_indexes_with_unused_slots_do_not_go_along(way: str) -> None:
    """The new owner would trust indexes with unused slots, so copying checks indexes even after a clean close."""
    source, target = (
        (handover.DATA, handover.LOG_DIR) if way == "handover" else (handover.LOG_DIR, handover.DATA)
    )
    disk, wanted = handover.prepared_disk(source)
    leave_unused_slots(disk, source)
    assert all(data.endswith(bytes(12)) for data in indexes_of(disk, source).values())
    if way == "handover":
        handover.given(disk).prepare(handover.OwnCluster(disk))
        handover.given(disk).place()
    else:
        handover.taken(disk)
    assert 6 == len(indexes_of(disk, target))
    assert [] == [name for name, data in indexes_of(disk, target).items() if data.endswith(bytes(12))]
    assert wanted == handover.contents(disk, target)


def test_leader_epochs_are_lowered_to_the_brokers() -> None:
    """A copy for a broker lowers each leader epoch that is above the broker's leader epoch.

    Here the broker leads in epoch 5. A batch of epoch 7 gets epoch 5, and a batch of epoch 3 keeps its epoch. The
    checksums do not change.
    """
    disk = SimulatedDisk()
    for directory in (handover.DATA, handover.LOG_DIR):
        disk.make_directory(directory)
    source = handover.DATA / "orders-0"
    disk.make_directory(source)
    config = EngineConfig().topic_defaults
    log = load_log(SegmentDirectory(source, disk, ManualClock(handover.NOW)), config, clean=True)
    for epoch, first in ((3, 0), (3, 2), (7, 4)):
        follower = handover.numbered(first, 2)
        follower[0:8], follower[12:16] = first.to_bytes(8), epoch.to_bytes(4)
        log.appender.append_as_follower(follower)
    records = read_records(log)
    log.close()
    copy = PartitionCopy(
        partition=TopicPartition("orders", 0),
        source=source,
        target=handover.LOG_DIR / "orders-0",
        topic_id=encode_id(UUID(int=1 << 127)),
        highest_epoch=5,
    )
    assert copy_partition(disk, copy)
    assert not copy_partition(disk, copy)
    data = disk.read_bytes(handover.LOG_DIR / "orders-0" / f"{0:020d}.log")
    assert [3, 3, 5] == [each.leader_epoch for each in scan(data, check_crc=True)]
    path = handover.LOG_DIR / "orders-0" / names.LEADER_EPOCHS
    assert ((3, 0), (5, 4)) == decode_epochs(disk.read_bytes(path), file=path)
    placed = load_log(
        SegmentDirectory(handover.LOG_DIR / "orders-0", disk, ManualClock(handover.NOW)), config, clean=False
    )
    assert records == read_records(placed)


def test_a_copy_survives_a_power_loss() -> None:
    """When the copy is in place, every file and every file name survives a power loss."""
    disk, _ = handover.prepared_disk(handover.DATA)
    copy = copy_of(TopicPartition("orders", 0))
    assert copy_partition(disk, copy)
    before = {Path(path).name: data for path, data in handover.below(disk, copy.source).items()}
    disk.crash(keep=0.0)
    after = {Path(path).name: data for path, data in handover.below(disk, copy.target).items()}
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {names.PARTITION_METADATA}


def test_indexes_of_a_log_that_nobody_closed_are_left_behind() -> None:
    """The last segment's indexes may be half-written and are rebuilt; indexes of other segments are copied."""
    disk, _ = handover.prepared_disk(handover.DATA)
    copy = replace(copy_of(TopicPartition("orders", 0)), recovered=False)
    present = sorted(Path(path).name for path in handover.below(disk, copy.source))
    last = max(name.partition(".")[0] for name in present if name.endswith(".log"))
    assert copy_partition(disk, copy)
    assert [name for name in present if name not in (f"{last}.index", f"{last}.timeindex")] == sorted(
        Path(path).name for path in handover.below(disk, copy.target)
    )
    assert any(name.endswith(".index") for name in present if not name.startswith(last))


def copy_of(partition: TopicPartition) -> PartitionCopy:
    name = names.partition_directory(partition)
    return PartitionCopy(
        partition=partition,
        source=handover.DATA / name,
        target=handover.LOG_DIR / name,
        topic_id=encode_id(UUID(int=1 << 127)),
    )


def test_logs_that_never_change_are_linked() -> None:
    """With links, sealed logs are the source's own files; the last log, indexes and snapshots are copies."""
    disk, records = handover.prepared_disk(handover.LOG_DIR)
    disk.calls.clear()
    handover.taken(disk, link=True)
    linked = {Path(path).name for operation, path in disk.calls if operation == "link"}
    sealed = {name for name in linked if name.endswith(".log")}
    assert sealed
    assert sealed == linked
    for partition in ("orders-0", "orders-1", "trimmed-0"):
        logs = sorted(
            path for path in handover.below(disk, handover.LOG_DIR / partition) if path.endswith(".log")
        )
        links = sorted(
            path for operation, path in disk.calls if operation == "link" and f"{partition}." in path
        )
        assert [Path(log).name for log in logs[:-1]] == [Path(path).name for path in links]
    assert records == handover.contents(disk, handover.DATA)
