"""Bringing directories and registry into agreement when a data directory is opened.

Changes that were under way are finished, topics without settings of their own are adopted, topic ids are
settled. What may not be changed (read-only) is only planned around: the result says how the topics are, not
what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from storage.checkpoints.identifiers import new_id
from storage.checkpoints.partition_metadata import read_topic_id, write_topic_id
from storage.errors import CorruptionError
from storage.manager.contents import Contents
from storage.manager.data_directory import DataDirectory, partitions_of
from storage.manager.registry import Pending, TopicEntry, TopicRegistry
from storage.manager.topics import NO_TOPIC_ID, own_overrides
from storage.model import TopicPartition

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as it stands on disk."""

    entry: TopicEntry
    numbers: tuple[int, ...]
    """Of its partitions, ascending."""
    refused: Mapping[int, str]
    """Why some of them are not the topic's own."""


def finish_pending(data: DataDirectory, registry: TopicRegistry) -> None:
    """Complete what a kill interrupted: topics being made or deleted (OSError; writes)."""
    contents = data.contents()
    for topic, entry in registry.entries.items():
        if entry.pending is Pending.DELETE:
            _mark_all_deleted(data, contents, topic, entry.topic_id)
        elif entry.pending is Pending.CREATE:
            for partition in partitions_of(topic, range(entry.partitions)):
                if partition not in contents.partitions or not _has_topic_id(data, partition):
                    data.make_partition(partition, entry.topic_id)
    if any(entry.pending is not Pending.NOTHING for entry in registry.entries.values()):
        data.sync()
        registry.put({topic: _settled(entry) for topic, entry in registry.entries.items()})


def find_topics(
    data: DataDirectory, contents: Contents, registry: TopicRegistry, warn: Warn
) -> dict[str, FoundTopic]:
    """Give the directory's topics; those without an entry are adopted (OSError; writes unless read-only)."""
    found = {}
    for topic, numbers in contents.topics().items():
        kept = registry.entries.get(topic)
        if kept and kept.pending is Pending.DELETE:
            continue
        ids, refused = _read_ids(data, topic, numbers)
        entry = _settle_entry(topic, kept, ids, data, warn)
        refused |= {
            number: f"its topic id is {topic_id}, the topic's is {entry.topic_id}"
            for number, topic_id in ids.items()
            if topic_id not in (None, entry.topic_id)
        }
        found[topic] = FoundTopic(entry, tuple(numbers), MappingProxyType(refused))
        if not data.read_only:
            _write_missing_ids(data, topic, ids, entry.topic_id)
    for topic in registry.entries.keys() - found.keys():
        warn(f"{topic}: has settings but no directory any more; its settings are dropped")
    if not data.read_only:
        changes: dict[str, TopicEntry | None] = dict.fromkeys(registry.entries.keys() - found.keys())
        registry.put({**changes, **{topic: one.entry for topic, one in found.items()}})
    return found


def _settled(entry: TopicEntry) -> TopicEntry | None:
    if entry.pending is Pending.DELETE:
        return None
    return TopicEntry(entry.topic_id, entry.overrides)


def _mark_all_deleted(data: DataDirectory, contents: Contents, topic: str, topic_id: str) -> None:
    """Rename what is left of a topic; a directory of another topic of the same name stays."""
    for partition in sorted(contents.partitions):
        if partition.topic != topic:
            continue
        try:
            found = read_topic_id(data.files, data.partition_path(partition))
        except CorruptionError:
            found = None
        if found in (None, topic_id):
            data.rename_partition(partition, data.deleted_name(partition))


def _has_topic_id(data: DataDirectory, partition: TopicPartition) -> bool:
    """Whether an existing directory says whose it is; a damaged file is for loading to complain about."""
    try:
        return read_topic_id(data.files, data.partition_path(partition)) is not None
    except CorruptionError:
        return True


def _read_ids(
    data: DataDirectory, topic: str, numbers: list[int]
) -> tuple[dict[int, str | None], dict[int, str]]:
    """Each partition's topic id, None where there is none; and why some cannot be read."""
    ids: dict[int, str | None] = {}
    refused: dict[int, str] = {}
    for number in numbers:
        try:
            ids[number] = read_topic_id(data.files, data.partition_path(TopicPartition(topic, number)))
        except (CorruptionError, OSError) as error:
            refused[number] = str(error)
    return ids, refused


def _settle_entry(
    topic: str, kept: TopicEntry | None, ids: Mapping[int, str | None], data: DataDirectory, warn: Warn
) -> TopicEntry:
    """Give the topic's entry: the kept one if it is of this topic, else one made for it."""
    known = [topic_id for topic_id in ids.values() if topic_id is not None]
    if kept and (not known or kept.topic_id in known):
        return kept
    if kept:
        warn(f"{topic}: was made anew by someone else; its former settings are dropped")
    if data.read_only:
        return TopicEntry(known[0] if known else NO_TOPIC_ID)
    overrides = own_overrides(topic, data.config.creation_overrides)
    return TopicEntry(known[0] if known else new_id(), overrides)


def _write_missing_ids(data: DataDirectory, topic: str, ids: Mapping[int, str | None], topic_id: str) -> None:
    for number, found in ids.items():
        if found is None:
            write_topic_id(data.files, data.partition_path(TopicPartition(topic, number)), topic_id)
