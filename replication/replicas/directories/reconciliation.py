"""Updates a data directory to the agreed state, because topics may have changed while the directory was away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from topicfs.replication.replicas.directories.agreement import Agreement
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectory
from topicfs.replication.replicas.directories.state_file import ReplicaFile, ReplicatedTopicEntry
from topicfs.replication.replicas.rules.state import new_state
from topicfs.storage.errors import DuplicatePartitionError
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import TopicPartition


def adopt(replica_dirs: Iterable[ReplicaDirectory], agreement: Agreement) -> None:
    """Add the topics of new directories to the agreed state, all in one change. Each partition has one replica.

    Raises DuplicatePartitionError, OSError.
    """
    content = agreement.content
    entries: dict[str, ReplicatedTopicEntry] = {}
    for replica_dir in replica_dirs:
        for name, topic in replica_dir.engine.topics().items() if replica_dir.copy is None else ():
            known = entries.get(name) or content.topics.get(name)
            if topic.topic_id in content.deleted:
                continue
            taken = {} if known is None else known.partitions
            states = {
                number: new_state((replica_dir.number,))
                for number in topic.served
                if number not in taken or replica_dir.number not in taken[number].assigned
            }
            if known is not None:
                both = set(known.partitions) & set(states)
                if both or known.topic_id != topic.topic_id:
                    raise DuplicatePartitionError(
                        f"{name}: is in {replica_dir} and in another of the directories; move one of the two away"
                    )
                states |= known.partitions
            entries[name] = ReplicatedTopicEntry(
                topic.topic_id, topic.overrides, 1, MappingProxyType(dict(sorted(states.items())))
            )
    agreement.put_topics(entries)


def reconcile(replica_dir: ReplicaDirectory, content: ReplicaFile, warn: ReportLine) -> None:
    """Make a directory match the agreed state (blocking). Unknown topics stay. Raises StorageError, OSError."""
    engine = replica_dir.engine
    for name, topic in list(engine.topics().items()):
        if topic.topic_id in content.deleted:
            engine.delete_topic(name)
    others = set()
    for name, topic in engine.topics().items():
        entry = content.topics.get(name)
        if entry is None or entry.topic_id != topic.topic_id:
            others.add(name)
            warn(
                f"{name}: in {replica_dir} with the topic id {topic.topic_id}: not a replica of a topic here, so it is not served"
            )
    for name, entry in content.topics.items():
        if name not in others:
            _reconcile_topic(replica_dir, name, entry)
    engine.discard_futures(
        lambda partition, topic_id: _goes_elsewhere(replica_dir, content, partition, topic_id)
    )


def _reconcile_topic(replica_dir: ReplicaDirectory, name: str, entry: ReplicatedTopicEntry) -> None:
    engine = replica_dir.engine
    held = [number for number, state in entry.partitions.items() if replica_dir.number in state.assigned]
    if held:
        engine.hold_partitions(name, held, entry)
        changes = _changes(engine.topic(name).overrides, entry)
        if changes:
            engine.alter_config(name, changes)
    if name in engine.topics():
        surplus = set(engine.topic(name).served) - set(held) - _arriving(replica_dir, entry)
        if surplus:
            engine.drop_partitions(name, surplus)


def _goes_elsewhere(
    replica_dir: ReplicaDirectory, content: ReplicaFile, partition: TopicPartition, topic_id: str | None
) -> bool:
    """Return whether a copy remains from a deleted topic, a cancelled move, or an interrupted renewal."""
    entry = content.topics.get(partition.topic)
    if entry is None or topic_id not in (None, entry.topic_id):
        return topic_id in content.deleted
    return partition.partition not in _arriving(replica_dir, entry)


def _arriving(replica_dir: ReplicaDirectory, entry: ReplicatedTopicEntry) -> set[int]:
    """Return the numbers of the partitions that are moving to a directory.

    The copy of such a partition may already have its final directory name.
    """
    return {
        number
        for number, state in entry.partitions.items()
        if state.moving is not None and state.moving.target == replica_dir.number
    }


def _changes(present: Mapping[str, str], entry: ReplicatedTopicEntry) -> dict[str, str | None]:
    """Return the changes that turn the `present` overrides into the agreed overrides."""
    changes: dict[str, str | None] = {name: None for name in present if name not in entry.overrides}
    changes |= {name: value for name, value in entry.overrides.items() if present.get(name) != value}
    return changes
