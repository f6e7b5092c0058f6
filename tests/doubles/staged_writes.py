"""Two writes that Spark tasks have staged, and an engine's records before and after it has appended the writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache

from tests.doubles.engines import DATA, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import MortalDisk, dies, every_step
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.replication import EmbeddedEngine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.disk.names import WriteId, parse_write_file
from topicfs.storage.engine import Partition
from topicfs.storage.log.log import Log
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.area import StagingArea
from topicfs.storage.staging.manifest import Content
from topicfs.storage.staging.staged_file import StagedFile

BATCH = WriteId("b1946ac9-2d3f", 3)
ONCE = WriteId("e59ff979-41aa")
TASKS = {
    0: [("orders", 0, "a\nb\n"), ("orders", 1, "c\n"), ("orders", 0, "d\n")],
    1: [("orders", 1, "e\nf\n"), ("clicks", 0, "g\n")],
}
EXPECTED = {("orders", 0): ["a", "b", "d"], ("orders", 1): ["c", "e", "f"], ("clicks", 0): ["g"]}
BEFORE = {("orders", 0): [], ("orders", 1): [], ("clicks", 0): []}


def populated(disk: SimulatedDisk) -> EmbeddedEngine:
    """Open an engine that has the topics of both writes, but no records."""
    disk.take_content(_populated())
    return engine_on(disk)


@cache
def _populated() -> SimulatedDisk:
    """Return a disk with the topics. The disk is made once and then copied."""
    disk = SimulatedDisk()
    engine = engine_on(disk)
    engine.create_topic("orders", partitions=2)
    engine.create_topic("clicks")
    engine.close()
    return disk


def stage_batches(
    area: StagingArea, write: WriteId, batches: Iterable[tuple[TopicPartition, bytearray]], *, task: int = 0
) -> StagedFile:
    """Stage a file of one task with `batches`, each for its partition."""
    writer = area.stage(write, task)
    for partition, batch in batches:
        writer.append(partition, batch)
    return writer.finish()


def lines(topic: str, number: int, text: str) -> tuple[TopicPartition, bytearray]:
    """Return a partition, and the lines of `text` as one batch for it."""
    (batch,) = encode_lines(text.encode(), timestamp=1_700_000_000_000)
    return TopicPartition(topic, number), batch


def stage(area: StagingArea, write: WriteId, task: int) -> StagedFile:
    return stage_batches(area, write, (lines(*one) for one in TASKS[task]), task=task)


def submit(disk: SimulatedDisk, write: WriteId, content: Content | None = None) -> StagingArea:
    """Stage the file of every task and then submit the write, as a writer does."""
    area = StagingArea(DATA, disk)
    area.submit(write, [stage(area, write, task) for task in TASKS], content=content)
    return area


def values(engine: EmbeddedEngine) -> dict[tuple[str, int], list[str]]:
    return {
        (name, number): read_lines(partition)
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def files_of_writes(disk: SimulatedDisk) -> list[str]:
    names = (entry.name for entry in disk.list_directory(DATA))
    return [name for name in names if parse_write_file(name)]


def killed_when(
    condition: Callable[[EmbeddedEngine], object], prepare: Callable[[MortalDisk], EmbeddedEngine]
) -> MortalDisk:
    """Return the disk of an owner that was killed during a commit, at the first step after which `condition` was true.

    `prepare` submits the writes on an empty disk, and returns the owner.
    """
    for steps in every_step():
        disk = MortalDisk()
        engine = prepare(disk)
        if dies(disk, engine.commit_staged_writes, steps) and condition(engine):
            break
    disk.crash(keep=1.0)
    return disk


def half_appended() -> MortalDisk:
    """Return the disk of an owner that was killed after it had appended the first batch of the write to `orders-0`."""
    return deepcopy(_half_appended())


@cache
def _half_appended() -> MortalDisk:
    """Return the disk for `half_appended`. The owner is killed only once."""

    def prepare(disk: MortalDisk) -> EmbeddedEngine:
        engine = populated(disk)
        submit(disk, BATCH)
        return engine

    return killed_when(lambda engine: read_lines(engine.partition("orders", 0)), prepare)


def compact(partition: Partition, clock: ManualClock) -> None:
    """Compact all records of a partition."""
    assert isinstance(partition, Log)
    partition.appender.roll()
    now = clock()
    clean(partition, plan(cleaning_params(partition, None, now)), now=now)


def expire_producers(engine: EmbeddedEngine, clock: ManualClock) -> None:
    """Advance the clock by a month, after which the logs have forgotten all producers."""
    clock.advance(30 * 24 * 3600 * 1000)
    for topic in engine.topics().values():
        for partition in topic.partitions().values():
            assert isinstance(partition, Log)
            partition.appender.remove_expired_producers(clock())
