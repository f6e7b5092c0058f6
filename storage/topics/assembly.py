"""Finding the topics in the data directories, and loading their partitions."""

from __future__ import annotations

from storage.directories.directories import Directories
from storage.disk.names import DirectoryMark
from storage.messages import Say
from storage.model import Timestamp, TopicPartition
from storage.topics.loading import PartitionToLoad, load_all
from storage.topics.reconciliation import FoundTopic, find_topics, marked, survey
from storage.topics.registry import TopicRegistry
from storage.topics.topic import LogTopic, lenient_config


def assemble(directories: Directories, registry: TopicRegistry, warn: Say) -> dict[str, LogTopic]:
    """Find and load every topic (blocking).

    Raises NotALogDirectoryError, DuplicatePartitionError, OSError.
    """
    found = find_all(directories, registry, warn)
    topics = {name: make_topic(directories, name, one, warn) for name, one in found.items()}
    wanted = [
        partition_to_load(directories, topics[name], one, number)
        for name, one in found.items()
        for number in one.numbers
    ]
    loaded = load_all(directories, wanted, warn)
    for name, topic in topics.items():
        topic.set_partitions({number: loaded[TopicPartition(name, number)] for number in found[name].numbers})
    return topics


def find_all(directories: Directories, registry: TopicRegistry, warn: Say) -> dict[str, FoundTopic]:
    """Find the topics in the directories, and schedule the removal of deleted partitions."""
    contents = survey(directories)
    found = find_topics(directories, registry, warn)
    due = Timestamp(directories.clock() + directories.config.topic_defaults.file_delete_delay_ms)
    for directory, name in marked(contents, DirectoryMark.DELETE):
        directory.deleted.add(name, due)
    for _, name in marked(contents, DirectoryMark.STRAY, DirectoryMark.FUTURE):
        warn(f"{name}: kept, but not served")
    return found


def make_topic(directories: Directories, name: str, found: FoundTopic, warn: Say) -> LogTopic:
    """Make a topic without partitions yet."""
    config, problems = lenient_config(found.entry.overrides, directories.config.topic_defaults)
    for problem in problems:
        warn(f"{name}: setting passed over: {problem}")
    return LogTopic(
        name, topic_id=found.entry.topic_id, config=config, overrides=found.entry.overrides, partitions={}
    )


def partition_to_load(
    directories: Directories, topic: LogTopic, found: FoundTopic, number: int
) -> PartitionToLoad:
    """Return what to load for one of a topic's partitions."""
    partition = TopicPartition(topic.name, number)
    directory = directories.by_partition.get(partition)
    return PartitionToLoad(partition, topic.config, directory, found.refused.get(number))
