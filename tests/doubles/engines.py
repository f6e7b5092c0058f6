"""Engines over simulated disks, and short ways to append and read."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import read_records
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.engine import Engine
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition
from topicfs.storage.log.flush import Flusher, NoFlusher
from topicfs.storage.log.log import Log
from topicfs.storage.manager import Machine
from topicfs.storage.model import Appended

DATA = Path("/data")
TINY_SEGMENTS = {"internal.segment.bytes": "300"}
"""Settings of a topic with which a handful of batches fills several segments."""


def engine_on(
    disk: SimulatedDisk,
    *,
    clock: ManualClock | None = None,
    config: EngineConfig | None = None,
    flusher: Flusher | None = None,
) -> EmbeddedEngine:
    """Open the data directory of a simulated disk; create the directory if it is missing."""
    return open_engine(
        DATA,
        read_only=disk.read_only,
        config=config or QUIET,
        machine=Machine(files=disk, clock=clock or ManualClock(), flushers=lambda: flusher or NoFlusher()),
    )


def listing(disk: SimulatedDisk) -> list[str]:
    """Return the names in the data directory."""
    return [entry.name for entry in disk.list_directory(DATA)]


def append_lines(partition: Partition, text: str, *, timestamp: int = 1_700_000_000_000) -> Appended:
    """Append the lines of `text` as records of one batch; each line ends with LF."""
    (batch,) = encode_lines(text.encode(), timestamp=timestamp)
    return partition.append(batch)


def read_lines(partition: Partition) -> list[str]:
    """Return every visible value from the log start on."""
    return [(each.value or b"").decode() for each in read_records(partition)]


def state_of(engine: Engine) -> dict[str, tuple[dict[str, str], dict[int, list[str]]]]:
    """Return, by topic, the overrides and the visible values of each partition."""
    return {
        name: (dict(topic.overrides), {number: read_lines(one) for number, one in topic.partitions().items()})
        for name, topic in engine.topics().items()
    }


def log_of(engine: Engine, topic: str = "orders", number: int = 0) -> Log:
    """Return the log of a partition of an embedded engine."""
    log = engine.partition(topic, number)
    assert isinstance(log, Log)
    return log


QUIET = EngineConfig(recovery_threads=1, topic_defaults=TopicConfig(segment_index_bytes=1200))
"""A configuration for small disks in memory: a single loading thread makes calls happen in a fixed order, and indexes
are small.
"""
