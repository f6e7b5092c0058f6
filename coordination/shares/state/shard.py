"""One partition of `__share_group_state`: the state machine of Kafka's share coordinator. It does no I/O.

A request returns a record, which the caller appends and then replays. Only the replay changes the state. Loading
replays the records of the log in the same way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from topicfs.coordination.records.share_state_records import (
    NO_COUNT,
    NO_START,
    RecordType,
    SharePartitionKey,
    ShareState,
    ShareUpdate,
    StateBatch,
    read_snapshot,
    read_state_key,
    read_update,
    write_snapshot,
    write_state_key,
    write_update,
)
from topicfs.coordination.shares.coordinator_topic import TopicRecord
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Offset, Timestamp

UPDATES_PER_SNAPSHOT = 500
"""Kafka's default of share.coordinator.snapshot.update.records.per.snapshot."""
COLD_AFTER_MS = 5 * 60 * 1000
"""Age at which a state's last snapshot is replaced (share.coordinator.cold.partition.snapshot.interval.ms)."""
NO_EPOCH = -1


class StateFencedError(StorageError):
    """Raised for an epoch older than the newest known one (Kafka: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH)."""


class NotInitializedError(StorageError):
    """Raised if a group has no state in the partition (Kafka: INVALID_REQUEST)."""


class StateRecord(NamedTuple):
    key: bytes
    value: bytes | None
    """The record's value; None for a tombstone."""
    about: SharePartitionKey
    content: ShareState | ShareUpdate | None

    @property
    def bytes(self) -> TopicRecord:
        return TopicRecord(self.key, self.value)


class StateWrite(NamedTuple):
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """The new start offset; -1 if unchanged."""
    batches: tuple[StateBatch, ...]
    complete_count: int = NO_COUNT


