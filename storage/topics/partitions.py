"""A topic's partitions by number: where there are very many, each is opened when it is used first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition
from topicfs.storage.model import Timestamp


class Unopened:
    """A partition whose last owner closed it in order, and which was not used since.

    All that is known of it is in the names of the data directory and in the checkpoints.
    """

    __slots__ = ("_open", "due", "examined_by", "number", "partition")

    def __init__(self, number: int, open_one: Callable[[Unopened], Partition]) -> None:
        self.number = number
        self._open = open_one
        self.partition: Partition | None = None
        """The partition once it is open."""
        self.examined_by: TopicConfig | None = None
        """The settings by which `due` was found; None: it was not yet."""
        self.due: Timestamp | None = None
        """Time at which its duties need it open, by those settings; None: never."""

    def open(self) -> Partition:
        """Open it, unless that was done (blocking)."""
        return self.partition or self._open(self)


Served: TypeAlias = Partition | Unopened


class Partitions(Mapping[int, Partition]):
    """A snapshot, ascending. Names and numbers open nothing; a partition that is taken out of it is opened (blocking)."""

    def __init__(self, served: Mapping[int, Served]) -> None:
        self.served = dict(sorted(served.items()))
        """Each partition, opened or not; for the engine."""

    def __getitem__(self, number: int) -> Partition:
        found = self.served[number]
        if isinstance(found, Unopened):
            found = self.served[number] = found.open()
        return found

    def __contains__(self, number: object) -> bool:
        return number in self.served

    def __iter__(self) -> Iterator[int]:
        return iter(self.served)

    def __len__(self) -> int:
        return len(self.served)
