"""Tests, on file systems of a few megabytes, that a full disk does not stop the operations that make room."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import batch
from tests.doubles.small_disk import fill, small_disk
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition
from topicfs.storage.manager import LogManager, Machine, open_engine
from topicfs.storage.model import Offset

pytestmark = pytest.mark.root

SEGMENTS = {"internal.segment.bytes": "100000", "file.delete.delay.ms": "1000"}
LINES = "".join(f"{number:0999}\n" for number in range(9))


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, kind=request.param, size_mb=8) as mounted:
        (mounted / "topics").mkdir()
        yield mounted


def opened(disk: Path, clock: ManualClock) -> LogManager:
    config = EngineConfig(topic_defaults=TopicConfig(segment_index_bytes=12_000))
    return open_engine(disk / "topics" / "data", config=config, machine=Machine(clock=clock))


def append_until_full(partition: Partition, clock: ManualClock) -> int:
    """Append until no record fits; return the number of appended records."""
    count = 0
    for lines in (LINES, "x\n"):
        while True:
            try:
                append_lines(partition, lines, timestamp=clock())
            except OSError as error:
                assert error.errno == errno.ENOSPC
                break
            count += lines.count("\n")
    return count


def full(
    disk: Path, clock: ManualClock, *, partitions: int = 1, **settings: str
) -> tuple[LogManager, Partition, int]:
    """Open an engine with topic `t`, and fill the disk with records of one partition; return their number as well."""
    engine = opened(disk, clock)
    overrides = SEGMENTS | {name.replace("_", "."): value for name, value in settings.items()}
    engine.create_topic("t", partitions=partitions, overrides=overrides)
    partition = engine.partition("t", 0)
    count = append_until_full(partition, clock)
    fill(disk)
    return engine, partition, count


def pass_time(engine: LogManager, clock: ManualClock) -> None:
    """Run retention, and then remove the deleted files."""
    for _ in range(3):
        clock.advance(400_000)
        engine.maintenance(clock())


def takes_records_again(partition: Partition, clock: ManualClock) -> bool:
    before = partition.offsets().log_end_offset
    append_lines(partition, LINES, timestamp=clock())
    return partition.offsets().log_end_offset == before + 9


def test_retention_of_the_last_segment_works(disk: Path, clock: ManualClock) -> None:
    """Retention can delete all records. It then needs a new segment, which fits into the reserve."""
    engine, partition, _ = full(disk, clock, internal_segment_bytes="10000000", retention_ms="1000")
    pass_time(engine, clock)
    assert partition.offsets().log_start_offset == partition.offsets().log_end_offset
    assert takes_records_again(partition, clock)
    assert () == engine.warnings
    engine.close()


def test_retention_by_size_works(disk: Path, clock: ManualClock) -> None:
    """Retention deletes old segments on a full disk. Epochs and checkpoints find room only in the reserve."""
    engine, partition, _ = full(disk, clock, retention_bytes="300000")
    pass_time(engine, clock)
    assert partition.status().log_bytes <= 400_000
    assert takes_records_again(partition, clock)
    engine.close()


def test_a_topic_is_deleted(disk: Path, clock: ManualClock) -> None:
    """Deleting a topic frees space for other topics, and the deletion survives a restart."""
    engine = opened(disk, clock)
    engine.create_topic("other")
    engine.close()
    engine, _, _ = full(disk, clock)
    engine.delete_topic("t")
    pass_time(engine, clock)
    assert takes_records_again(engine.partition("other", 0), clock)
    engine.close()
    again = opened(disk, clock)
    assert ["other"] == list(again.topics())
    again.close()


def test_a_shorter_retention_is_set(disk: Path, clock: ManualClock) -> None:
    """A changed setting is written on a full disk and takes effect."""
    engine, partition, _ = full(disk, clock)
    engine.alter_config("t", {"retention.ms": "1000"})
    pass_time(engine, clock)
    assert partition.offsets().log_start_offset == partition.offsets().log_end_offset
    assert takes_records_again(partition, clock)
    engine.close()
    assert "1000" == opened(disk, clock).topic("t").overrides["retention.ms"]


def test_a_raised_start_frees_segments(disk: Path, clock: ManualClock) -> None:
    """Raising the log start deletes the segments below it."""
    engine, partition, end = full(disk, clock)
    partition.delete_records(Offset(end))
    pass_time(engine, clock)
    assert 1 == len(partition.segments())
    assert takes_records_again(partition, clock)
    engine.close()
    assert end == opened(disk, clock).partition("t", 0).offsets().log_start_offset


def test_compaction_works_if_the_result_fits_the_reserve(disk: Path, clock: ManualClock) -> None:
    """If all records of a log have the same key, compaction on a full disk shrinks the log to one record."""
    engine = opened(disk, clock)
    compacts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    engine.create_topic("t", overrides=SEGMENTS | compacts)
    partition = engine.partition("t", 0)
    count = 0
    try:
        while True:
            partition.append(batch(b"%090000d" % count, key=b"key", timestamp=clock()))
            count += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC
    fill(disk)
    before = partition.status().log_bytes
    pass_time(engine, clock)
    assert partition.status().log_bytes < before / 10
    assert [f"{count - 1:090000}"] == read_lines(partition)[-1:]
    engine.close()


def test_a_mount_ends_in_order(disk: Path, clock: ManualClock) -> None:
    """A clean close fits into the reserve, with its indexes, snapshots, checkpoints and marker."""
    engine, _, count = full(disk, clock)
    engine.close()
    assert (disk / "topics" / "data" / ".kafka_cleanshutdown").exists()
    again = opened(disk, clock)
    assert count == len(read_lines(again.partition("t", 0)))
    again.close()


def test_a_killed_owners_directory_opens(disk: Path, clock: ManualClock) -> None:
    """Recovery after a kill writes indexes and snapshots into the reserve, and all partitions are served."""
    engine, _, count = full(disk, clock, partitions=3)
    for directory in engine._directories.all:
        directory.release()
    again = opened(disk, clock)
    assert ["online"] * 3 == [one.status().state for one in again.topic("t").partitions().values()]
    assert count == len(read_lines(again.partition("t", 0)))
    again.close()


def test_a_writer_that_tries_again_and_again_does_not_get_the_reserve(disk: Path, clock: ManualClock) -> None:
    """While the reserve is lent for a deletion, appends and new topics are refused."""
    engine, partition, count = full(disk, clock)
    with engine._directories.all[0].reserve.lent():
        with pytest.raises(OSError, match="full") as refused:
            append_lines(partition, "x\n")
        with pytest.raises(OSError, match="full"):
            engine.create_topic("u")
    assert errno.ENOSPC == refused.value.errno
    assert count == partition.offsets().log_end_offset
    engine.close()


def test_a_topic_that_finds_no_room_leaves_nothing_and_the_reserve_whole(
    disk: Path, clock: ManualClock
) -> None:
    """A topic that cannot be created leaves no directories and does not use up the reserve."""
    engine, _, _ = full(disk, clock)
    for number in range(50):
        with pytest.raises(OSError, match=r"full|No space"):
            engine.create_topic(f"more{number}", partitions=20)
    assert ["t"] == list(engine.topics())
    engine.delete_topic("t")
    pass_time(engine, clock)
    assert [] == [path.name for path in (disk / "topics" / "data").iterdir() if path.is_dir()]
    engine.close()
