"""The machine: an engine over a real directory that is killed and reopened, and the models of its partitions."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.doubles.manual_clock import ManualClock
from tests.doubles.manual_flusher import ManualFlusher
from tests.doubles.mortal_disk import Killed
from tests.interop.ours import read_records
from tests.soak.crossings.comparison import compare_times, read_from
from tests.soak.crossings.disk import MortalDirectory
from tests.soak.crossings.model import PartitionModel
from tests.soak.crossings.settings import engine_config
from topicfs.coordination.engine import Engine
from topicfs.inspection.check.directory import DirectoryCheck
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.engine import Partition
from topicfs.storage.manager import Machine as EngineMachine
from topicfs.storage.model import Isolation

LATEST_TIME = 4 * 10**12
"""A time in 2096, which every file system can store."""
KEPT_FOREVER = {"retention.ms": "-1"}


class NothingToDoError(Exception):
    """Raised by a step that needs a topic or a partition if there is none."""


@dataclass(eq=False)
class TopicModel:
    """A topic and the models of its partitions."""

    name: str
    overrides: dict[str, str]
    partitions: list[PartitionModel]
    largest_delay: int = 0
    """Largest file.delete.delay.ms that the topic has had."""

    def config(self) -> TopicConfig:
        return TopicConfig.from_overrides(self.overrides, TopicConfig(segment_index_bytes=1_200))


@dataclass
class Interrupted:
    """Changes of topics that a kill interrupted. Each change may or may not have been made."""

    created: TopicModel | None = None
    deleted: str | None = None
    extended: tuple[str, int] | None = None
    """The topic that the change extends, and the number of partitions that the topic then has."""
    altered: tuple[str, dict[str, str]] | None = None
    """The topic whose settings the change alters, and the overrides that the topic then has."""


@dataclass
class Counts:
    """The results of the steps."""

    steps: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    """Number of kills, by the interrupted change."""
    records: int = 0
    compacted: int = 0
    """Number of records that compaction removed."""
    deleted: int = 0
    """Number of records that retention or DeleteRecords removed."""
    refusals: Counter[str] = field(default_factory=Counter)


class Crossing:
    """A data directory with its engine and the models of its partitions."""

    engine: EmbeddedEngine
    disk: MortalDirectory
    flusher: ManualFlusher

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.data = base, base / "data"
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.config = engine_config(self.chance)
        self.topics: dict[str, TopicModel] = {}
        self.interrupted = Interrupted()
        self.counts = Counts()
        self.delay_of_deleted = 0
        """Largest file.delete.delay.ms of the topics that were deleted since the engine was opened."""
        self.open()

    # Opening and closing.

    def open(self, *, steps_left: int | None = None) -> None:
        """Open the engine. Raises Killed if the engine is not open after `steps_left` changes of the disk."""
        self.disk = MortalDirectory(self.clock, self.chance)
        self.disk.steps_left = steps_left
        self.flusher = ManualFlusher()
        self.engine = open_engine(
            self.data,
            config=self.config,
            machine=EngineMachine(files=self.disk, clock=self.clock, flushers=lambda: self.flusher),
        )

    def close(self) -> None:
        """Close the engine cleanly. Afterwards the log starts are on disk, and a check finds nothing."""
        self.engine.close()
        for _, model, _partition in self.partitions():
            model.keep_start(model.start)
        self.check_directory(self.data)

    def reopen(self) -> None:
        """Reopen the directory after a clean close, and check that nothing has changed."""
        self.open()
        self._reload(after_kill=False)

    def recover(self) -> None:
        """Reopen the directory after a kill, possibly with more kills in between."""
        self.counts.kills[self.disk.last_change.partition(" ")[0]] += 1
        self.leave()
        while True:
            dies = self.chance.random() < 0.3
            try:
                self.open(steps_left=int(self.chance.expovariate(1 / 15)) if dies else None)
                break
            except Killed:
                self.counts.kills["opening"] += 1
                (self.data / ".lock").touch()
        self.disk.steps_left = None
        self._reload(after_kill=True)

    def leave(self) -> None:
        """Drop a killed engine: release its lock, but keep the lock file."""
        for directory in self.engine._directories.all:
            directory.release()
        if self.data.exists():
            (self.data / ".lock").touch()

    def _reload(self, *, after_kill: bool) -> None:
        """Compare the opened partitions with the models; after a kill, first find out what the kill interrupted.

        Raises AssertionError.
        """
        if after_kill:
            self._settle_topics()
        assert set(self.topics) == set(self.engine.topics()), (
            f"expected topics {set(self.topics)}, found {set(self.engine.topics())}"
        )
        for _topic, model, partition in self.partitions():
            assert "online" == partition.status().state, f"{model.name}: {partition.status().state}"
            offsets = partition.offsets()
            if after_kill:
                model.resolve_append(offsets.log_end_offset)
                model.move_start(offsets.log_start_offset, log_bytes(partition))
            else:
                assert model.start == offsets.log_start_offset, (
                    f"{model.name}: expected start {model.start}, {offsets}"
                )
            model.reload(offsets.log_start_offset, self.clock.now, self.config.producer_id_expiration_ms)
            model.requested_start = model.retained = None
        self.interrupted = Interrupted()
        self.delay_of_deleted = 0

    def _settle_topics(self) -> None:
        """Find out whether an interrupted change of topics was made."""
        there, maybe = self.engine.topics(), self.interrupted
        if maybe.deleted is not None and maybe.deleted not in there:
            self.topics.pop(maybe.deleted, None)
        if maybe.created is not None and maybe.created.name in there:
            self.topics[maybe.created.name] = maybe.created
        if maybe.extended is not None:
            name, total = maybe.extended
            topic, count = self.topics[name], len(there[name].partitions())
            if count == total:
                add_partitions(topic, total)
        if maybe.altered is not None:
            name, overrides = maybe.altered
            if dict(there[name].overrides) == overrides:
                self.topics[name].overrides = overrides

    # Queries.

    def partitions(self, engine: Engine | None = None) -> list[tuple[TopicModel, PartitionModel, Partition]]:
        """Return each partition with the model of its topic and its own model."""
        found = engine or self.engine
        return [
            (topic, model, found.partition(topic.name, number))
            for topic in self.topics.values()
            for number, model in enumerate(topic.partitions)
        ]

    def pick_topic(self, chance: Random) -> TopicModel:
        """Return the model of a random topic. Raises NothingToDoError."""
        if not self.topics:
            raise NothingToDoError("no topic")
        return self.topics[chance.choice(sorted(self.topics))]

    def pick(self, chance: Random) -> tuple[TopicModel, PartitionModel, Partition]:
        """Return a random partition with its models. Raises NothingToDoError."""
        found = self.partitions()
        if not found:
            raise NothingToDoError("no partition")
        return chance.choice(found)

    def set_clock(self, now: int) -> None:
        self.clock.now = max(10**9, min(now, LATEST_TIME))

    # Checks.

    def compare(self, chance: Random) -> None:
        """Compare everything with the models; raises AssertionError."""
        self.compare_with(self.engine, chance, exact_start=True)
        assert not self.engine.warnings, f"{self.engine.warnings}"

    def compare_with(self, engine: Engine, chance: Random, *, exact_start: bool) -> None:
        """Compare an engine with the models; raises AssertionError. `exact_start` is true for the directory's owner."""
        assert set(self.topics) == set(engine.topics()), (
            f"expected topics {set(self.topics)}, found {set(engine.topics())}"
        )
        for topic in self.topics.values():
            found = engine.topic(topic.name)
            assert topic.overrides == dict(found.overrides), (
                f"{topic.name}: expected {topic.overrides}, found {found.overrides}"
            )
            assert len(topic.partitions) == len(found.partitions()), topic.name
        for topic, model, partition in self.partitions(engine):
            topic.largest_delay = max(topic.largest_delay, topic.config().file_delete_delay_ms)
            assert "online" == partition.status().state, f"{model.name}: {partition.status().state}"
            before = len(model.kept), model.gone
            compare_partition(model, partition, chance, exact_start=exact_start)
            self.counts.deleted += before[0] - len(model.kept)
            self.counts.compacted += model.gone - before[1]

    def check_directory(self, directory: Path) -> None:
        """Run `topicfs check` on a directory that is not open; raises AssertionError if it finds anything."""
        found = [str(one) for one in DirectoryCheck(directory, NativeFileSystem(read_only=True)).findings()]
        assert not found, f"check found {found}"

    def image(self) -> Path:
        """Return a copy of the directory in the state that a kill would leave now."""
        copy = self.base / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", "--sparse=always", self.data, copy], check=True)
        return copy


