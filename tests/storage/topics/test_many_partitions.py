"""Tests of thousands of partitions in one change: the disk is synced for all of them, and progress is visible."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.manager import LogManager
from topicfs.storage.topics.changes import MAX_SEQUENTIAL_ITEMS, SYNC_DISK_ABOVE, for_each

COUNT = MAX_SEQUENTIAL_ITEMS + 24


class WatchedDisk(SimulatedDisk):
    """A disk that records the engine's `doing` at each call."""

    engine: LogManager | None = None

    def __init__(self) -> None:
        super().__init__()
        self.doing: list[str | None] = []

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        self.doing.append(self.engine.doing if self.engine else None)
        super().happens(operation, path, changes=changes)


def test_all_files_are_written_before_the_first_sync(disk: SimulatedDisk, engine: LogManager) -> None:
    """All files are written before the first sync, so that one journal flush stores many of them."""
    engine.create_topic("t")
    disk.calls.clear()
    engine.add_partitions("t", total=COUNT)
    ids = [(call, path) for call, path in disk.calls if path.endswith("partition.metadata.tmp")]
    written = [index for index, (call, _path) in enumerate(ids) if call == "write_bytes"]
    flushed = [index for index, (call, _path) in enumerate(ids) if call == "sync"]
    assert (COUNT - 1, COUNT - 1) == (len(written), len(flushed))
    assert max(written) < min(flushed)


@pytest.mark.slow
@pytest.mark.parametrize("count", [COUNT, SYNC_DISK_ABOVE + 1], ids=["many", "very many"])
def test_partitions_that_were_made_survive_a_loss_of_power(
    disk: SimulatedDisk, engine: LogManager, count: int
) -> None:
    """New partitions survive a power loss with their topic's ID."""
    topic = engine.create_topic("t", partitions=count)
    disk.crash(keep=0.0)
    again = engine_on(disk)
    states = {one.status().state for one in again.topic("t").partitions().values()}
    assert ({"online"}, count) == (states, len(again.topic("t").partitions()))
    assert topic.topic_id == again.topic("t").topic_id
    assert topic.topic_id.encode() in disk.read_bytes(DATA / f"t-{count - 1}" / "partition.metadata")


def test_very_many_partitions_need_two_syncs_of_the_disk(disk: SimulatedDisk, engine: LogManager) -> None:
    """More than SYNC_DISK_ABOVE new partitions need two syncs of the whole disk: for contents and for names."""
    engine.create_topic("t")
    disk.calls.clear()
    engine.add_partitions("t", total=SYNC_DISK_ABOVE + 2)
    calls = [call for call, path in disk.calls if "/t-" in path or (call, path) == ("sync_all", str(DATA))]
    first, second = (index for index, call in enumerate(calls) if call == "sync_all")
    renames = [index for index, call in enumerate(calls) if call == "rename"]
    assert SYNC_DISK_ABOVE + 1 == len(renames)
    assert first < min(renames)
    assert max(renames) < second == len(calls) - 1
    assert {"sync", "sync_directory"}.isdisjoint(calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "failure"),
    [
        pytest.param(COUNT, {"operation": "sync", "after": COUNT // 2, "suffix": ".metadata.tmp"}, id="sync"),
        pytest.param(SYNC_DISK_ABOVE + 1, {"operation": "sync_all"}, id="first sync of the disk"),
        pytest.param(
            SYNC_DISK_ABOVE + 1, {"operation": "sync_all", "after": 1}, id="second sync of the disk"
        ),
    ],
)
def test_partitions_that_cannot_be_flushed_leave_none(
    disk: SimulatedDisk, engine: LogManager, count: int, failure: dict[str, Any]
) -> None:
    """If one of many partitions cannot be created, none is left. When the disk works, all can be created."""
    disk.fail(**failure)
    with pytest.raises(OSError, match="Input/output error"):
        engine.create_topic("t", partitions=count)
    assert [] == [entry.name for entry in disk.list_directory(DATA) if entry.is_directory]
    assert count == len(engine.create_topic("t", partitions=count).partitions())


def test_new_partitions_are_closed_without_writes(disk: SimulatedDisk, engine: LogManager) -> None:
    """Closing new partitions writes nothing.

    A new partition is already stored in the same form as an empty log after a close.
    """
    engine.create_topic("t", partitions=SYNC_DISK_ABOVE + 1)
    disk.calls.clear()
    engine.close()
    changes = {"sync", "sync_directory", "truncate", "write_bytes", "pwrite"}
    assert [] == [(call, path) for call, path in disk.calls if "/t-" in path and call in changes]
    disk.crash(keep=0.0)
    again = engine_on(disk)
    append_lines(again.partition("t", 1), "x\n")
    assert ["x"] == read_lines(again.partition("t", 1))


def test_a_segment_of_a_new_partition_is_preallocated_where_that_is_set() -> None:
    """With `preallocate` the segment of a new partition has its full size."""
    disk = SimulatedDisk()
    topic = engine_on(disk).create_topic("t", overrides={"preallocate": "true", "segment.bytes": "1048576"})
    assert 1048576 == disk.size(DATA / "t-0" / "00000000000000000000.log")
    assert [0] == list(topic.partitions())


def test_what_is_being_done_can_be_seen() -> None:
    """`doing` shows the progress of a long change, and is None afterwards."""
    disk = WatchedDisk()
    engine = disk.engine = engine_on(disk)
    engine.create_topic("t", partitions=COUNT)
    said = list(dict.fromkeys(line for line in disk.doing if line))
    assert f"making t-0 of {COUNT} new partitions" == said[0]
    assert f"opening t-{COUNT - 1} of {COUNT} new partitions" == said[-1]
    assert None is engine.doing
    disk.fail("make_directory")
    with pytest.raises(OSError, match="u-0"):
        engine.create_topic("u", partitions=COUNT)
    assert None is engine.doing


@pytest.mark.parametrize("failing", [0, COUNT // 2, COUNT - 1])
def test_a_partition_that_cannot_be_closed_leaves_no_clean_mark(failing: int) -> None:
    """If one partition fails to close, all others are closed, and the directory is not marked as cleanly shut down."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    engine.create_topic("t", partitions=COUNT)
    for partition in engine.topic("t").partitions().values():
        append_lines(partition, "x\n")
    disk.fail("sync", suffix=f"t-{failing}/00000000000000000000.log")
    engine.close()
    assert not disk.exists(DATA / ".kafka_cleanshutdown")
    assert (f"t-{failing}: close: ",) == tuple(
        line[: len(f"t-{failing}: close: ")] for line in engine.warnings
    )


def test_for_each_uses_threads_and_keeps_the_order() -> None:
    """For more than MAX_SEQUENTIAL_ITEMS items `for_each` uses threads, and returns the results in order."""
    here = threading.get_ident()
    assert {here} == set(for_each(range(MAX_SEQUENTIAL_ITEMS), lambda _: threading.get_ident()))
    assert here not in for_each(range(MAX_SEQUENTIAL_ITEMS + 1), lambda _: threading.get_ident())
    assert [2 * number for number in range(100)] == for_each(range(100), lambda number: 2 * number)
