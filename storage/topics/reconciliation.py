"""Reconciles directories and registry when data directories are opened.

Pending changes are completed, topics without settings are adopted, and topic IDs are decided. If the directories are
read-only, nothing on disk is changed, and only the returned values show these decisions. While a directory is
missing, no partition counts as deleted.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.partition_metadata import read_topic_id, topic_id_of, write_topic_id
from topicfs.storage.directories.contents import Contents
from topicfs.storage.directories.data_directory import DataDirectory
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.disk.names import DirectoryMark
from topicfs.storage.errors import CorruptionError, DuplicatePartitionError
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import TopicPartition
from topicfs.storage.topics.registry import PendingChange, TopicEntry, TopicRegistry
from topicfs.storage.topics.topic import NO_TOPIC_ID, own_overrides


class FoundTopic(NamedTuple):
    """A topic as it is on disk."""

    entry: TopicEntry
    numbers: tuple[int, ...]
    """The ascending numbers of the topic's partitions, including those that must be in a failed directory."""
    refused: Mapping[int, str]
    """The reason why a partition does not belong to the topic, by the partition's number."""
    checked: bool = True
    """False if only the first partition's topic ID was read; `refusal` then checks the other partitions."""


def survey(directories: Directories) -> dict[OpenDirectory, Contents]:
    """Record each partition's directory. Raises NotALogDirectoryError, DuplicatePartitionError, OSError."""
    contents: dict[OpenDirectory, Contents] = {}

    def look(directory: OpenDirectory) -> None:
        contents[directory] = directory.data.contents()

    directories.attempt_each(look)
    placed: dict[TopicPartition, OpenDirectory] = {}
    for directory, content in contents.items():
        for partition in content.partitions:
            other = placed.setdefault(partition, directory)
            if other is not directory:
                raise DuplicatePartitionError(
                    f"{partition}: is in {other} and in {directory}; move one of the two away"
                )
    known = directories.by_partition.items()
    directories.forget([one for one, where in known if one not in placed and where.failure is None])
    for partition, directory in placed.items():
        directories.place(partition, directory)
    return contents


def finish_pending(directories: Directories, registry: TopicRegistry) -> None:
    """Complete interrupted creations and deletions; changes in a failed directory stay pending. Raises OSError."""
    if all(entry.pending is PendingChange.NOTHING for entry in registry.entries.values()):
        return
    survey(directories)
    for topic, entry in registry.entries.items():
        if entry.pending is PendingChange.DELETE:
            _mark_all_deleted(directories, topic, entry.topic_id)
        elif entry.pending is PendingChange.CREATE and not directories.failed and not directories.one_of_many:
            _make_missing(directories, topic, entry)
    directories.attempt_each(lambda directory: directory.data.sync())
    if not directories.failed:
        registry.put({topic: _without_pending(entry) for topic, entry in registry.entries.items()})


def find_topics(
    directories: Directories, registry: TopicRegistry, warn: ReportLine, *, check_all: bool = True
) -> dict[str, FoundTopic]:
    """Return the topics in the surveyed directories; add those without an entry to the registry. Raises OSError.

    If `check_all` is False, a topic is identified by its first partition's topic ID. Read-only directories
    stay as they are.
    """
    found = {}
    for topic, numbers in _numbers(directories, registry).items():
        kept = registry.entries.get(topic)
        if kept and kept.pending is PendingChange.DELETE:
            continue
        if (
            kept
            and not check_all
            and _read_ids(directories, topic, numbers[:1])[0] == {numbers[0]: kept.topic_id}
        ):
            entry = _as_in_cluster(topic, kept, directories, registry)
            found[topic] = FoundTopic(entry, tuple(numbers), MappingProxyType({}), checked=False)
            continue
        ids, refused = _read_ids(directories, topic, numbers)
        entry = _as_in_cluster(topic, _entry_of(topic, kept, ids, directories, warn), directories, registry)
        refused |= _of_others(ids, entry.topic_id)
        found[topic] = FoundTopic(entry, tuple(numbers), MappingProxyType(refused))
        if not directories.read_only:
            _write_missing_ids(directories, topic, ids, entry.topic_id)
    _update_registry(directories, registry, found, warn)
    return found


def refusal(directories: Directories, partition: TopicPartition, topic_id: str) -> str | None:
    """Return why an unchecked partition is not of the topic; None if it is. Writes a missing ID. Raises OSError."""
    ids, refused = _read_ids(directories, partition.topic, [partition.partition])
    _write_missing_ids(directories, partition.topic, ids, topic_id)
    return {**refused, **_of_others(ids, topic_id)}.get(partition.partition)


def _of_others(ids: Mapping[int, str | None], topic_id: str) -> dict[int, str]:
    return {
        number: f"its topic id is {found}, the topic's is {topic_id}"
        for number, found in ids.items()
        if found not in (None, topic_id)
    }


def _update_registry(
    directories: Directories, registry: TopicRegistry, found: Mapping[str, FoundTopic], warn: ReportLine
) -> None:
    changes: dict[str, TopicEntry | None] = {}
    if not directories.failed and not directories.one_of_many:
        gone = registry.entries.keys() - found.keys()
        for topic in sorted(gone):
            warn(f"{topic}: has settings but no directory any more; its settings are dropped")
        changes.update(dict.fromkeys(gone))
    for topic, one in found.items():
        expected, present = range(one.entry.partitions), directories.by_partition
        missing = [number for number in expected if (topic, number) not in present]
        if missing and not directories.failed and not directories.one_of_many:
            numbers = ", ".join(map(str, missing))
            warn(f"{topic}: not in {directories}: partition{'s' * (len(missing) != 1)} {numbers}")
        whole = one.numbers == tuple(range(len(one.numbers)))
        changes[topic] = one.entry._replace(partitions=len(one.numbers)) if whole else one.entry
    if not directories.read_only:
        registry.put(changes)