class StateShard:
    def __init__(self) -> None:
        self._states: dict[SharePartitionKey, ShareState] = {}
        self._leader_epochs: dict[SharePartitionKey, int] = {}
        self._state_epochs: dict[SharePartitionKey, int] = {}
        self._updates: dict[SharePartitionKey, int] = {}
        self._snapshots: dict[SharePartitionKey, Offset] = {}
        """The offset of the newest snapshot of each group and partition."""

    # Queries.

    @property
    def states(self) -> Mapping[SharePartitionKey, ShareState]:
        return self._states

    def state(self, key: SharePartitionKey) -> ShareState:
        """Return the state of a group in a partition. Raises NotInitializedError."""
        found = self._states.get(key)
        if found is None:
            raise NotInitializedError(f"group {key.group}: has no state in partition {key.partition}")
        return found

    def redundant_below(self) -> Offset | None:
        """Return the offset below which every record is redundant; None if no record is redundant."""
        if not self._snapshots:
            return None
        oldest = min(self._snapshots.values())
        return oldest if oldest > 0 else None

    # Requests.

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now: Timestamp
    ) -> StateRecord:
        """Return the record that starts or restarts a group at an offset (-1: undecided). Raises StateFencedError."""
        self._check_state_epoch(key, state_epoch)
        known = self._states.get(key)
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            create_timestamp=now,
            write_timestamp=now,
            complete_count=NO_COUNT if start_offset == NO_START else 0,
        )
        return _snapshot(key, state)

    def write(self, key: SharePartitionKey, write: StateWrite, now: Timestamp) -> StateRecord:
        """Return the record that stores a state. Raises NotInitializedError, StateFencedError."""
        known = self.state(key)
        newest = self._leader_epochs.get(key, NO_EPOCH)
        if NO_EPOCH != write.leader_epoch < newest:
            raise StateFencedError(
                f"group {key.group}: leader epoch {write.leader_epoch} is older than {newest}"
            )
        self._check_state_epoch(key, write.state_epoch)
        return self._changed(key, known, write, known.leader_epoch, now)

    def read(
        self, key: SharePartitionKey, leader_epoch: int, now: Timestamp
    ) -> tuple[ShareState, StateRecord | None]:
        """Return the state. If `leader_epoch` is new, also return the record that stores this epoch.

        Raises NotInitializedError, StateFencedError.
        """
        known = self.state(key)
        newest = self._leader_epochs.get(key, NO_EPOCH)
        if leader_epoch in (NO_EPOCH, newest):
            return known, None
        if leader_epoch < newest:
            raise StateFencedError(f"group {key.group}: leader epoch {leader_epoch} is older than {newest}")
        write = StateWrite(known.state_epoch, leader_epoch, known.start_offset, (), known.complete_count)
        return known, self._changed(key, known, write, leader_epoch, now)

    def delete(self, key: SharePartitionKey) -> StateRecord | None:
        """Return the tombstone of a state; None if there is no such state."""
        return _tombstone(key) if key in self._states else None

    def delete_topics(self, topic_ids: frozenset[uuid.UUID]) -> list[StateRecord]:
        return [_tombstone(key) for key in self._states if key.topic_id in topic_ids]

    def snapshot_cold(self, now: Timestamp) -> list[StateRecord]:
        """Return a new snapshot of each state whose last snapshot is old. Older records are then redundant."""
        if all(one.create_timestamp != one.write_timestamp for one in self._states.values()):
            return []
        return [
            _snapshot(key, one._replace(snapshot_epoch=one.snapshot_epoch + 1, write_timestamp=now))
            for key, one in self._states.items()
            if now - one.write_timestamp >= COLD_AFTER_MS
        ]

    def _changed(
        self, key: SharePartitionKey, known: ShareState, write: StateWrite, leader_epoch: int, now: Timestamp
    ) -> StateRecord:
        if self._updates.get(key, 0) < UPDATES_PER_SNAPSHOT:
            update = ShareUpdate(
                known.snapshot_epoch,
                leader_epoch,
                write.start_offset,
                combine((), write.batches, write.start_offset),
                write.complete_count,
            )
            return StateRecord(write_state_key(key, RecordType.UPDATE), write_update(update), key, update)
        start_offset = known.start_offset if write.start_offset == NO_START else write.start_offset
        state = ShareState(
            known.snapshot_epoch + 1,
            known.state_epoch,
            leader_epoch,
            start_offset,
            now,
            now,
            combine(known.batches, write.batches, start_offset),
            write.complete_count,
        )
        return _snapshot(key, state)

    def _check_state_epoch(self, key: SharePartitionKey, state_epoch: int) -> None:
        newest = self._state_epochs.get(key, NO_EPOCH)
        if NO_EPOCH != state_epoch < newest:
            raise StateFencedError(f"group {key.group}: state epoch {state_epoch} is older than {newest}")

    # Appended records.

    def replay(self, record: TopicRecord, offset: Offset) -> None:
        """Apply a record of the log, skipping records of other types. Raises CorruptBatchError."""
        found = read_state_key(record.key)
        if found is None:
            return
        record_type, key = found
        if record_type is RecordType.SNAPSHOT:
            self.apply(key, None if record.value is None else read_snapshot(record.value), offset)
        elif record.value is not None:
            self.apply(key, read_update(record.value), offset)

    def apply(self, key: SharePartitionKey, content: ShareState | ShareUpdate | None, offset: Offset) -> None:
        if isinstance(content, ShareUpdate):
            self._take_update(key, content)
        elif content is not None:
            self._take_snapshot(key, content, offset)
        else:
            for known in (
                self._states,
                self._leader_epochs,
                self._state_epochs,
                self._updates,
                self._snapshots,
            ):
                known.pop(key, None)

    def _take_snapshot(self, key: SharePartitionKey, state: ShareState, offset: Offset) -> None:
        _raise_to(self._leader_epochs, key, state.leader_epoch)
        _raise_to(self._state_epochs, key, state.state_epoch)
        self._states[key] = state
        self._snapshots[key] = offset
        if self._updates.get(key, 0) >= UPDATES_PER_SNAPSHOT:
            self._updates[key] = 0

    def _take_update(self, key: SharePartitionKey, update: ShareUpdate) -> None:
        _raise_to(self._leader_epochs, key, update.leader_epoch)
        known = self._states.get(key)
        if known is None:
            known = ShareState(update.snapshot_epoch, 0, update.leader_epoch, update.start_offset, 0, 0)
        start_offset = known.start_offset if update.start_offset == NO_START else update.start_offset
        self._states[key] = known._replace(
            start_offset=start_offset,
            leader_epoch=known.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch,
            batches=combine(known.batches, update.batches, start_offset),
            complete_count=update.complete_count,
        )
        self._updates[key] = self._updates.get(key, 0) + 1


