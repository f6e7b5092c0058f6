"""Share groups in files: a takeover moves them from a broker to the engine, a handover from the engine to a cluster.

A takeover keeps topic ids and states. In a handover, the cluster has different topic ids, and gets only the positions
of groups that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from topicfs.cluster.brokers.share_groups import ShareGroupAdmin
from topicfs.coordination.records.share_group_records import GroupTopics
from topicfs.coordination.records.share_state_records import SharePartitionKey, ShareState
from topicfs.coordination.shares.coordinator_topic import TopicRecord
from topicfs.coordination.shares.memberships import GroupRecords
from topicfs.coordination.shares.state.shard import StateShard
from topicfs.migration.positions import read_batches
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.model import Offset, Record, TopicPartition


class ShareGroupsFound(NamedTuple):
    epochs: dict[str, int]
    topics: dict[str, GroupTopics]
    states: dict[SharePartitionKey, ShareState]


def read_share_groups(files: FileSystem, groups: Iterable[Path], states: Iterable[Path]) -> ShareGroupsFound:
    """Read share groups from the directories of both internal topics (blocking). Raises CorruptionError, OSError."""
    found = ShareGroupsFound({}, {}, {})
    for directory in groups:
        records = GroupRecords()
        _read(files, directory, records.replay)
        for name, group in records.groups.items():
            found.epochs[name] = group.epoch
            found.topics[name] = group.topics
    for directory in states:
        shard = StateShard()
        _read(files, directory, shard.replay)
        found.states.update(shard.states)
    return found


def put_share_groups(
    cluster: ShareGroupAdmin,
    found: ShareGroupsFound,
    topics: Mapping[UUID, str],
    topic_ids: Mapping[str, str],
) -> Iterator[str]:
    """Store groups' positions in the cluster; yield a line for each. Raises ClusterError if a group has members."""
    by_group: dict[str, dict[TopicPartition, ShareState]] = {}
    for key, state in sorted(found.states.items()):
        if key.topic_id in topics and state.start_offset >= 0:
            partition = TopicPartition(topics[key.topic_id], key.partition)
            by_group.setdefault(key.group, {})[partition] = state
    for group, states in by_group.items():
        present = cluster.positions(group, list(states))
        missing = {partition: state for partition, state in states.items() if partition not in present}
        if missing:
            cluster.put(group, missing, topic_ids)
            places = ", ".join(f"{each} at {state.start_offset}" for each, state in missing.items())
            yield f"share group {group}: its position was set as here: {places}"
        if len(missing) < len(states):
            there = ", ".join(f"{each} at {offset}" for each, offset in sorted(present.items()))
            yield f"share group {group}: already has positions there: {there}"


def _read(files: FileSystem, directory: Path, replay: Callable[[TopicRecord, Offset], None]) -> None:
    def take(batch: BatchHeader, records: Iterable[Record]) -> None:
        for record in () if batch.is_control else records:
            if record.key is not None:
                replay(TopicRecord(record.key, record.value), record.offset)

    read_batches(files, directory, take)
