"""Tests that partitions of a large, cleanly closed data directory are opened when they are first used."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.doubles.engines import DATA, QUIET, TINY_SEGMENTS, append_lines, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.several_disks import SeveralDisks, contents
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.disk.names import HIGH_WATERMARKS, RECOVERY_POINTS
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.manager import LogManager, Machine, open_engine
from topicfs.storage.topics.unopened_partitions import AT_A_TIME

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PARTITIONS = 3
TOPICS = ("a", "b")


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    """A cleanly closed disk with two topics of three partitions; each partition has one line."""
    disk = SimulatedDisk()
    engine = opened(disk, clock)
    for name in TOPICS:
        engine.create_topic(name, partitions=PARTITIONS, overrides=TINY_SEGMENTS)
    for name, topic in engine.topics().items():
        for number, partition in topic.partitions().items():
            append_lines(partition, f"{name}{number}\n", timestamp=clock())
    engine.close()
    disk.calls.clear()
    return disk


def opened(disk: SimulatedDisk, clock: ManualClock, *, max_opened_at_start: int = 0) -> LogManager:
    return open_engine(
        DATA, config=QUIET, max_opened_at_start=max_opened_at_start, machine=Machine(files=disk, clock=clock)
    )


@pytest.fixture
def engine(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """An engine over the disk, which has opened no partition."""
    return opened(disk, clock)


def open_now(engine: LogManager) -> list[str]:
    """Return the names of the open partitions."""
    return [f"{name}-{one.number}" for name, topic in engine.topics().items() for one in topic.opened()]


WHOLE = {f"{name}-{number}": [f"{name}{number}"] for name in TOPICS for number in range(PARTITIONS)}


def calls_in_partitions(disk: SimulatedDisk) -> set[tuple[str, str]]:
    """Return the calls on files in the partitions' directories, with the files' paths."""
    paths = ((call, Path(path)) for call, path in disk.calls)
    return {(call, str(path.relative_to(DATA))) for call, path in paths if path.parent.parent == DATA}


def checkpoints(disk: SimulatedDisk) -> dict[str, bytes]:
    names = [one.name for one in disk.list_directory(DATA) if one.name.endswith("-checkpoint")]
    return {name: disk.read_bytes(DATA / name) for name in names}


def test_a_start_reads_one_file_per_topic(disk: SimulatedDisk, clock: ManualClock) -> None:
    """A start reads one ID file per topic. A close then keeps the checkpoints and writes the clean marker."""
    before = checkpoints(disk)
    disk.calls.clear()
    engine = opened(disk, clock)
    assert {name: [0, 1, 2] for name in TOPICS} == {
        name: list(topic.partitions()) for name, topic in engine.topics().items()
    }
    assert {("read_bytes", f"{name}-0/partition.metadata") for name in TOPICS} == calls_in_partitions(disk)
    engine.close()
    assert 2 == len(calls_in_partitions(disk))
    assert before == checkpoints(disk)
    assert disk.exists(DATA / ".kafka_cleanshutdown")


def test_few_partitions_are_all_opened_at_the_start(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Up to `max_opened_at_start` partitions are all opened at the start."""
    assert list(WHOLE) == open_now(opened(disk, clock, max_opened_at_start=len(WHOLE)))
    disk.crash(keep=1.0)


