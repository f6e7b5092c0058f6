"""The protocol through which the mount and the command reach groups: their positions, and membership in them.

A group has one position in each partition; each partition is read by one of its members. The embedded engine keeps
groups as a broker does (`coordination.groups`); in a Kafka cluster, the brokers' coordinators keep them. A reader
works like this:

    changed = threading.Event()
    member = engine.groups.join("billing", Subscription(topics=frozenset({"orders"})), client_id="cat-4711", listener=changed.set)
    while (held := member.held()).lost is None:
        for partition in held.partitions - held.wanted_back:
            start = held.positions[partition]          # as committed when it was assigned; then read on from there
            ...                                        # read records, have them answered
            member.commit({partition: Position(end)})  # batched; the future says when it is in the log
        if held.wanted_back:
            member.give_up(held.wanted_back)           # all records handed out are answered, or will be handed out again
        changed.wait(); changed.clear()
    member.leave()

`storage.engine` defines *known*, *asked* and *changes*, and which calls may wait. The first call to an engine that is
not remote may wait, too, because it loads the groups. No method of a `Membership` ever waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from topicfs.storage.config.group import GroupConfig
from topicfs.storage.config.listing import ShownSetting
from topicfs.storage.errors import InvalidPositionError
from topicfs.storage.model import NO_LEADER_EPOCH, NO_TIMESTAMP, Offset, ProducerId, Timestamp, TopicPartition

Cancel: TypeAlias = Callable[[], None]
LAST_OFFSET = 2**63 - 1


class GroupState(Enum):
    """The states of a group of the classic protocol (kafka-coordinators.md#group-states), by Kafka's names."""

    EMPTY = "Empty"
    """No members; the group may have positions."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for all members to rejoin."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waiting for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or no longer served by its coordinator."""


class Position(NamedTuple):
    offset: int
    metadata: str = ""
    """Any text, up to `offset.metadata.max.bytes`."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record that was read; -1 if unknown."""
    topic_id: str = ""
    """The id of the topic that was read; the commit fails if the topic now has another id. Empty: not checked."""


def check_positions(group: str, positions: Mapping[TopicPartition, Position]) -> None:
    """Raise InvalidPositionError for a position that no offset can have."""
    for place, position in positions.items():
        if not 0 <= position.offset <= LAST_OFFSET:
            raise InvalidPositionError(
                f"{group}: {position.offset} in {place}: not an offset (0 to {LAST_OFFSET})"
            )


class CommittedPosition(NamedTuple):
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_at: Timestamp = NO_TIMESTAMP


class PendingPosition(NamedTuple):
    """A position that takes effect when its transaction is committed."""

    offset: Offset
    producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class GroupPositions:
    committed: Mapping[TopicPartition, CommittedPosition] = field(
        default_factory=lambda: MappingProxyType({})
    )
    pending: Mapping[TopicPartition, Sequence[PendingPosition]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Positions in open transactions; until they end, the committed positions hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    name: str
    state: GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    """group.instance.id of a static member."""
    client_id: str
    host: str
    """The address of the member's client, as a broker writes it: `/127.0.0.1`."""
    reader: str = ""
    """The reading program and its process id, for display. Empty if the member joined over a network or was loaded
    from a file.
    """
    topics: tuple[str, ...] = ()
    """The topics it subscribed to, ascending; empty while unknown."""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    name: str
    state: GroupState
    generation: int
    """-1 if the group's coordinator does not report it."""
    assignor: str
    """The assignor in use; empty before the first member joins."""
    coordinator: TopicPartition
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics and patterns that a member wants to read."""

    topics: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    """Patterns with `*`, `?` and `[…]`. They match topics created later, too, but never Kafka's internal ones."""

    def wants(self, topic: str, *, internal: bool) -> bool:
        """Return whether the subscription matches a topic. Internal topics match only by name."""
        return topic in self.topics or (
            not internal and any(fnmatchcase(topic, pattern) for pattern in self.patterns)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPartitions:
    generation: int = -1
    """Generation of the group in which the partitions were assigned; -1 before the member is admitted."""
    partitions: frozenset[TopicPartition] = frozenset()
    wanted_back: frozenset[TopicPartition] = frozenset()
    """The partitions to give up: the reader hands out no more records of them, and then calls `give_up`."""
    positions: Mapping[TopicPartition, CommittedPosition | None] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The group's position in each partition when it was assigned; None if it had none."""
    topic_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The topic id of each partition when it was assigned, by topic name."""
    lost: Exception | None = None
    """Why the membership ended for good; the member then holds no partitions."""

    def has(self, partition: TopicPartition, topic_id: str) -> bool:
        """Return whether the member holds a partition of the topic with this id."""
        return partition in self.partitions and self.topic_ids.get(partition.topic, topic_id) == topic_id

    def without(self, gone: Collection[TopicPartition]) -> MemberPartitions:
        """Return what the member holds after losing the partitions in `gone`."""
        left = {one: position for one, position in self.positions.items() if one not in gone}
        return replace(
            self,
            partitions=self.partitions.difference(gone),
            wanted_back=self.wanted_back.difference(gone),
            positions=MappingProxyType(left),
        )


class Membership(Protocol):
    """A member of a group until it leaves. No method waits, and all are safe from any thread.

    The listener is called from any thread after the member's partitions changed. It must be quick and must not raise.
    """

    @property
    def member_id(self) -> str:
        """The member's id; empty until the group assigns one."""

    def held(self) -> MemberPartitions:
        """Return the partitions it holds now. They go only after `give_up`, or if deleted, overdue or `lost`."""

    def commit(self, positions: Mapping[TopicPartition, Position], *, at_once: bool = False) -> Future[None]:
        """Commit positions in partitions that it holds; wait some ms to append with others, unless `at_once`.

        The future completes when they are in the log. If no position changed, it fails with NotAssignedError (a
        partition is not held, or `topic_id` was deleted), InvalidPositionError, GroupError or OSError (ENOSPC, EIO).
        """

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Give back wanted-back partitions, ignoring others; the next holder starts at the committed position."""

    def leave(self) -> Future[None]:
        """End the membership; commits remain. The future completes when other members may go on. Idempotent."""


class GroupsSummary(NamedTuple):
    groups: int
    members: int
    failed: tuple[str, ...] = ()
    """The partitions of `__consumer_offsets` that are not served, with reasons; their groups are unavailable."""


class Groups(Protocol):
    def summary(self) -> GroupsSummary | None:
        """Return the numbers of groups and members; None if groups have not been used yet (*known*)."""

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        """Return the positions of all loaded groups; empty for a remote engine (*known*)."""

    def listed(self) -> Mapping[str, GroupListing]:
        """Return the groups by name, ascending; a snapshot (*asked*). Raises GroupError, OSError."""

    def describe(self, group: str) -> GroupDescription:
        """Return a group as it is now (*asked*). Raises UnknownGroupError, GroupError."""

    def positions(self, group: str) -> GroupPositions:
        """Return the positions of a group; empty for an unknown group, as in Kafka (*asked*). Raises GroupError."""

    def positions_in(self, topic: str) -> Mapping[str, Mapping[TopicPartition, CommittedPosition]]:
        """Return the positions in a topic's partitions, of all visible groups (*asked*). Raises GroupError, OSError."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit positions without being a member, like Kafka's reset tool; creates the group (*changes*).

        A position may lie outside the log: readers then apply `auto.offset.reset`. Raises GroupNotEmptyError,
        UnknownTopicError (nothing is committed), InvalidPositionError, ReadOnlyError, GroupError, OSError.
        """

    def delete_positions(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete positions of a group; partitions without a position are skipped (*changes*).

        Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, GroupError, OSError.
        """

    def create(self, group: str) -> None:
        """Create a group (*changes*; InvalidGroupError, GroupExistsError, ReadOnlyError, GroupError, OSError)."""

    def delete(self, group: str) -> None:
        """Delete a group (*changes*; UnknownGroupError, GroupNotEmptyError, ReadOnlyError, GroupError, OSError)."""

    def config(self, group: str) -> GroupConfig:
        """Return the settings of a group, defaults for an unknown one (*known*)."""

    def settings(self, group: str) -> Sequence[ShownSetting]:
        """Return every setting of a group, and the source of its value (*known*)."""

    def alter_config(self, group: str, changes: Mapping[str, str | None]) -> None:
        """Set settings, and reset those whose value is None; all or none. Members apply them at once (*changes*).

        Raises UnknownGroupError, InvalidConfigError, GroupNotEmptyError (a new assignor), ReadOnlyError, OSError.
        """

    def join(
        self,
        group: str,
        subscription: Subscription,
        *,
        client_id: str,
        reader: str = "",
        listener: Callable[[], None],
    ) -> Membership:
        """Join a group, which is created if missing. Never waits: `Membership.held` shows the result.

        Raises InvalidGroupError, ReadOnlyError, GroupsUnsupportedError. The member's id begins with `client_id`.
        """

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` after groups are created, deleted, or change state, generation or members. Never waits."""
