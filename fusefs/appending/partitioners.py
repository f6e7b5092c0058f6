"""Partitioners choose the partition of a record that is written to the topic's own `log`.

A partitioner gets the records of one write at a time, in order, and the number of existing partitions. Each
partitioner is used by a single thread.
"""

from __future__ import annotations

import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from topicfs.storage.errors import InvalidConfigError, InvalidRecordError
from topicfs.storage.partitioning import partition_of_key

BATCH_SIZE = 16_384
"""Kafka's default batch.size in bytes: after this many bytes without keys, another partition is chosen."""

Choose: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""A user's own partitioner: (topic, key, value, number of partitions) → partition."""


Serves: TypeAlias = Callable[[int], bool]
"""Returns whether a partition has a leader: records without a key avoid partitions without a leader."""


def _any(_partition: int) -> bool:
    return True


class KeyedValue(NamedTuple):
    """The part of a record that a partitioner sees."""

    key: bytes | None
    value: bytes | None


class Partitioner(ABC):
    """Chooses partitions for one topic."""

    def for_unkeyed(self, size: int, partitions: int, serves: Serves = _any) -> int | None:
        """Return a partition for a whole write of `size` bytes without keys; None if `for_records` must be called.

        The partition has a leader (according to `serves`), unless no partition has a leader.
        """
        return None

    @abstractmethod
    def for_records(self, records: Sequence[KeyedValue], partitions: int, serves: Serves = _any) -> list[int]:
        """Return the partition of each record, in order."""


class KafkaPartitioner(Partitioner):
    """Kafka's default: by the key's hash; without a key, a random partition for each batch (KIP-480, KIP-794)."""

    def __init__(self, pick: Callable[[int], int] = random.randrange) -> None:
        self._pick = pick
        self._sticky: int | None = None
        self._sticky_bytes = 0

    def for_unkeyed(self, size: int, partitions: int, serves: Serves = _any) -> int:
        if self._sticky is None or self._sticky >= partitions or not serves(self._sticky):
            self._sticky = self._pick(partitions)
            if not serves(self._sticky) and (serving := [one for one in range(partitions) if serves(one)]):
                self._sticky = serving[self._pick(len(serving))]
        chosen = self._sticky
        self._sticky_bytes += size
        if self._sticky_bytes >= BATCH_SIZE:
            # A write is a batch, and the partition changes only between batches.
            self._sticky, self._sticky_bytes = None, 0
        return chosen

    def for_records(self, records: Sequence[KeyedValue], partitions: int, serves: Serves = _any) -> list[int]:
        unkeyed = [len(value or b"") + 1 for key, value in records if key is None]
        sticky = self.for_unkeyed(sum(unkeyed), partitions, serves) if unkeyed else 0
        return [sticky if key is None else partition_of_key(key, partitions) for key, _value in records]


class RoundRobinPartitioner(Partitioner):
    """Chooses the partitions in turn, whether records have keys or not."""

    def __init__(self) -> None:
        self._next = 0

    def for_records(self, records: Sequence[KeyedValue], partitions: int, serves: Serves = _any) -> list[int]:
        first = self._next
        self._next = (first + len(records)) % partitions
        return [(first + turn) % partitions for turn in range(len(records))]


class OwnPartitioner(Partitioner):
    """A user's function, given as `module:function`."""

    def __init__(self, topic: str, choose: Choose) -> None:
        self._topic = topic
        self._choose = choose

    def for_records(self, records: Sequence[KeyedValue], partitions: int, serves: Serves = _any) -> list[int]:
        return [self._checked(record, partitions) for record in records]

    def _checked(self, record: KeyedValue, partitions: int) -> int:
        try:
            chosen = self._choose(self._topic, record.key, record.value, partitions)
        except Exception as error:
            raise InvalidRecordError(f"{self._topic}: the partitioner failed: {error!r}") from error
        if not isinstance(chosen, int) or not 0 <= chosen < partitions:
            raise InvalidRecordError(
                f"{self._topic}: the partitioner chose partition {chosen!r}, but there are {partitions} partitions"
            )
        return chosen


PartitionerFactory: TypeAlias = Callable[[str], Partitioner]
"""Makes the partitioner of the topic with the given name."""


NAMED: dict[str, PartitionerFactory] = {
    "kafka": lambda _topic: KafkaPartitioner(),
    "roundrobin": lambda _topic: RoundRobinPartitioner(),
}


def partitioner_factory(name: str) -> PartitionerFactory:
    """Return a factory of `kafka`, `roundrobin` or `module:function` partitioners. Raises InvalidConfigError."""
    if name in NAMED:
        return NAMED[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        raise InvalidConfigError(f"partitioner={name}: must be {', '.join(NAMED)} or module:function")
    try:
        choose = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(f"partitioner={name}: {error}") from error
    if not callable(choose):
        raise InvalidConfigError(f"partitioner={name}: not a function")
    return lambda topic: OwnPartitioner(topic, choose)