def test_a_partition_is_opened_when_it_is_asked_for(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Only a requested partition is opened, and only once. Records and appends survive a restart."""
    engine = opened(disk, clock)
    one = engine.partition("b", 1)
    assert ["b-1"] == open_now(engine)
    assert one is engine.topic("b").partitions()[1]
    append_lines(one, "more\n")
    engine.close()
    engine = opened(disk, clock)
    assert {**WHOLE, "b-1": ["b1", "more"]} == contents(engine)
    assert list(WHOLE) == open_now(engine)


def test_names_and_numbers_open_no_partition(engine: LogManager) -> None:
    """The number of partitions, and the number of each partition, are known without opening any partition."""
    partitions = engine.topic("a").partitions()
    assert (3, True, False, [0, 1, 2]) == (
        len(partitions),
        2 in partitions,
        3 in partitions,
        list(partitions),
    )
    with pytest.raises(KeyError):
        partitions[3]
    assert [] == open_now(engine)


def test_concurrent_requests_get_the_same_log(engine: LogManager) -> None:
    """Concurrent requests for a partition get the same log, because two logs would overwrite each other."""
    with ThreadPoolExecutor(8) as threads:
        asked = list(threads.map(lambda _: engine.partition("a", 0), range(64)))
    assert {id(asked[0])} == {id(one) for one in asked}


def test_checkpoint_lines_of_unopened_partitions_stay(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Checkpoint lines of unopened partitions stay, and recovery after a kill uses these lines."""
    engine = opened(disk, clock)
    partition = engine.partition("a", 1)
    append_lines(partition, "more\n")
    partition.sync()
    clock.advance(100_000)
    engine.maintenance(clock())
    written = {name: sorted(data.decode().splitlines()[2:]) for name, data in checkpoints(disk).items()}
    lines = sorted(f"{name.replace('-', ' ')} {2 if name == 'a-1' else 1}" for name in WHOLE)
    assert {RECOVERY_POINTS: lines, HIGH_WATERMARKS: lines} == {
        name: written[name] for name in (RECOVERY_POINTS, HIGH_WATERMARKS)
    }
    disk.crash(keep=0.0)
    again = opened(disk, clock)
    assert list(WHOLE) == open_now(again)
    assert {**WHOLE, "a-1": ["a1", "more"]} == contents(again)


def test_a_partition_without_a_checkpoint_line_is_opened_at_the_start(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    """A partition without a checkpoint line is opened at the start, so that the partition gets a recovery point."""
    path = DATA / RECOVERY_POINTS
    kept = [line for line in disk.read_bytes(path).split(b"\n") if line != b"a 2 1"]
    disk.write_bytes(path, b"\n".join([kept[0], b"5", *kept[2:]]))
    engine = opened(disk, clock)
    assert ["a-2"] == open_now(engine)
    engine.close()
    assert b"a 2 1" in disk.read_bytes(path).split(b"\n")


def test_after_an_unclean_stop_all_are_recovered_at_the_start(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    """After an unclean stop all partitions are recovered at the start."""
    disk.unlink(DATA / ".kafka_cleanshutdown")
    path = DATA / "b-2" / "00000000000000000000.log"
    disk.write_bytes(path, disk.read_bytes(path) + b"torn")
    disk.write_bytes(DATA / RECOVERY_POINTS, b"0\n0\n")
    engine = opened(disk, clock)
    assert list(WHOLE) == open_now(engine)
    assert not disk.read_bytes(path).endswith(b"torn")
    assert WHOLE == contents(engine)


def test_a_damaged_unopened_partition_is_offline_alone(
    disk: SimulatedDisk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged partition is offline when it is requested, and then the close is unclean."""
    disk.write_bytes(DATA / "a-1" / "leader-epoch-checkpoint", b"rubbish")
    engine = opened(disk, clock)
    assert () == engine.warnings
    with caplog.at_level(logging.CRITICAL):
        partition = engine.partition("a", 1)
    assert partition.status().state.startswith("offline: ")
    (warning,) = engine.warnings
    assert "a-1: offline: " in warning
    assert "leader-epoch-checkpoint" in warning
    assert ["a2"] == read_lines(engine.partition("a", 2))
    engine.close()
    assert not disk.exists(DATA / ".kafka_cleanshutdown")


def test_a_directory_of_another_topic_is_refused(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Opening a partition first checks its topic ID. A missing ID is written."""
    other = disk.read_bytes(DATA / "b-0" / "partition.metadata")
    own = disk.read_bytes(DATA / "a-1" / "partition.metadata")
    disk.write_bytes(DATA / "a-1" / "partition.metadata", other)
    disk.unlink(DATA / "a-2" / "partition.metadata")
    engine = opened(disk, clock)
    state = engine.partition("a", 1).status().state
    assert f"its topic id is {engine.topic('b').topic_id}" in state
    assert ["a2"] == read_lines(engine.partition("a", 2))
    assert own == disk.read_bytes(DATA / "a-2" / "partition.metadata")


def test_a_topic_that_someone_else_created_again_is_found_at_the_start(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    """If a topic's first partition has a new ID, all its partitions are opened and the old settings are dropped."""
    other = disk.read_bytes(DATA / "b-0" / "partition.metadata")
    for number in range(PARTITIONS):
        disk.write_bytes(DATA / f"a-{number}" / "partition.metadata", other)
    engine = opened(disk, clock)
    assert "created again by another program" in engine.warnings[0]
    assert [f"a-{number}" for number in range(PARTITIONS)] == open_now(engine)


def test_settings_that_were_altered_before_hold_for_what_is_opened_later(engine: LogManager) -> None:
    """Altered settings apply even to partitions that are opened later."""
    first = engine.partition("a", 0)
    engine.alter_config("a", {"max.message.bytes": "5000"})
    assert [5000, 5000] == [first.config.max_message_bytes, engine.partition("a", 1).config.max_message_bytes]


def test_topics_change_without_opening_partitions(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Adding partitions and deleting topics works without opening the other partitions."""
    engine = opened(disk, clock)
    engine.add_partitions("a", total=5)
    engine.delete_topic("b")
    assert ["a-3", "a-4"] == open_now(engine)
    engine.close()
    for name, data in checkpoints(disk).items():
        assert b"b 0" not in data, name
    engine = opened(disk, clock)
    assert {"a-0": ["a0"], "a-1": ["a1"], "a-2": ["a2"], "a-3": [], "a-4": []} == contents(engine)


def test_after_the_close_no_partition_is_opened(disk: SimulatedDisk, engine: LogManager) -> None:
    """After the close no partition is opened, because the directory belongs to the next owner."""
    topic = engine.topic("a")
    engine.close()
    disk.calls.clear()
    with pytest.raises(PartitionOfflineError, match="a-0: closed"):
        topic.partitions()[0]
    assert [] == disk.calls


def test_a_partition_is_reopened_though_nobody_asked_before(engine: LogManager) -> None:
    """`reopen_partition`, as `topics online` calls it, also opens a partition that nobody has used since the start."""
    assert engine.reopen_partition("a", 2) is engine.partition("a", 2)
    assert ["a2"] == read_lines(engine.partition("a", 2))


def test_a_directory_that_failed_serves_again(clock: ManualClock) -> None:
    """When a failed directory returns, all of its partitions are recovered.

    The unopened partitions of the other directory stay unopened.
    """
    a, b = Path("/a"), Path("/b")
    disks = SeveralDisks({a: SimulatedDisk(), b: SimulatedDisk()})

    def both() -> LogManager:
        return open_engine(
            (a, b), config=QUIET, max_opened_at_start=0, machine=Machine(files=disks, clock=clock)
        )

    engine = both()
    for number, partition in engine.create_topic("t", partitions=4).partitions().items():
        append_lines(partition, f"{number}\n")
    engine.close()
    engine = both()
    home = next(one for one in engine._directories.all if one.data.path == b)
    engine._directories.fail(home, OSError(5, "Input/output error"))
    lost = next(number for number, one in engine._directories.by_partition.items() if one is home)
    assert engine.partition(*lost).status().state.startswith("offline: /b failed")
    engine.reopen_partition(*lost)
    assert 2 == len(open_now(engine))
    assert [["0"], ["1"], ["2"], ["3"]] == [
        read_lines(one) for one in engine.topic("t").partitions().values()
    ]
    engine.close()


# Duties.


def duties(engine: LogManager, clock: ManualClock, after_ms: int) -> None:
    clock.advance(after_ms)
    engine.maintenance(clock())


def test_idle_partitions_are_retained_by_time(engine: LogManager, clock: ManualClock) -> None:
    """Retention opens a partition only when the partition's first record is due."""
    engine.alter_config("a", {"retention.ms": str(DAY_MS)})
    for _ in range(3):
        duties(engine, clock, 7 * HOUR_MS)
    assert [] == open_now(engine)
    duties(engine, clock, 3 * HOUR_MS + 60_000)
    assert ["a-0", "a-1", "a-2"] == open_now(engine)
    assert [(1, 1)] * 3 == [
        (offsets.log_start_offset, offsets.log_end_offset)
        for offsets in (engine.partition("a", number).offsets() for number in range(PARTITIONS))
    ]
    assert ["b0"] == read_lines(engine.partition("b", 0))


def test_an_unchanged_directory_is_listed_once(disk: SimulatedDisk, clock: ManualClock) -> None:
    """An unchanged directory is listed once, and again after its topic is altered."""
    engine = opened(disk, clock)
    duties(engine, clock, HOUR_MS)
    disk.calls.clear()
    for _ in range(3):
        duties(engine, clock, HOUR_MS)
    assert set() == calls_in_partitions(disk)
    engine.alter_config("b", {"retention.ms": str(DAY_MS * 10)})
    duties(engine, clock, HOUR_MS)
    assert {"b-0", "b-1", "b-2"} == {path.split("/")[0] for _, path in calls_in_partitions(disk)}
    assert [] == open_now(engine)


def test_partitions_are_looked_at_a_few_at_a_time(clock: ManualClock) -> None:
    """Each round of the duty lists at most AT_A_TIME directories, so that other duties can run."""
    disk = SimulatedDisk()
    engine = opened(disk, clock)
    engine.create_topic("t", partitions=AT_A_TIME + 1)
    engine.close()
    engine = opened(disk, clock)
    listed = []
    for _ in range(2):
        disk.calls.clear()
        duties(engine, clock, HOUR_MS)
        listed.append(sum(call == "list_directory" and "/t-" in path for call, path in disk.calls))
    assert [AT_A_TIME, 1] == listed


def test_a_deletion_that_waits_for_its_time_is_done(disk: SimulatedDisk, clock: ManualClock) -> None:
    """If a partition has `.deleted` files, it is opened and the files are unlinked."""
    left = DATA / "b-1" / "00000000000000000000.log.deleted"
    disk.write_bytes(left, b"gone")
    engine = opened(disk, clock)
    duties(engine, clock, HOUR_MS)
    assert ["b-1"] == open_now(engine)
    assert not disk.exists(left)


def several_segments(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """Return an engine with topic s of two unopened partitions, of which the second has several segments."""
    engine = opened(disk, clock)
    first, second = engine.create_topic("s", partitions=2, overrides=TINY_SEGMENTS).partitions().values()
    append_lines(first, "x\n", timestamp=clock())
    while len(second.segments()) < 4:
        append_lines(second, "x" * 50 + "\n", timestamp=clock())
    engine.close()
    return opened(disk, clock)


@pytest.mark.parametrize("settings", [{"cleanup.policy": "compact"}, {"retention.bytes": "500"}])
def test_a_partition_with_too_much_is_opened(clock: ManualClock, settings: dict[str, str]) -> None:
    """A partition is opened if it has segments to compact or too many bytes.

    The other partition of the topic is small, and stays unopened.
    """
    engine = several_segments(SimulatedDisk(), clock)
    duties(engine, clock, HOUR_MS)
    assert [] == open_now(engine)
    engine.alter_config("s", settings)
    duties(engine, clock, HOUR_MS)
    assert ["s-1"] == open_now(engine)


def test_segments_before_the_log_start_go(clock: ManualClock) -> None:
    """Segments below the log start are deleted, even if the previous owner closed before retention ran."""
    disk = SimulatedDisk()
    engine = several_segments(disk, clock)
    partition = engine.partition("s", 1)
    start = partition.segments()[2].base_offset
    partition.delete_records(start)
    engine.close()
    engine = opened(disk, clock)
    duties(engine, clock, HOUR_MS)
    assert ["s-1"] == open_now(engine)
    assert start == engine.partition("s", 1).segments()[0].base_offset


def test_maintenance_that_a_person_asks_for_opens_all(engine: LogManager, clock: ManualClock) -> None:
    """`plan_maintenance` opens all partitions."""
    engine.plan_maintenance(clock())
    assert list(WHOLE) == open_now(engine)


def test_open_partitions_have_their_duties(engine: LogManager, clock: ManualClock) -> None:
    """Duties run for the open partitions while other partitions are unopened."""
    partition = engine.partition("a", 0)
    append_lines(partition, "more\n", timestamp=clock())
    engine.alter_config("a", {"flush.ms": "1"})
    duties(engine, clock, HOUR_MS)
    assert 2 == partition.offsets().recovery_point
