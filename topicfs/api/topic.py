"""A topic and its partitions, as users see them. Appends to a topic choose the partition as Kafka's producer does."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, SupportsIndex

from topicfs.api.bounds import Where, level_of, ranges_of
from topicfs.api.cursor import follow
from topicfs.api.records import (
    Appended,
    Record,
    appended_columns,
    milliseconds,
    octets,
    pairs,
    records_between,
)
from topicfs.fusefs.appending.partitioners import KafkaPartitioner, KeyedValue
from topicfs.storage import engine
from topicfs.storage.codec.batch_writer import encode_span
from topicfs.storage.codec.headers import PLAIN
from topicfs.storage.errors import PolicyViolationError, RecordTooLargeError, UnknownTopicError
from topicfs.storage.model import NO_TIMESTAMP, Buffer, Isolation
from topicfs.storage.partitioning import keyed_count, least_count

READ_COMMITTED = Isolation.READ_COMMITTED.value


class Readable(ABC):
    """The records of a topic, or of one partition."""

    polls: bool
    """True if a follower must look for new data from time to time, because another process writes the files."""

    @abstractmethod
    def _partitions(self) -> Mapping[int, engine.Partition]: ...

    def records(
        self, start: Where = None, stop: Where = None, *, isolation: str = READ_COMMITTED
    ) -> Iterator[Record]:
        """Yield the records from `start` up to, but excluding, `stop`; by default all current records.

        `start` and `stop` may be an offset, a time or a word (docs/api.md). Records of several partitions are merged
        by time. Raises CorruptionError at a damaged batch, after all records before the batch.
        """
        level = level_of(isolation)
        return records_between(ranges_of(self._partitions().values(), start, stop, level), level)

    def follow(
        self, start: Where = None, *, isolation: str = READ_COMMITTED, timeout: float | None = None
    ) -> Iterator[Record]:
        """Yield the records from `start` on, and wait for more; end if no record arrives for `timeout` seconds."""
        return follow(self._partitions, start, level_of(isolation), timeout=timeout, polls=self.polls)

    def arrow(self, start: Where = None, stop: Where = None, *, isolation: str = READ_COMMITTED) -> Any:
        """Return a `pyarrow.RecordBatchReader` of `records`, one partition after another. Raises ArrowMissingError."""
        from topicfs.formats.arrow_batches import batch_reader

        level = level_of(isolation)
        return batch_reader(ranges_of(self._partitions().values(), start, stop, level), level)


class Partition(Readable):
    """One partition of a topic: its records have offsets, in append order."""

    def __init__(
        self, served: engine.Partition, check: Callable[[], object], *, internal: bool, polls: bool
    ) -> None:
        """`check` raises UnknownTopicError if the partition's topic was deleted."""
        self._served, self._check, self._internal, self.polls = served, check, internal, polls
        self.topic, self.number = served.topic, served.number

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number}>"

    def _partitions(self) -> Mapping[int, engine.Partition]:
        self._check()
        return {self.number: self._served}

    @property
    def start_offset(self) -> int:
        """Offset of the first record that was not deleted."""
        self._partitions()[self.number].find_bounds()
        return self._served.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        self._partitions()[self.number].find_bounds()
        return self._served.offsets().high_watermark

    def append(self, record: Record | Buffer, *, durable: bool = False) -> Appended:
        """Append a record; plain bytes are the record's value. See `append_many`."""
        return self.append_many((record,), durable=durable)

    def append_many(self, records: Iterable[Record | Buffer], *, durable: bool = False) -> Appended:
        """Append records as one batch, either all of them or none. Plain bytes are values.

        With `durable`, the records are on disk when the call returns or, for a cluster, on all in-sync replicas.
        Raises RecordTooLargeError for a batch larger than `max.message.bytes`, and other errors of the engine.
        """
        if self._internal:
            raise PolicyViolationError(f"{self.topic}: is Kafka's own topic; only Kafka writes to it")
        if isinstance(records, str | bytes | bytearray | memoryview | Record):
            raise TypeError(
                f"records must be a list, not {type(records).__name__}; append(record) appends one"
            )
        columns = appended_columns(records)
        if not len(columns):
            raise ValueError("no records to append")
        try:
            batch = encode_span(columns, 0, len(columns), PLAIN, None, None)
            if durable:
                self._served.check_in_sync()
            done = self._served.append(batch, durable=durable, encoded_here=True)
        except RecordTooLargeError as error:
            reason = str(error).removesuffix("; append less at once")
            remedy = f"append less at once, or raise it for {self.topic}"
            error.args = (f"{self.topic}-{self.number}: {reason}; {remedy}",)
            raise
        return Appended(
            self.number, getattr(done, "base_offset", None)
        )  # A mount's daemon does not report the offset.


