"""Stores the states of share groups in `__share_group_state`. A partition is loaded on first use, and stays loaded."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from threading import RLock

from topicfs.coordination.records.share_state_records import SharePartitionKey, ShareState
from topicfs.coordination.shares.coordinator_topic import CoordinatorTopic, append, replay
from topicfs.coordination.shares.state.shard import StateRecord, StateShard, StateWrite
from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Partition
from topicfs.storage.errors import PolicyViolationError
from topicfs.storage.model import Offset, Timestamp

TOPIC = "__share_group_state"


class _Served:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.shard = StateShard()
        replay(partition, self.shard.replay)


class StateStore:
    """The states of all groups. Safe from any thread; one lock serializes the calls."""

    def __init__(self, topic: CoordinatorTopic, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._served: dict[int, _Served] = {}
        self._lock = RLock()

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Start or restart a group at an offset, after creating the topic if it is missing.

        Raises StateFencedError and the errors of `write`.
        """
        with self._lock:
            self._topic.make()
            served = self._of(key)
            self._append(served, [served.shard.initialize(key, state_epoch, start_offset, self._clock())])

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
        """Return a stored state; None if there is none. If `leader_epoch` is new, append a record that stores it.

        Raises StateFencedError, CorruptionError.
        """
        with self._lock:
            if not self._topic.exists:
                return None
            served = self._of(key)
            if key not in served.shard.states:
                return None
            state, record = served.shard.read(key, leader_epoch, self._clock())
            if record is not None:
                self._append(served, [record])
            return state

    def peek(self, key: SharePartitionKey) -> ShareState | None:
        """Return a stored state without writing anything. Raises CorruptionError."""
        with self._lock:
            return self._of(key).shard.states.get(key) if self._topic.exists else None

    def write(self, key: SharePartitionKey, write: StateWrite) -> None:
        """Append a state. Raises NotInitializedError, StateFencedError, ReadOnlyError, and the log's other errors."""
        with self._lock:
            served = self._of(key)
            self._append(served, [served.shard.write(key, write, self._clock())])

    def delete(self, key: SharePartitionKey) -> None:
        """Delete the state of a group in a partition. Raises the errors of `write`."""
        with self._lock:
            if not self._topic.exists:
                return
            served = self._of(key)
            record = served.shard.delete(key)
            if record is not None:
                self._append(served, [record])

    def delete_topics(self, topic_ids: frozenset[uuid.UUID]) -> None:
        """Delete the states in deleted topics. Raises the errors of `write`."""
        with self._lock:
            for served in self._all():
                records = served.shard.delete_topics(topic_ids)
                if records:
                    self._append(served, records)

    def states(self) -> Iterator[tuple[SharePartitionKey, ShareState]]:
        """Yield all states as stored at the time of the call. Raises CorruptionError, PartitionOfflineError."""
        with self._lock:
            found = [item for served in self._all() for item in served.shard.states.items()]
        yield from found

    def maintain(self, now: Timestamp) -> None:
        """Replace snapshots of states that have not changed for long, and delete records that are then redundant.

        Raises the errors of `write`.
        """
        with self._lock:
            for served in list(self._served.values()):
                records = served.shard.snapshot_cold(now)
                if records:
                    self._append(served, records)
                before = served.shard.redundant_below()
                if before is not None and before > served.partition.log_start_offset:
                    try:
                        served.partition.delete_records(before)
                    except PolicyViolationError:
                        continue  # The topic is compacted, which keeps it small without this deletion.

    def _all(self) -> Iterator[_Served]:
        for number in self._topic.numbers():
            yield self._serve(number)

    def _of(self, key: SharePartitionKey) -> _Served:
        name = coordinator_name(key)
        return self._serve(
            self._topic.number_of(name, lambda number: key in self._serve(number).shard.states)
        )

    def _serve(self, number: int) -> _Served:
        partition = self._topic.partition(number)
        served = self._served.get(number)
        if served is None or served.partition is not partition:
            served = self._served[number] = _Served(partition)
        return served

    def _append(self, served: _Served, records: list[StateRecord]) -> None:
        first = append(served.partition, [one.bytes for one in records], self._clock())
        for at, record in enumerate(records):
            served.shard.apply(record.about, record.content, Offset(first + at))


def coordinator_name(key: SharePartitionKey) -> str:
    """Return the key whose hash chooses the partition of `__share_group_state`."""
    return f"{key.group}:{encode_id(key.topic_id)}:{key.partition}"
