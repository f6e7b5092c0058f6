"""Finds the topics in the data directories, and loads their partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from itertools import groupby
from types import MappingProxyType

from topicfs.storage.directories.directories import Directories
from topicfs.storage.disk.names import DirectoryMark
from topicfs.storage.engine import Partition
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Timestamp, TopicPartition
from topicfs.storage.topics.loader import PartitionToLoad, load, load_all
from topicfs.storage.topics.reconciliation import FoundTopic, find_topics, marked, refusal, survey
from topicfs.storage.topics.registry import TopicEntry, TopicRegistry
from topicfs.storage.topics.topic import LogTopic, lenient_config

MAX_OPENED_AT_START = 1000
"""If there are at most this many partitions, the start opens all of them, even those that were closed cleanly."""


def assemble(
    directories: Directories,
    registry: TopicRegistry,
    warn: ReportLine,
    *,
    max_opened_at_start: int = MAX_OPENED_AT_START,
) -> dict[str, LogTopic]:
    """Find every topic and load its partitions. Blocks.

    If there are more than `max_opened_at_start` partitions, those that were closed cleanly are loaded on first use.
    Raises NotALogDirectoryError, DuplicatePartitionError, OSError.
    """
    found = find_all(directories, registry, warn, max_opened_at_start=max_opened_at_start)
    topics = {name: make_topic(directories, name, one, warn) for name, one in found.items()}
    wanted = []
    for name, one in found.items():
        topic = topics[name]
        later = () if one.checked else _may_wait(directories, name, one.numbers)
        if later:
            topic.leave_unopened(later, partial(_load_later, directories, topic, warn))
        at_once = [number for number in one.numbers if number not in later]
        wanted += [partition_to_load(directories, topic, one, number) for number in at_once]
    loaded = load_all(directories, wanted, warn)
    for name, group in groupby(loaded.items(), key=lambda item: item[0].topic):
        topics[name].put_partitions({partition.partition: one for partition, one in group})
    return topics


def _may_wait(directories: Directories, topic: str, numbers: Iterable[int]) -> Collection[int]:
    """Return the partitions that can be loaded later, because the checkpoints have their offsets."""
    partitions = (TopicPartition(topic, number) for number in numbers)
    found = ((one, directories.by_partition.get(one)) for one in partitions)
    return {
        one.partition for one, place in found if place is not None and place.writer.is_fully_checkpointed(one)
    }


def _load_later(directories: Directories, topic: LogTopic, warn: ReportLine, number: int) -> Partition:
    unchecked = FoundTopic(TopicEntry(topic.topic_id), (number,), MappingProxyType({}), checked=False)
    return load(directories, partition_to_load(directories, topic, unchecked, number), warn)


def find_all(
    directories: Directories,
    registry: TopicRegistry,
    warn: ReportLine,
    *,
    max_opened_at_start: int | None = None,
) -> dict[str, FoundTopic]:
    """Find the topics, and schedule the removal of deleted directories.

    If there are more than `max_opened_at_start` partitions, check only the first partition of each topic.
    """
    contents = survey(directories)
    in_order = not directories.read_only and all(one.clean and one.failure is None for one in directories.all)
    check_all = (
        not in_order or max_opened_at_start is None or len(directories.by_partition) <= max_opened_at_start
    )
    found = find_topics(directories, registry, warn, check_all=check_all)
    due = Timestamp(directories.clock() + directories.config.topic_defaults.file_delete_delay_ms)
    for directory, name in marked(contents, DirectoryMark.DELETE):
        directory.deleted.add(name, due)
    # With replicas, the code that moves replicas between engines handles the copies that are on their way
    # here.
    others = () if directories.one_of_many else (DirectoryMark.FUTURE,)
    for _, name in marked(contents, DirectoryMark.STRAY, *others):
        warn(f"{name}: kept, but not served")
    return found


def make_topic(directories: Directories, name: str, found: FoundTopic, warn: ReportLine) -> LogTopic:
    """Make a topic that has no partitions yet."""
    config, problems = lenient_config(found.entry.overrides, directories.config.topic_defaults)
    for problem in problems:
        warn(f"{name}: setting ignored: {problem}")
    return LogTopic(
        name, topic_id=found.entry.topic_id, config=config, overrides=found.entry.overrides, partitions={}
    )


def partition_to_load(
    directories: Directories, topic: LogTopic, found: FoundTopic, number: int
) -> PartitionToLoad:
    """Return the description by which one of a topic's partitions is loaded."""
    partition = TopicPartition(topic.name, number)
    directory = directories.by_partition.get(partition)
    refused = found.refused.get(number) if found.checked else refusal(directories, partition, topic.topic_id)
    return PartitionToLoad(partition, topic.config, directory, refused)
