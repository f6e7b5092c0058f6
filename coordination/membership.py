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

`storage.engine` says what "Never waits" and "May wait" mean; calls that change something wait. The first call to an
engine that is not remote may wait, too, because it loads the groups. No method of a `Membership` ever waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
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
    """The group was deleted, or its coordinator stopped."""


class Position(NamedTuple):
    offset: int
    metadata: str = ""
    """Any text, up to `offset.metadata.max.bytes`."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record that was read; -1 if unknown."""
    topic_id: str = ""
    """The id of the topic that was read. If the topic has another id now, the commit fails. Empty: the id is not
    checked.
    """


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


class GroupPositions(NamedTuple):
    committed: Mapping[TopicPartition, CommittedPosition] = MappingProxyType({})
    pending: Mapping[TopicPartition, Sequence[PendingPosition]] = MappingProxyType({})
    """Positions in open transactions. The committed positions apply until those transactions end."""


class GroupListing(NamedTuple):
    name: str
    state: GroupState


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    """group.instance.id of a static member."""
    client_id: str
    host: str
    """The address of the member's client in a broker's format: `/127.0.0.1`."""
    reader: str = ""
    """The reading program and its process id, for display. Empty if the member joined over a network, or before a
    restart.
    """
    topics: tuple[str, ...] = ()
    """The topics that the member subscribes to, ascending; empty if not known yet."""
    partitions: tuple[TopicPartition, ...] = ()


class GroupDescription(NamedTuple):
    name: str
    state: GroupState
    generation: int
    """The group's generation; -1 if the coordinator does not report it."""
    assignor: str
    """The assignor in use; empty before the first member joins."""
    coordinator: TopicPartition
    members: tuple[MemberDescription, ...]


class Subscription(NamedTuple):
    """The topics and patterns that a member wants to read."""

    topics: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    """Patterns with `*`, `?` and `[…]`. They also match topics created later, but never Kafka's internal topics."""

    def wants(self, topic: str, *, internal: bool) -> bool:
        """Return whether the subscription matches a topic. An internal topic matches only by its exact name."""
        return topic in self.topics or (
            not internal and any(fnmatchcase(topic, pattern) for pattern in self.patterns)
        )


class MemberPartitions(NamedTuple):
    generation: int = -1
    """Generation of the group in which the partitions were assigned; -1 before the member is admitted."""
    partitions: frozenset[TopicPartition] = frozenset()
    wanted_back: frozenset[TopicPartition] = frozenset()
    """The partitions to give up: the reader stops handing out their records, and then calls `give_up`."""
    positions: Mapping[TopicPartition, CommittedPosition | None] = MappingProxyType({})
    """The group's position in each partition when the partition was assigned; None if the group had no position."""
    topic_ids: Mapping[str, str] = MappingProxyType({})
    """The ids, by topic name, that the topics had when their partitions were assigned."""
    lost: Exception | None = None
    """Why the membership has ended; the member then holds no partitions. None while it lasts."""

    def has(self, partition: TopicPartition, topic_id: str) -> bool:
        """Return whether the member holds a partition of the topic with this id."""
        return partition in self.partitions and self.topic_ids.get(partition.topic, topic_id) == topic_id

    def without(self, gone: Collection[TopicPartition]) -> MemberPartitions:
        """Return a copy that lacks the partitions in `gone`."""
        left = {one: position for one, position in self.positions.items() if one not in gone}
        return self._replace(
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
        """Return the partitions that the member holds now.

        A member loses a partition only if it calls `give_up`, if it does not give up `wanted_back` in time, if the
        topic is deleted, or if `lost` is set.
        """

    def commit(self, positions: Mapping[TopicPartition, Position], *, at_once: bool = False) -> Future[None]:
        """Commit positions in held partitions. Unless `at_once`, wait a few ms to append them with other commits.

        The future completes when the positions are in the log. If it fails, no position has changed. The errors are
        NotAssignedError (a partition is not held, or the topic `topic_id` was deleted), InvalidPositionError,
        GroupError and OSError (ENOSPC, EIO).
        """

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Give back partitions that are in `wanted_back`. The next holder starts at the committed position.

        Other partitions in `partitions` are ignored.
        """

    def leave(self) -> Future[None]:
        """End the membership; its commits remain. The future completes when other members may take over. Idempotent."""


class GroupsSummary(NamedTuple):
    groups: int
    members: int
    failed: tuple[str, ...] = ()
    """The partitions of `__consumer_offsets` that are not served, each with the reason. Groups in them are
    unavailable.
    """


class Groups(Protocol):
    def summary(self) -> GroupsSummary | None:
        """Return the numbers of groups and members; None if groups have not been used yet. Never waits."""

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        """Return the positions of all loaded groups; empty for a remote engine. Never waits."""

    def listed(self) -> Mapping[str, GroupListing]:
        """Return the groups by name, ascending; a snapshot. May wait. Raises GroupError, OSError."""

    def describe(self, group: str) -> GroupDescription:
        """Return a group as it is now. May wait. Raises UnknownGroupError, GroupError."""

    def positions(self, group: str) -> GroupPositions:
        """Return a group's positions; empty if the group is unknown, as in Kafka. May wait. Raises GroupError."""

    def positions_in(self, topic: str) -> Mapping[str, Mapping[TopicPartition, CommittedPosition]]:
        """Return all visible groups' positions in a topic's partitions. May wait. Raises GroupError, OSError."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit positions from outside the group, like Kafka's reset tool; creates the group if missing.

        A position may lie outside the log: readers then apply `auto.offset.reset`. Raises GroupNotEmptyError,
        UnknownTopicError (no position is committed then), InvalidPositionError, ReadOnlyError, GroupError, OSError.
        """

    def delete_positions(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete positions of a group; partitions without a position are skipped.

        Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, GroupError, OSError.
        """

    def create(self, group: str) -> None:
        """Create a group. Raises InvalidGroupError, GroupExistsError, ReadOnlyError, GroupError, OSError."""

    def delete(self, group: str) -> None:
        """Delete a group. Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, GroupError, OSError."""

    def config(self, group: str) -> GroupConfig:
        """Return the settings of a group; an unknown group has the defaults. Never waits."""

    def settings(self, group: str) -> Sequence[ShownSetting]:
        """Return every setting of a group, and the source of its value. Never waits."""

    def alter_config(self, group: str, changes: Mapping[str, str | None]) -> None:
        """Set the given settings, and reset those whose value is None. Either all are changed or none.

        Members apply the settings immediately. Raises UnknownGroupError, InvalidConfigError, GroupNotEmptyError (for
        a new assignor), ReadOnlyError, OSError.
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
        """Join a group, which is created if missing. Never waits: `Membership.held` shows the result later.

        The member's id begins with `client_id`. Raises InvalidGroupError, ReadOnlyError, GroupsUnsupportedError.
        """

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` after each change of groups. Never waits.

        Changes are: a group is created or deleted, or gets another state, generation or set of members.
        """
