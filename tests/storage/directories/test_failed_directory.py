"""Tests that a failed data directory takes only its own partitions offline, and can be brought back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.several_disks import (
    A,
    B,
    SeveralDisks,
    break_disk,
    contents,
    filled,
    opened,
    places,
    states,
    topic_files,
)
from topicfs.storage.checkpoints.offset_checkpoint import FILES
from topicfs.storage.disk.names import HIGH_WATERMARKS, RECOVERY_POINTS
from topicfs.storage.engine import Partition
from topicfs.storage.errors import PartitionOfflineError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.manager import LogManager

pytestmark = pytest.mark.slow


def fail_by_checkpoint(engine: LogManager, disks: SeveralDisks, clock: ManualClock) -> None:
    """Make a duty fail to write the high watermarks to B."""
    break_disk(disks.disks[B])
    clock.advance(10_000)
    engine.maintenance(clock())


def fail_by_settings(engine: LogManager, disks: SeveralDisks, clock: ManualClock) -> None:
    """Change settings in such a way that the write to A succeeds and the write to B fails."""
    break_disk(disks.disks[B])
    engine.alter_config("t", {"max.message.bytes": "8000"})


FAILURES = [fail_by_checkpoint, fail_by_settings]


@pytest.mark.parametrize("fail", FAILURES)
def test_a_failed_directory_takes_only_its_own_partitions_offline(
    disks: SeveralDisks, clock: ManualClock, fail: Callable[[LogManager, SeveralDisks, ManualClock], None]
) -> None:
    """If a directory fails, the other directory accepts appends and new partitions.

    All partitions can be read, and the status has the reason of the failure.
    """
    engine = filled(disks, clock)
    fail(engine, disks, clock)
    assert {"t-0": "online", "t-1": "offline"} == states(engine)
    assert "/b failed: " in engine.partition("t", 1).status().state
    assert "Input/output error" in engine.partition("t", 1).status().state
    with pytest.raises(PartitionOfflineError, match="/b failed"):
        append_lines(engine.partition("t", 1), "x\n")
    append_lines(engine.partition("t", 0), "more\n")
    assert {"t-0": ["0", "more"], "t-1": ["1"]} == contents(engine)
    found = [(one.path, one.state.split(":")[0], one.partitions) for one in engine.directories()]
    assert [("/a", "online", 1), ("/b", "offline", 1)] == found
    assert [line for line in engine.warnings if line.startswith("/b: failed")] != []
    engine.create_topic("u", partitions=2)
    engine.add_partitions("t", total=3)
    assert ["/a", "/a", "/a"] == [places(engine)[name] for name in ("u-0", "u-1", "t-2")]
    engine.close()
    assert disks.exists(A / ".kafka_cleanshutdown")
    assert not disks.exists(B / ".kafka_cleanshutdown")


def test_a_directory_that_vanished_has_failed(disks: SeveralDisks, clock: ManualClock) -> None:
    """If a directory vanishes, the engine notices this within a second, even if it writes nothing to the directory."""
    engine = filled(disks, clock)
    disks.disks[B].rename(B, Path("/away"))
    clock.advance(1_000)
    engine.maintenance(clock())
    assert {"t-0": "online", "t-1": "offline"} == states(engine)
    status = engine.partition("t", 1).status()
    assert "offline: /b failed: No such file or directory: /b/meta.properties" == status.state
    assert 0 == status.index_bytes
    disks.disks[B].rename(Path("/away"), B)
    append_lines(engine.reopen_partition("t", 1), "more\n")
    assert {"t-0": ["0"], "t-1": ["1", "more"]} == contents(engine)


def test_a_file_that_cannot_be_flushed_takes_one_partition_offline(
    disks: SeveralDisks, clock: ManualClock
) -> None:
    """If one file cannot be flushed, only its partition is offline."""
    engine = filled(disks, clock)
    engine.create_topic("u", partitions=2)
    disks.disks[B].fail("sync", suffix="t-1/00000000000000000000.log")
    with pytest.raises(OSError, match="t-1"):
        engine.partition("t", 1).sync()
    assert {"t-0": "online", "t-1": "offline", "u-0": "online", "u-1": "online"} == states(engine)
    assert ["online", "online"] == [one.state for one in engine.directories()]


def test_reopening_one_partition_brings_its_directory_back(disks: SeveralDisks, clock: ManualClock) -> None:
    """Reopening one partition of a failed directory brings back the whole directory.

    All partitions of the directory then have their records, and the settings that were changed meanwhile.
    """
    engine = filled(disks, clock)
    engine.create_topic("u", partitions=2)
    append_lines(engine.partition("u", 1), "u\n")
    fail_by_checkpoint(engine, disks, clock)
    with pytest.raises(OSError, match="Input/output"):
        engine.reopen_partition("t", 1)
    assert {"t-0": "online", "t-1": "offline", "u-0": "online", "u-1": "offline"} == states(engine)
    engine.alter_config("t", {"max.message.bytes": "9000"})
    disks.disks[B].heal()
    heard: list[dict[str, str]] = []
    engine.listen(lambda: heard.append(states(engine)))
    engine.partition("u", 1).listen(lambda: heard.append({}))
    engine.reopen_partition("t", 1)
    assert heard == [dict.fromkeys(("t-0", "t-1", "u-0", "u-1"), "online"), {}]
    assert ["u"] == contents(engine)["u-1"]
    append_lines(engine.partition("t", 1), "more\n")
    assert 9000 == engine.partition("t", 1).config.max_message_bytes
    engine.close()
    assert topic_files(disks)[0] == topic_files(disks)[1]
    again = opened(disks, clock)
    assert {"t-0": ["0"], "t-1": ["1", "more"], "u-0": [], "u-1": ["u"]} == contents(again)
    assert () == again.warnings


def test_a_topic_deleted_without_a_directory_is_gone_when_that_comes_back(
    disks: SeveralDisks, clock: ManualClock
) -> None:
    """If a topic was deleted while a directory was offline, the topic's name is in use until the directory is back.

    The topic's partitions in this directory are deleted when the directory comes back.
    """
    engine = filled(disks, clock)
    engine.create_topic("other", partitions=2)
    fail_by_checkpoint(engine, disks, clock)
    engine.delete_topic("t")
    assert ["other"] == list(engine.topics())
    with pytest.raises(StorageError, match="may be left in /b"):
        engine.create_topic("t")
    disks.disks[B].heal()
    assert disks.exists(B / "t-1")
    engine.reopen_partition("other", 1)
    assert not disks.exists(B / "t-1")
    assert "t" not in topic_files(disks)[0]["topics"]
    assert [] == read_lines(engine.create_topic("t", partitions=2).partitions()[1])
    clock.advance(100_000)
    engine.maintenance(clock())
    engine.close()
    names = [entry.name for entry in disks.list_directory(B) if entry.is_directory]
    assert ["other-1", "t-1"] == names


def test_without_any_directory_nothing_can_be_changed(disks: SeveralDisks, clock: ManualClock) -> None:
    """If all directories failed, changes are refused and reads continue. Changes succeed when one directory is back."""
    engine = filled(disks, clock)
    for disk in disks.disks.values():
        break_disk(disk)
    clock.advance(10_000)
    engine.maintenance(clock())
    assert {"offline"} == set(states(engine).values())
    for change in (
        lambda: engine.alter_config("t", {"segment.ms": "5"}),
        lambda: engine.create_topic("u"),
        lambda: engine.delete_topic("t"),
    ):
        with pytest.raises(OSError, match="no data directory is online"):
            change()
    assert "segment.ms" not in engine.topic("t").overrides
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(engine)
    disks.disks[A].heal()
    engine.reopen_partition("t", 0)
    engine.alter_config("t", {"segment.ms": "5"})
    assert {"t-0": "online", "t-1": "offline"} == states(engine)


def test_partitions_are_logs_again_after_reopening(disks: SeveralDisks, clock: ManualClock) -> None:
    """Reopening a partition returns a new log, and the old object stays offline."""
    engine = filled(disks, clock)
    fail_by_checkpoint(engine, disks, clock)
    old: Partition = engine.partition("t", 1)
    disks.disks[B].heal()
    new = engine.reopen_partition("t", 1)
    assert isinstance(new, Log)
    assert new is not old
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "x\n")


def test_checkpoints_are_written_when_a_directory_is_back(disks: SeveralDisks, clock: ManualClock) -> None:
    """When a failed directory returns, all its checkpoints are written, because the disk may have lost them."""
    engine = filled(disks, clock)
    clock.advance(100_000)
    engine.maintenance(clock())
    engine.partition("t", 1).sync()
    clock.advance(100_000)
    engine.maintenance(clock())
    assert b"t 1 1\n" in disks.read_bytes(B / HIGH_WATERMARKS)
    append_lines(engine.partition("t", 1), "more\n")
    fail_by_settings(engine, disks, clock)
    disks.disks[B].heal()
    for name in FILES:
        if disks.exists(B / name):
            disks.unlink(B / name)
    engine.reopen_partition("t", 1)
    assert b"0\n1\nt 1 1\n" == disks.read_bytes(B / RECOVERY_POINTS)
    assert b"0\n1\nt 1 2\n" == disks.read_bytes(B / HIGH_WATERMARKS)
