"""What a stopped broker's files tell of share groups, and having our engine go on with it.

Topics keep their ids, so that states stay what they are. A group that has not begun in a partition, as one that waited
for its first record, begins where a broker would have let it: behind what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from storage.codec.columns import Columns
from storage.coordinators.share_group_records import GroupTopics
from storage.coordinators.share_state_records import SharePartitionKey, ShareState
from storage.disk.filesystem import FileSystem
from storage.handover.positions import read_columns
from storage.model import Offset
from storage.shares.coordinator_topic import KeyValue
from storage.shares.memberships import GroupRecords
from storage.shares.state.shard import StateShard


class ShareGroupsFound(NamedTuple):
    """The share groups of a broker."""

    epochs: dict[str, int]
    topics: dict[str, GroupTopics]
    states: dict[SharePartitionKey, ShareState]


def read_share_groups(files: FileSystem, groups: Iterable[Path], states: Iterable[Path]) -> ShareGroupsFound:
    """Read them out of partitions' directories of `__consumer_offsets` and `__share_group_state` (blocking).

    Raises CorruptionError, OSError.
    """
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


def _read(files: FileSystem, directory: Path, replay: Callable[[KeyValue, Offset], None]) -> None:
    def take(columns: Columns) -> None:
        first = 0
        for batch in columns.batches:
            for index in range(first, batch.record_end):
                record = columns.record(index)
                if record.key is not None and not batch.is_control:
                    replay(KeyValue(record.key, record.value), record.offset)
            first = batch.record_end

    read_columns(files, directory, take)
