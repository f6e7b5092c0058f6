"""The topics as a writer sees them: their partitions, and the size and compression of their batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topicfs.pipeline.places.paths import contents_of
from topicfs.storage.checkpoints.partition_metadata import topic_id_of
from topicfs.storage.codec.headers import PLAIN, BatchStamp, Codec
from topicfs.storage.codec.records import DEFAULT_MAX_BATCH_BYTES
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.cluster_metadata import find_cluster_metadata
from topicfs.storage.disk.names import is_internal, partition_directory
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import PolicyViolationError, UnknownTopicError
from topicfs.storage.model import TopicPartition
from topicfs.storage.topics.registry import merge_copies, read_copy
from topicfs.storage.topics.topic import lenient_config
from topicfs.storage.validation.batches import compression_of

MAX_BATCH_BYTES = DEFAULT_MAX_BATCH_BYTES
"""Largest batch of several records that a task stages, even if the topic allows larger ones: it bounds memory."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    partitions: tuple[int, ...]
    """Numbers of the partitions, ascending."""
    max_batch_bytes: int
    topic_id: str | None = None
    """ID of the topic; None if no file contains the ID."""
    stamp: BatchStamp = PLAIN
    """Compression of the batches: tasks compress, and the owner appends the batches unchanged."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts about a topic that can be read without opening its logs."""

    partitions: tuple[int, ...]
    """Numbers of the partitions, ascending."""
    topic_id: str | None
    overrides: Mapping[str, str]
    """The topic's own settings, by Kafka's names."""
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class Layout:
    """The topics of data directories at one moment. Spark sends this object, which is small, to every task."""

    topics: Mapping[str, TopicLayout]

    def topic(self, name: str) -> TopicLayout:
        """Return a topic's layout. Raises UnknownTopicError, PolicyViolationError."""
        if is_internal(name):
            raise PolicyViolationError(f"{name}: is Kafka's own topic; only Kafka writes to it")
        found = self.topics.get(name)
        if found is None:
            raise UnknownTopicError(f"{name}: no such topic; make it first: topicfs topics create {name}")
        return found


def read_layout(directories: Sequence[Path]) -> Layout:
    """Read the topics' layout, without opening or locking a log. Raises PipelineError, StorageError, OSError."""
    return Layout({topic: layout_of(facts) for topic, facts in read_topics(directories).items()})


def layout_of(facts: TopicFacts) -> TopicLayout:
    codec, level = compression_of(facts.config)
    stamp = BatchStamp(codec=codec or Codec.NONE, compression_level=level)
    return TopicLayout(facts.partitions, facts.config.max_message_bytes, facts.topic_id, stamp)


def read_topics(directories: Sequence[Path]) -> dict[str, TopicFacts]:
    """Read topics' names and settings; open and lock no log. Raises PipelineError, StorageError, OSError."""
    files = NativeFileSystem(read_only=True)
    registry = merge_copies([read_copy(directory, files) for directory in directories])
    numbers: dict[str, list[int]] = {}
    partition_directories: dict[str, Path] = {}
    for directory in directories:
        for topic, found in contents_of(directory, files).topics().items():
            numbers.setdefault(topic, []).extend(found)
            partition_directories[topic] = directory / partition_directory(TopicPartition(topic, found[0]))
    topics = {}
    for topic, found in numbers.items():
        entry = registry.entries.get(topic)
        overrides = entry.overrides if entry else {}
        topic_id = entry.topic_id if entry else topic_id_of(partition_directories[topic], files)
        config, _ = lenient_config(overrides, TopicConfig())
        topics[topic] = TopicFacts(tuple(sorted(set(found))), topic_id, overrides, config)
    return topics


def broker_settings(directories: Sequence[Path]) -> dict[str, dict[str, str]]:
    """Return the settings of topics, by topic, from a broker's metadata log. Raises CorruptionError, OSError."""
    image = find_cluster_metadata(NativeFileSystem(read_only=True), directories)
    return image.settings if image else {}
