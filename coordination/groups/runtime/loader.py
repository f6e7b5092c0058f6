"""Loads a partition of `__consumer_offsets` into a coordinator's memory, from its first record to its last.

It ignores records of unknown types. An unreadable record ends the loading, because it may change the meaning of all
later records (kafka-coordinators.md#loading).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from topicfs.coordination.groups.coordinator import GroupCoordinator
from topicfs.coordination.groups.offsets import OffsetStore
from topicfs.coordination.records.group_records import (
    GROUP_TYPE,
    KeysOfGroups,
    number_and_rest,
    read_committed_offset,
    read_key,
    read_value,
)
from topicfs.coordination.records.share_group_records import GroupRecord
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.control import ControlType, control_type
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.codec.records import by_batch
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import NO_PRODUCER_ID, Isolation, Offset, ProducerId, Record, TopicPartition

QUEUE_RECORDS = frozenset(GroupRecord)

LOAD_BUFFER_BYTES = 5 << 20
"""Kafka's offsets.load.buffer.size."""


class LoadedGroups(NamedTuple):
    """Statistics of a loaded partition."""

    records: int
    size_bytes: int
    unknown_types: frozenset[int]
    """The unknown record types that were found."""


@dataclass(slots=True)
class GroupLoader:
    """Loads a coordinator and its positions."""

    coordinator: GroupCoordinator
    offsets: OffsetStore
    others: KeysOfGroups
    stop: Callable[[], bool] = lambda: False
    records: int = 0
    unknown_types: set[int] = field(default_factory=set)

    def load(self, partition: Partition) -> LoadedGroups:
        """Read the whole partition (blocking). Raises StorageError (CorruptBatchError and others), OSError."""
        offset, size = partition.log_start_offset, 0
        while not self.stop():
            fetched = partition.read(
                offset, max_bytes=LOAD_BUFFER_BYTES, isolation=Isolation.READ_UNCOMMITTED
            )
            if not fetched.data:
                break
            for columns in decode_each(fetched.data, control=True):
                for batch, records in by_batch(columns):
                    self._take(batch, records)
            size += len(fetched.data)
            offset = fetched.next_offset
        for group in self.offsets.groups():
            if group not in self.coordinator.groups:
                self.coordinator.new_group(group)
        return LoadedGroups(self.records, size, frozenset(self.unknown_types))

    def _take(self, batch: BatchHeader, records: Iterable[Record]) -> None:
        for record in records:
            self.records += 1
            if batch.is_control:
                self._end(batch.producer_id, record)
            else:
                producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
                self._take_record(record, producer_id)

    def _end(self, producer_id: ProducerId, record: Record) -> None:
        kind = control_type(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            self.offsets.end_transaction(producer_id, committed=kind is ControlType.COMMIT)

    def _take_record(self, record: Record, producer_id: ProducerId) -> None:
        if record.key is None:
            raise CorruptBatchError(0, f"the record at offset {record.offset} has no key")
        known = read_key(record.key)
        if known is None:
            number = number_and_rest(record.key)[0]
            self.unknown_types.add(number)
            if number not in QUEUE_RECORDS:
                self.others.take(record.key, record.value)
        elif known[0] == GROUP_TYPE:
            fields = None if record.value is None else read_value(GROUP_TYPE, record.value)[1]
            self.coordinator.replay(known[1]["group"], fields)
        elif record.value is None:
            place = TopicPartition(known[1]["topic"], known[1]["partition"])
            self.offsets.forget(known[1]["group"], place)
        else:
            position = read_committed_offset(record.key, record.value)
            assert position is not None
            self.offsets.take(position, Offset(record.offset), producer_id)
