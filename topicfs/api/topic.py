"""A topic, as users see it: its partitions, and appends whose partition is chosen as Kafka's producer does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import SupportsIndex

from topicfs.api.partition import Partition, Readable
from topicfs.api.records import Appended, Record, milliseconds, octets, pairs
from topicfs.fusefs.appending.partitioners import KafkaPartitioner, KeyedValue
from topicfs.storage import engine
from topicfs.storage.errors import UnknownTopicError
from topicfs.storage.model import NO_TIMESTAMP, Buffer


class Topic(Readable):
    """A topic, and its partitions by number. If the topic is deleted, a new topic with its name is not this one."""

    def __init__(self, served: engine.Topic, present: Callable[[str], engine.Topic], *, polls: bool) -> None:
        """Show a topic of an engine; `present` returns the one that has a name now (UnknownTopicError)."""
        self._present = present
        self.name, self.id = served.name, served.topic_id
        self.internal = served.internal
        """True for one of Kafka's own, which only Kafka writes."""
        self.polls = polls
        self._partitioner = KafkaPartitioner()
        self._choosing = threading.Lock()

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def config(self) -> Mapping[str, str]:
        """The settings that this topic overrides, with Kafka's names for them."""
        return dict(self._served().overrides)

    def _served(self) -> engine.Topic:
        """Return the topic as it is now. Raises UnknownTopicError if it was deleted."""
        served = self._present(self.name)
        if served.topic_id != self.id:
            raise UnknownTopicError(f"{self.name}: was deleted; another topic has its name now")
        return served

    def _partitions(self) -> Mapping[int, engine.Partition]:
        return self._served().partitions()

    def __len__(self) -> int:
        return len(self._partitions())

    def __getitem__(self, number: int) -> Partition:
        """Return a partition by its number (UnknownTopicError, TypeError)."""
        if not isinstance(number, SupportsIndex):  # Such as an int of numpy.
            raise TypeError(f"{number!r}: a partition of {self.name} is its number, as in topic[0]")
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
        """Append one record, to the partition that the hash of its key names, as Kafka's producer does.

        Records without a key stay in one partition for a while, and then another one has its turn. With `durable` it is
        on disk when this returns, or on all replicas in sync of a cluster. Raises what `Partition.append_many` does.
        """
        time = milliseconds(timestamp) if isinstance(timestamp, datetime) else timestamp
        record = Record(octets(value, "a value"), octets(key, "a key"), pairs(headers), time)
        return self[self._chosen(record) if partition is None else partition].append(record, durable=durable)

    def _chosen(self, record: Record) -> int:
        partitions = self._partitions()

        def serves(number: int) -> bool:
            return self.polls or not partitions[number].glance().offline

        with self._choosing:
            wanted = [KeyedValue(record.key, record.value)]
            return self._partitioner.for_records(wanted, len(partitions), serves)[0]
