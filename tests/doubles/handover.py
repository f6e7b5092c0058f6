"""A data directory and a broker's log directory on a simulated disk. The engine of topicfs stands in for the broker."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End
from tests.doubles.records import NOW, batch, read_records
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import Position
from topicfs.migration.cluster import KafkaCluster, TopicDescription
from topicfs.migration.handover import Handover
from topicfs.migration.takeover import BrokerDirectories, Takeover
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.meta_properties import read_meta_properties
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.errors import StorageError
from topicfs.storage.manager import Machine
from topicfs.storage.model import Offset, Record, TopicPartition

DATA, LOG_DIR = Path("/data"), Path("/log")
SETTINGS = {
    "retention.ms": "-1",
    "internal.segment.bytes": "400",
    "index.interval.bytes": "100",
    "segment.index.bytes": "800",
}
CONFIG = EngineConfig(recovery_threads=1)
CHANGES = frozenset(
    {
        "pwrite",
        "rename",
        "link",
        "make_directory",
        "remove_directory",
        "unlink",
        "write_bytes",
        "sync_directory",
        "sync",
    }
)


class StopError(OSError):
    """Raised if a StoppingDisk refuses a change, so that the command that made the change ends."""


class StoppingDisk(SimulatedDisk):
    """A disk that allows `changes_left` changes below `watched` and refuses every later change, as after a kill."""

    watched = Path("/")
    changes_left: int | None = None
    changes_seen = 0

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        if operation in CHANGES and path.is_relative_to(self.watched):
            self.changes_seen += 1
            if self.changes_left is not None:
                if self.changes_left == 0:
                    raise StopError(f"{operation} {path}")
                self.changes_left -= 1
        super().happens(operation, path, changes=changes)


def opened(disk: SimulatedDisk, directory: Path | Sequence[Path]) -> Engine:
    return open_engine(directory, config=CONFIG, machine=Machine(files=disk, clock=ManualClock(NOW)))


@contextmanager
def served(disk: SimulatedDisk, directory: Path | Sequence[Path]) -> Iterator[Engine]:
    """Open an engine, and close it after the block. If the block fails, the engine stays as a kill leaves it."""
    engine = opened(disk, directory)
    yield engine
    engine.close()


@dataclass
class OwnCluster(KafkaCluster):
    """A cluster of one node whose log directory is served by the engine of topicfs instead of a broker."""

    disk: SimulatedDisk
    known: dict[str, TopicDescription] = field(default_factory=dict)
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, Position]] = field(default_factory=dict)

    def cluster_id(self) -> str:
        meta = read_meta_properties(self.disk, LOG_DIR)
        assert meta is not None
        return meta.cluster_id or ""

    def find_topic(self, name: str) -> TopicDescription | None:
        with served(self.disk, LOG_DIR) as engine:
            topic = engine.topics().get(name)
            return topic and TopicDescription(topic.topic_id, len(topic.partitions()), frozenset({1}))

    def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, str], node_id: int
    ) -> TopicDescription:
        assert 1 == node_id
        with served(self.disk, LOG_DIR) as engine:
            engine.create_topic(name, partitions=partitions, overrides=settings)
        found = self.find_topic(name)
        assert found is not None
        return found

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None:
        with served(self.disk, LOG_DIR) as engine:
            engine.alter_config(name, dict(settings))

    def offsets(self, name: str, partitions: int) -> dict[int, range]:
        with served(self.disk, LOG_DIR) as engine:
            return {
                number: range(partition.offsets().log_start_offset, partition.offsets().log_end_offset)
                for number, partition in engine.topic(name).partitions().items()
            }

    def positions(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        present = self.groups.get(group, {})
        return {each: present[each].offset for each in partitions if each in present}

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        self.groups.setdefault(group, {}).update(positions)


def numbered(first: int, count: int) -> bytearray:
    """Return a batch of `count` records, whose values and times count from `first`."""
    numbers = range(first, first + count)
    return batch(*[b"value %d" % n for n in numbers], timestamp=[NOW + n for n in numbers], key=b"key")


def contents(disk: SimulatedDisk, directory: Path | Sequence[Path]) -> dict[TopicPartition, list[Record]]:
    """Return the records of each partition that an engine serves from `directory`."""
    with served(disk, directory) as engine:
        return {
            TopicPartition(topic.name, number): read_records(partition)
            for topic in engine.topics().values()
            for number, partition in topic.partitions().items()
        }


def prepared_disk(source: Path) -> tuple[StoppingDisk, dict[TopicPartition, list[Record]]]:
    """Format both directories; make two topics in `source`, one of them with a log start inside a batch."""
    disk = StoppingDisk(seed=7)
    for directory in (DATA, LOG_DIR):
        opened(disk, directory).close()
    disk.sync_directory(Path("/"))
    with served(disk, source) as engine:
        orders = engine.create_topic("orders", partitions=2, overrides=SETTINGS)
        for number, partition in orders.partitions().items():
            for first in range(0, 16, 4):
                partition.append(numbered(first + number, 4))
        trimmed = engine.create_topic("trimmed", overrides=SETTINGS).partitions()[0]
        for first in range(0, 15, 5):
            trimmed.append(numbered(first, 5))
        trimmed.delete_records(Offset(7))
    return disk, contents(disk, source)


def given(disk: SimulatedDisk) -> Handover:
    """Return a new Handover; each run of the command makes its own."""
    return Handover([DATA], [LOG_DIR], report=lambda _: None, files=disk)


def taken(disk: SimulatedDisk, *, link: bool = False) -> list[str]:
    """Take the broker's directory over; return the printed lines."""
    lines: list[str] = []
    source = BrokerDirectories(log_dirs=[LOG_DIR], without_settings=True)
    Takeover(source, [DATA], report=lines.append, files=disk).take(link=link)
    return lines


def interrupt_everywhere(
    base: StoppingDisk,
    run: Callable[[StoppingDisk], object],
    check: Callable[[StoppingDisk], None],
    *,
    every: int,
) -> None:
    """Interrupt `run` at one change, call it again, and check the result; repeat this for every `every`-th change.

    At an interruption the disk refuses the change and all later changes. The interruptions are kills and power losses
    alternately. After every third interruption an engine serves the target before `run` is called again.
    """
    whole = copy.deepcopy(base)
    whole.changes_seen = 0
    run(whole)
    check(whole)
    assert whole.changes_seen > 20
    for turn, number in enumerate(range(0, whole.changes_seen, every)):
        disk = copy.deepcopy(base)
        disk.changes_left = number
        # A change that fails at the very end, after all files were moved, is reported only as a warning.
        with suppress(OSError, StorageError):
            run(disk)
        disk.changes_left = None
        tuple(End)[turn % len(End)].of(disk)
        if turn % 3 == 0:
            opened(disk, disk.watched).close()
        run(disk)
        check(disk)


def below(disk: SimulatedDisk, directory: Path) -> dict[str, bytes]:
    return {path: data for path, data in disk.tree().items() if Path(path).is_relative_to(directory)}