def add_partitions(topic: TopicModel, total: int) -> None:
    """Add empty partitions to a model until it has `total`."""
    for number in range(len(topic.partitions), total):
        topic.partitions.append(PartitionModel(f"{topic.name}-{number}"))


def log_bytes(partition: Partition) -> int:
    """Return the size of a partition's segments."""
    return sum(segment.size_bytes for segment in partition.segments() or ())


def compare_partition(
    model: PartitionModel, partition: Partition, chance: Random, *, exact_start: bool
) -> None:
    """Compare bounds, records of both isolation levels and lookups by time. Raises AssertionError."""
    offsets = partition.offsets()
    start, end, stable = offsets.log_start_offset, offsets.log_end_offset, offsets.last_stable_offset
    assert model.end == end == offsets.high_watermark, f"{model.name}: ends at {model.end}, {offsets}"
    if exact_start:
        assert model.start == start, f"{model.name}: starts at {model.start}, {offsets}"
    else:
        assert model.durable_start <= start <= model.start, f"{model.name}: from {model.start}, {offsets}"
    possible = model.possible_stable_offsets(start, loaded=not exact_start)
    assert stable in possible, f"{model.name}: {offsets}, stable up to one of {possible}"
    segments = partition.segments()
    assert segments is not None
    active_base = segments[-1].base_offset
    if exact_start:
        model.keep_start(segments[0].base_offset)
    assert start == partition.log_start_offset
    raw = read_records(partition, Isolation.READ_UNCOMMITTED)
    for isolation in Isolation:
        visible_end = stable if isolation is Isolation.READ_COMMITTED else end
        assert visible_end == partition.visible_end(isolation)
        found = read_records(partition, isolation)
        model.compare(found, start, visible_end, isolation, active_base=active_base)
        if end > start:
            first = chance.randint(start, end - 1)
            suffix = [record for record in found if record.offset >= first]
            shown = read_from(partition, first, isolation, chance.choice((1, 200, 1 << 20)))
            assert suffix == shown, f"{model.name}: {isolation.value} from {first}"
        compare_times(partition, raw, visible_end, isolation, chance)
