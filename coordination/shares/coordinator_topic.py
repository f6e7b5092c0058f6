"""Creates one of Kafka's internal topics on first use, replays its records, and appends to it, like a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.records import encode
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import (
    CorruptBatchError,
    CorruptionError,
    TopicExistsError,
    UnknownTopicError,
)
from topicfs.storage.model import Isolation, Offset, Record, Timestamp
from topicfs.storage.partitioning import DEFAULT_PARTITIONS, partition_of_name

COORDINATOR_READ_BYTES = 1 << 20


class TopicRecord(NamedTuple):
    key: bytes
    value: bytes | None


Take: TypeAlias = Callable[[TopicRecord, Offset], None]


class CoordinatorTopic:
    """Kafka's internal topic `name`."""

    def __init__(self, engine: LogEngine, name: str) -> None:
        self._engine = engine
        self.name = name

    @property
    def exists(self) -> bool:
        return self.name in self._engine.topics()

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the topic's partitions; empty if the topic does not exist yet."""
        return tuple(self._engine.topic(self.name).partitions()) if self.exists else ()

    def make(self) -> None:
        """Create the topic with Kafka's settings if it is missing. Raises ReadOnlyError, OSError."""
        if not self.exists:
            try:
                self._engine.create_topic(self.name, partitions=DEFAULT_PARTITIONS)
            except TopicExistsError:
                return

    def number_of(self, name: str, holds: Callable[[int], bool]) -> int:
        """Return the number of the partition that stores `name`. `partition_of_name` explains `holds`.

        Raises UnknownTopicError if the topic does not exist, PartitionOfflineError if the partition is unknown.
        """
        numbers = self.numbers()
        if not numbers:
            raise UnknownTopicError(f"{self.name}: no such topic")
        return partition_of_name(self.name, name, numbers, holds)

    def partition(self, number: int) -> Partition:
        return self._engine.partition(self.name, number)


def replay(partition: Partition, take: Take) -> None:
    """Pass keyed records, except aborted ones, to `take`. Raises CorruptionError, PartitionOfflineError."""
    offset = partition.log_start_offset
    while True:
        fetched = partition.read(offset, max_bytes=COORDINATOR_READ_BYTES, isolation=Isolation.READ_COMMITTED)
        if not fetched.data:
            return
        try:
            for columns in decode_each(fetched.data, aborted=fetched.aborted):
                for index in range(len(columns)):
                    record = columns.record(index)
                    if record.key is not None and record.offset >= offset:
                        take(TopicRecord(record.key, record.value), record.offset)
        except CorruptBatchError as error:
            name = f"{fetched.segment_base_offset:020}.log"
            where = name if partition.directory is None else partition.directory / name
            raise CorruptionError(where, fetched.position + error.position, error.cause) from None
        offset = fetched.next_offset


def append(partition: Partition, records: Sequence[TopicRecord], now: Timestamp) -> Offset:
    """Append records as one batch; return the offset of the first record. Raises the errors of `Partition.append`."""
    batch = encode([Record(Offset(at), now, one.key, one.value) for at, one in enumerate(records)])
    return partition.append(batch, encoded_here=True).base_offset
