"""A group as the commands show it, and the protocol of calls for groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from topicfs.fusefs.groups.positions import known_sum
from topicfs.storage.model import Offset, Timestamp, TopicPartition

EMPTY = "Empty"
"""The state of a group without members."""
CONSUMER, SHARE = "consumer", "share"
"""Kafka's types of groups; a queue is a share group."""


class GroupSummary(NamedTuple):
    name: str
    state: str
    type: str = CONSUMER


@dataclass(frozen=True, slots=True)
class MemberView:
    member_id: str
    reader: str
    """The reader: a program and its process ID, or a client and its address."""
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """The position of a group in a partition; for a queue, its start offset."""

    partition: TopicPartition
    position: Offset | None
    end_offset: Offset
    """The last stable offset of the partition."""
    lag: int | None
    """The lag; None if it is unknown."""
    committed_by: str = ""

    @property
    def shown_position(self) -> str:
        return "-" if self.position is None else str(self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    name: str
    state: str
    type: str = CONSUMER
    generation: int
    assignor: str = ""
    coordinator: str = ""
    members: Sequence[MemberView]
    places: Sequence[PartitionPosition]

    @property
    def lag(self) -> int | None:
        """The total lag over all partitions; None if the lag of a partition is unknown."""
        return known_sum(place.lag for place in self.places)

    @property
    def positions(self) -> dict[TopicPartition, Offset]:
        return {one.partition: one.position for one in self.places if one.position is not None}

    def member_of(self, partition: TopicPartition) -> MemberView | None:
        return next((one for one in self.members if partition in one.partitions), None)


class PositionBounds(NamedTuple):
    """The limits between which a position can be set."""

    start_offset: Offset
    end_offset: Offset


class GroupAdmin(Protocol):
    """Reads and changes groups, over an engine or a mount. Calls may raise StorageError, OSError, UnknownGroupError."""

    def listed(self) -> Sequence[GroupSummary]: ...

    def describe(self, group: str) -> GroupView: ...

    def partitions(self, topic: str) -> Sequence[int]:
        """Return the partitions of a topic. Raises UnknownTopicError."""

    def bounds(self, partition: TopicPartition) -> PositionBounds: ...

    def offset_at(self, partition: TopicPartition, timestamp: Timestamp) -> Offset | None:
        """Return the offset of the first record at or after a time; None if there is no such record."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        """Set positions of a group without members. Raises GroupNotEmptyError."""

    def delete_positions(self, group: str, partitions: Sequence[TopicPartition]) -> None: ...

    def delete(self, group: str) -> None: ...