class Topic(Readable):
    """A topic, and its partitions by number. Once deleted, it never becomes a new topic that has the same name."""

    def __init__(self, served: engine.Topic, present: Callable[[str], engine.Topic], *, polls: bool) -> None:
        """Wrap `served`. `present` returns the topic that has a given name now, or raises UnknownTopicError."""
        self._present = present
        self.name, self.id = served.name, served.topic_id
        self.internal = served.internal
        """True for a topic of Kafka itself, which only Kafka writes."""
        self.polls = polls
        self._partitioner = KafkaPartitioner()
        self._choosing = threading.Lock()

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def config(self) -> Mapping[str, str]:
        """The settings that this topic overrides, by Kafka's names."""
        return dict(self._served().overrides)

    def _served(self) -> engine.Topic:
        """Return the current topic of the engine. Raises UnknownTopicError if it was deleted."""
        served = self._present(self.name)
        if served.topic_id != self.id:
            raise UnknownTopicError(f"{self.name}: was deleted; another topic has its name now")
        return served

    def _partitions(self) -> Mapping[int, engine.Partition]:
        return self._served().partitions()

    def __len__(self) -> int:
        return len(self._partitions())

    def __getitem__(self, number: int) -> Partition:
        """Return a partition by its number. Raises UnknownTopicError, TypeError."""
        if not isinstance(number, SupportsIndex):  # Also accepts numpy's integers.
            raise TypeError(f"{number!r}: name a partition of {self.name} by its number, as in topic[0]")
        partitions = self._partitions()
        if number not in partitions:
            raise UnknownTopicError.of_partition(self.name, number, partitions)
        return self._partition(partitions[number])

    def __iter__(self) -> Iterator[Partition]:
        return iter([self._partition(one) for one in self._partitions().values()])

    def _partition(self, served: engine.Partition) -> Partition:
        return Partition(served, self._served, internal=self.internal, polls=self.polls)

    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = (),
        timestamp: int | datetime = NO_TIMESTAMP,
        partition: int | None = None,
        durable: bool = False,
    ) -> Appended:
        """Append a record to the partition given by the hash of its key, as Kafka's producer does.

        Records without a key stay in the same partition for a while, and then go to another partition. With
        `durable`, the record is on disk when the call returns or, for a cluster, on all in-sync replicas. Raises the
        errors of `Partition.append_many`.
        """
        time = milliseconds(timestamp) if isinstance(timestamp, datetime) else timestamp
        record = Record(octets(value, "a value"), octets(key, "a key"), pairs(headers), time)
        return self[self._chosen(record) if partition is None else partition].append(record, durable=durable)

    def _chosen(self, record: Record) -> int:
        partitions = self._partitions()

        def serves(number: int) -> bool:
            return number in partitions and (self.polls or not partitions[number].summary().offline)

        count = least_count(partitions) if record.key is None else keyed_count(self.name, partitions)
        with self._choosing:
            wanted = [KeyedValue(record.key, record.value)]
            return self._partitioner.for_records(wanted, count, serves)[0]
