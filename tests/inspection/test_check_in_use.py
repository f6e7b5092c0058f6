"""The check of a directory whose owner is running does not report the owner's changes as faults."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.damage import flip
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.inspection.check.segment import SegmentCheck
from topicfs.replication import open_engine
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.errors import Finding
from topicfs.storage.manager.manager import LogManager
from topicfs.storage.model import Offset, Record, Timestamp, TopicPartition
from topicfs.storage.segment.segment import Segment

FILES = NativeFileSystem(read_only=True)
SMALL_SEGMENTS = {"internal.segment.bytes": "1500", "index.interval.bytes": "100"}
COMPACTED = {
    **SMALL_SEGMENTS,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "file.delete.delay.ms": "0",
}
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
AN_HOUR = 3_600_000


@pytest.fixture
def engine(tmp_path) -> Iterator[LogManager]:
    """The running owner of a data directory."""
    with closing(open_engine(tmp_path)) as engine:
        yield engine


def fill(engine: LogManager, records: int = 60) -> None:
    for number in range(records):
        record = Record(Offset(0), Timestamp(1_700_000_000_000), b"k%d" % (number % 7), b"x" * 90)
        engine.partition("orders", 0).append(encode([record], BatchStamp()))


def check(directory: Path) -> list[Finding]:
    return list(DirectoryCheck(directory, FILES).findings())


def checked(examination: DirectoryCheck, partition: TopicPartition) -> list[Finding]:
    """Return only the findings that name `partition`."""
    one = examination.partition(partition)
    return [*one.findings(lambda _: None), *examination.joined(partition, one)]


def test_an_owner_that_recovers_its_logs(engine, tmp_path, monkeypatch):
    """If an owner is rebuilding an index after a kill, the check does not report unused slots in this index."""
    engine.create_topic("orders", overrides=SMALL_SEGMENTS)
    fill(engine)
    killed = tmp_path.with_name("killed")
    shutil.copytree(tmp_path, killed)
    end_rebuild, found = Segment.end_rebuild, list[list[Finding]]()

    def check_and_end(segment: Segment) -> None:
        found.append(check(killed))
        end_rebuild(segment)

    monkeypatch.setattr(Segment, "end_rebuild", check_and_end)
    open_engine(killed).close()
    assert len(found) > 3
    assert [[]] * len(found) == found


def test_a_compaction_between_the_indexes_and_the_log(engine, tmp_path, monkeypatch):
    """If a compaction happens between reading the indexes and reading the log, no damage is reported."""
    engine.create_topic("orders", overrides=COMPACTED)
    fill(engine)
    read_indexes, due = SegmentCheck._read_indexes, [engine]

    def read_and_compact(segment: SegmentCheck) -> Iterator[object]:
        yield from list(read_indexes(segment))
        if due:
            due.pop().maintenance(Timestamp(system_clock() + AN_HOUR))

    monkeypatch.setattr(SegmentCheck, "_read_indexes", read_and_compact)
    assert [] == check(tmp_path)
    assert [] == due


def test_damage_is_found_beside_an_owner_too(engine, tmp_path):
    """Damage that every repeated read finds at the same position is reported even in a directory in use."""
    engine.create_topic("orders", overrides=SMALL_SEGMENTS)
    fill(engine)
    log = min((tmp_path / "orders-0").glob("*.log"))
    flip(log, 200)
    assert [log] == [one.file for one in check(tmp_path)]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_that_is_made_again(engine, tmp_path, partitions):
    """The checkpoints and the id of a deleted topic are not applied to a new topic of the same name."""
    engine.create_topic("orders", partitions=2)
    fill(engine)
    engine.partition("orders", 0).sync()
    engine.close()
    with closing(open_engine(tmp_path)) as owner:
        examination = DirectoryCheck(tmp_path, FILES)
        assert [] == list(examination.own_findings())
        if partitions == 2:
            assert [] == checked(examination, T1)
        owner.delete_topic("orders")
        owner.create_topic("orders", partitions=2)
        assert [] == checked(examination, T0)


def test_an_owner_that_comes_meanwhile(engine, tmp_path):
    """A directory that gets an owner after the start of the check is checked as a directory in use."""
    engine.create_topic("orders", overrides=SMALL_SEGMENTS)
    fill(engine)
    engine.close()
    examination = DirectoryCheck(tmp_path, FILES)
    assert not examination.in_use
    with closing(open_engine(tmp_path)) as owner:
        fill(owner)
        assert [] == checked(examination, T0)


def test_a_partition_that_is_deleted_meanwhile(engine, tmp_path):
    """A partition deleted during the check is not reported as a partition without an id."""
    engine.create_topic("orders")
    examination = DirectoryCheck(tmp_path, FILES)
    partition = examination.partition(T0)
    engine.delete_topic("orders")
    with pytest.raises(FileNotFoundError):
        list(partition.own_findings())


def test_a_snapshot_that_is_being_written(engine, tmp_path):
    """A snapshot that its owner has half written is not reported if the next read finds the complete snapshot."""
    engine.create_topic("orders", overrides=SMALL_SEGMENTS)
    fill(engine)
    snapshot = max((tmp_path / "orders-0").glob("*.snapshot"))
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[:5])

    class FinishingDisk(NativeFileSystem):
        """A disk on which the owner finishes the snapshot after the check's first read."""

        def read_bytes(self, path: Path) -> bytes:
            found = super().read_bytes(path)
            if path == snapshot:
                snapshot.write_bytes(whole)
            return found

    assert [] == list(DirectoryCheck(tmp_path, FinishingDisk(read_only=True)).findings())
