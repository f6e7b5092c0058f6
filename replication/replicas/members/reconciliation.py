"""Updates a data directory to the agreed state: topics may have changed while it was away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from topicfs.replication.replicas.members.agreement import Agreement
from topicfs.replication.replicas.members.member import ReplicatingDirectory
from topicfs.replication.replicas.members.state_file import ReplicaFile, ReplicatedTopicEntry
from topicfs.replication.replicas.rules.state import new_state
from topicfs.storage.errors import DuplicatePartitionError
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import TopicPartition


def adopt(members: Iterable[ReplicatingDirectory], agreement: Agreement) -> None:
    """Add the topics of new members, with one replica each, in one change (DuplicatePartitionError, OSError)."""
    content = agreement.content
    entries: dict[str, ReplicatedTopicEntry] = {}
    for member in members:
        for name, topic in member.engine.topics().items() if member.copy is None else ():
            known = entries.get(name) or content.topics.get(name)
            if topic.topic_id in content.deleted:
                continue
            taken = {} if known is None else known.partitions
            states = {
                number: new_state((member.number,))
                for number in topic.served
                if number not in taken or member.number not in taken[number].assigned
            }
            if known is not None:
                both = set(known.partitions) & set(states)
                if both or known.topic_id != topic.topic_id:
                    raise DuplicatePartitionError(
                        f"{name}: is in {member} and in another of the directories; move one of the two away"
                    )
                states |= known.partitions
            entries[name] = ReplicatedTopicEntry(
                topic.topic_id, topic.overrides, 1, MappingProxyType(dict(sorted(states.items())))
            )
    agreement.put_topics(entries)


def reconcile(member: ReplicatingDirectory, content: ReplicaFile, warn: ReportLine) -> None:
    """Make a directory match the agreed state, leaving unknown topics alone (StorageError, OSError; blocking)."""
    engine = member.engine
    for name, topic in list(engine.topics().items()):
        if topic.topic_id in content.deleted:
            engine.delete_topic(name)
    others = set()
    for name, topic in engine.topics().items():
        entry = content.topics.get(name)
        if entry is None or entry.topic_id != topic.topic_id:
            others.add(name)
            warn(
                f"{name}: in {member} with the topic id {topic.topic_id}: not a replica of a topic here, so it is not served"
            )
    for name, entry in content.topics.items():
        if name not in others:
            _reconcile_topic(member, name, entry)
    engine.discard_futures(lambda partition, topic_id: _goes_elsewhere(member, content, partition, topic_id))


def _reconcile_topic(member: ReplicatingDirectory, name: str, entry: ReplicatedTopicEntry) -> None:
    engine = member.engine
    held = [number for number, state in entry.partitions.items() if member.number in state.assigned]
    if held:
        engine.hold_partitions(name, held, overrides=entry.overrides, topic_id=entry.topic_id)
        changes = _changes(engine.topic(name).overrides, entry)
        if changes:
            engine.alter_config(name, changes)
    if name in engine.topics():
        surplus = set(engine.topic(name).served) - set(held) - _arriving(member, entry)
        if surplus:
            engine.drop_partitions(name, surplus)


def _goes_elsewhere(
    member: ReplicatingDirectory, content: ReplicaFile, partition: TopicPartition, topic_id: str | None
) -> bool:
    """Return whether a future copy belongs to a deleted topic, a cancelled move, or an interrupted renewal."""
    entry = content.topics.get(partition.topic)
    if entry is None or topic_id not in (None, entry.topic_id):
        return topic_id in content.deleted
    return partition.partition not in _arriving(member, entry)


def _arriving(member: ReplicatingDirectory, entry: ReplicatedTopicEntry) -> set[int]:
    """Return the partitions that move to a directory: one may already have its final name there."""
    return {
        number
        for number, state in entry.partitions.items()
        if state.moving is not None and state.moving.target == member.number
    }


def _changes(present: Mapping[str, str], entry: ReplicatedTopicEntry) -> dict[str, str | None]:
    """Return the changes that turn the present overrides into the agreed ones."""
    changes: dict[str, str | None] = {name: None for name in present if name not in entry.overrides}
    changes |= {name: value for name, value in entry.overrides.items() if present.get(name) != value}
    return changes