def _numbers(directories: Directories, registry: TopicRegistry) -> dict[str, list[int]]:
    topics: dict[str, set[int]] = {}
    for topic, number in directories.by_partition:
        topics.setdefault(topic, set()).add(number)
    if directories.failed:
        for topic, entry in registry.entries.items():
            if entry.partitions:
                topics.setdefault(topic, set()).update(range(entry.partitions))
    return {topic: sorted(topics[topic]) for topic in sorted(topics)}


def _without_pending(entry: TopicEntry) -> TopicEntry | None:
    if entry.pending is PendingChange.DELETE:
        return None
    return entry._replace(pending=PendingChange.NOTHING)


def _mark_all_deleted(directories: Directories, topic: str, topic_id: str) -> None:
    """If a deletion of a topic left partitions, mark them as deleted.

    Directories of another topic of the same name do not change.
    """
    for partition, directory in sorted(directories.by_partition.items(), key=lambda item: item[0]):
        if partition.topic == topic and directory.failure is None:
            directories.attempt(directory, partial(_mark_deleted, directory.data, partition, topic_id))


def _mark_deleted(data: DataDirectory, partition: TopicPartition, topic_id: str) -> None:
    if topic_id_of(data.partition_path(partition), data.files) in (None, topic_id):
        data.rename_partition(partition, data.deleted_name(partition))


def _make_missing(directories: Directories, topic: str, entry: TopicEntry) -> None:
    for partition in (TopicPartition(topic, number) for number in range(entry.partitions)):
        directory = directories.by_partition.get(partition)
        if directory is None or not _has_topic_id(directory.data, partition):
            directory = directory or directories.choose()
            make = partial(directory.data.make_partition, partition, entry.topic_id)
            if not directories.attempt(directory, make):
                return
            directories.place(partition, directory)


def _has_topic_id(data: DataDirectory, partition: TopicPartition) -> bool:
    """Return whether a directory has a topic ID. If the file is damaged, loading the partition reports it."""
    try:
        return read_topic_id(data.files, data.partition_path(partition)) is not None
    except CorruptionError:
        return True


def _read_ids(
    directories: Directories, topic: str, numbers: list[int]
) -> tuple[dict[int, str | None], dict[int, str]]:
    """Return each partition's topic ID, and the reasons why some IDs cannot be read, both by partition number.

    The ID is None if the partition has none.
    """
    ids: dict[int, str | None] = {}
    refused: dict[int, str] = {}
    for partition in (TopicPartition(topic, number) for number in numbers):
        directory = directories.by_partition.get(partition)
        if directory is None or directory.failure is not None:
            continue
        try:
            data = directory.data
            ids[partition.partition] = read_topic_id(data.files, data.partition_path(partition))
        except (CorruptionError, OSError) as error:
            refused[partition.partition] = str(error)
    return ids, refused


def _entry_of(
    topic: str,
    kept: TopicEntry | None,
    ids: Mapping[int, str | None],
    directories: Directories,
    warn: ReportLine,
) -> TopicEntry:
    """Return the topic's entry: `kept` if it belongs to this topic, otherwise a new one."""
    known = [topic_id for topic_id in ids.values() if topic_id is not None]
    if kept and (not known or kept.topic_id in known or directories.failed):
        return kept
    if kept:
        warn(f"{topic}: was created again by another program; its former settings are dropped")
    if directories.read_only:
        return TopicEntry(known[0] if known else NO_TOPIC_ID)
    overrides = own_overrides(topic, directories.config.creation_overrides)
    return TopicEntry(known[0] if known else new_id(), overrides)


def _as_in_cluster(
    topic: str, entry: TopicEntry, directories: Directories, registry: TopicRegistry
) -> TopicEntry:
    """Return the entry with the overrides that the broker's cluster has given the topic since the last opening."""
    image = registry.cluster
    if image is None or image.topic_ids.get(topic) != entry.topic_id:
        return entry
    given = image.settings.get(topic, {})
    if given == entry.cluster:
        return entry
    own = own_overrides(topic, directories.config.creation_overrides)
    kept = {name: value for name, value in entry.overrides.items() if name not in entry.cluster}
    return entry._replace(overrides={**own, **kept, **given}, cluster=given)


def _write_missing_ids(
    directories: Directories, topic: str, ids: Mapping[int, str | None], topic_id: str
) -> None:
    for number, found in ids.items():
        if found is None:
            partition = TopicPartition(topic, number)
            directory = directories.by_partition[partition]
            if directory.failure is None:
                data = directory.data
                write = partial(write_topic_id, data.files, data.partition_path(partition), topic_id)
                directories.attempt(directory, write)


def marked(
    contents: Mapping[OpenDirectory, Contents], *marks: DirectoryMark
) -> Iterable[tuple[OpenDirectory, str]]:
    """Yield the directories of `contents` that have one of `marks`, as pairs of data directory and name."""
    for directory, content in contents.items():
        for mark in marks:
            for name in content.marked.get(mark, ()):
                yield directory, name