def _snapshot(key: SharePartitionKey, state: ShareState) -> StateRecord:
    return StateRecord(write_state_key(key, RecordType.SNAPSHOT), write_snapshot(state), key, state)


def _tombstone(key: SharePartitionKey) -> StateRecord:
    return StateRecord(write_state_key(key, RecordType.SNAPSHOT), None, key, None)


def _raise_to(epochs: dict[SharePartitionKey, int], key: SharePartitionKey, epoch: int) -> None:
    epochs[key] = max(epochs.get(key, epoch), epoch)


def combine(
    known: Iterable[StateBatch], changed: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Merge known and changed batches from `start_offset` on (-1: all batches), as Kafka does.

    The result is ordered, and its batches do not overlap. If a record has two states, the state with more deliveries
    counts; on a tie, the state with the higher number.
    """
    batches = [*known, *changed]
    if start_offset != NO_START:
        batches = [
            one if one.first >= start_offset else one._replace(first=start_offset)
            for one in batches
            if one.last >= start_offset
        ]
    if len(batches) < 2:
        return tuple(batches)
    return tuple(_merge(batches))


def _merge(batches: list[StateBatch]) -> list[StateBatch]:
    """Merge batches from left to right. The pieces of two overlapping batches are sorted into the remaining batches."""
    waiting = sorted({_order(one) for one in batches}, reverse=True)
    merged: list[StateBatch] = []
    before = _batch(waiting.pop())
    while waiting:
        candidate = _batch(waiting.pop())
        same = _rank(before) == _rank(candidate)
        if candidate.first <= before.last or (before.last + 1 == candidate.first and same):
            for piece in _pieces(before, candidate):
                _put(waiting, _order(piece))
            before = _batch(waiting.pop())
        else:
            merged.append(before)
            before = candidate
    merged.append(before)
    return merged


def _pieces(before: StateBatch, candidate: StateBatch) -> Iterable[StateBatch]:
    """Split or join two batches that overlap, or that are adjacent and in the same state.

    In the order of batches, `candidate` comes after `before`.
    """
    if _rank(before) == _rank(candidate):
        return (before._replace(last=max(before.last, candidate.last)),)
    behind = candidate._replace(first=before.last + 1)
    if _rank(candidate) < _rank(before):
        if candidate.last <= before.last:
            return (before,)
        return (before, behind)
    if candidate.first == before.first:
        return (candidate,)
    ahead = before._replace(last=candidate.first - 1)
    if candidate.last < before.last:
        return (ahead, candidate, before._replace(first=candidate.last + 1))
    return (ahead, candidate)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.deliveries, batch.state


def _order(batch: StateBatch) -> tuple[int, int, int, int]:
    """Return the sort key of a batch: delivery count before state."""
    return batch.first, batch.last, batch.deliveries, batch.state


def _batch(order: tuple[int, int, int, int]) -> StateBatch:
    first, last, count, state = order
    return StateBatch(first, last, state, count)


def _put(waiting: list[tuple[int, int, int, int]], order: tuple[int, int, int, int]) -> None:
    at = len(waiting)
    while at and waiting[at - 1] < order:
        at -= 1
    if not at or waiting[at - 1] != order:
        waiting.insert(at, order)
