"""The protocol through which the mount and the command reach groups: their positions, and membership in them.

A group has one position in each partition; each partition is read by one of its members. The embedded engine keeps
groups as a broker does (`coordination.groups`), a Kafka cluster lets its own coordinators do it. A reader is a member like this:

    changed = threading.Event()
    member = engine.groups.join("billing", Subscription(topics=frozenset({"orders"})), client_id="cat-4711", listener=changed.set)
    while (held := member.held()).lost is None:
        for partition in held.partitions - held.wanted_back:
            start = held.positions[partition]          # as committed when it was assigned; then read on from there
            ...                                        # read records, have them answered
            member.commit({partition: Position(end)})  # batched; the future says when it is in the log
        if held.wanted_back:
            member.give_up(held.wanted_back)           # all that was handed out of them is answered, or will be handed out again
        changed.wait(); changed.clear()
    member.leave()

What is *known*, *asked* and what changes something means what `storage.engine` says, and so does who may wait. Of an
engine that is not remote the first call may wait too: it loads the groups. Nothing of a `Membership` ever waits.
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
    """No members; positions at most."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for all members to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Gone, or its coordinator does not serve it any longer."""


class Position(NamedTuple):
    offset: int
    metadata: str = ""
    """Any text, up to `offset.metadata.max.bytes`."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record that was read; -1: not known."""
    topic_id: str = ""
    """The id of the topic that was read. A position is not committed to another topic of the same name. Empty: not checked."""


def check_positions(group: str, positions: Mapping[TopicPartition, Position]) -> None:
    """Raise InvalidPositionError for what no offset can be."""
    for place, position in positions.items():
        if not 0 <= position.offset <= LAST_OFFSET:
            raise InvalidPositionError(
                f"{group}: {position.offset} in {place}: an offset is from 0 to {LAST_OFFSET}"
            )


class CommittedPosition(NamedTuple):
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_at: Timestamp = NO_TIMESTAMP


class PendingPosition(NamedTuple):
    """A position that counts once its transaction is committed."""

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
    """Positions in transactions that have not ended; what is committed too holds until then."""


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
    """The address it came from, as a broker writes it: `/127.0.0.1`."""
    reader: str = ""
    """The reader, for people: a program and its process id. Empty for what came over a network, or from a file."""
    topics: tuple[str, ...] = ()
    """The topics it subscribed to, ascending; empty while that is not known."""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    name: str
    state: GroupState
    generation: int
    """-1: its coordinator does not tell it."""
    assignor: str
    """The assignor in use; empty where no member ever joined."""
    coordinator: TopicPartition
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics and patterns that a member wants to read."""

    topics: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    """Patterns of names with `*`, `?` and `[…]`: also of topics that come later, never of Kafka's own."""

    def wants(self, topic: str, *, internal: bool) -> bool:
        """Return whether a topic is subscribed to. One of Kafka's own has to be named."""
        return topic in self.topics or (
            not internal and any(fnmatchcase(topic, pattern) for pattern in self.patterns)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPartitions:
    generation: int = -1
    """Generation of the group in which it was assigned; -1: it was not admitted yet."""
    partitions: frozenset[TopicPartition] = frozenset()
    wanted_back: frozenset[TopicPartition] = frozenset()
    """Those of them from which no more may be handed out, until the member says `give_up`."""
    positions: Mapping[TopicPartition, CommittedPosition | None] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The group's position in each of them when it was assigned; None where it had none."""
    topic_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The id of the topic of each partition when it was assigned, by the topic's name."""
    lost: Exception | None = None
    """The reason why it is no member any longer, and will not be again; it then holds nothing."""

    def has(self, partition: TopicPartition, topic_id: str) -> bool:
        """Return whether the member holds a partition, and it is one of the topic with this id."""
        return partition in self.partitions and self.topic_ids.get(partition.topic, topic_id) == topic_id

    def without(self, gone: Collection[TopicPartition]) -> MemberPartitions:
        """Return what the member holds after some of its partitions were taken away."""
        left = {one: position for one, position in self.positions.items() if one not in gone}
        return replace(
            self,
            partitions=self.partitions.difference(gone),
            wanted_back=self.wanted_back.difference(gone),
            positions=MappingProxyType(left),
        )


class Membership(Protocol):
    """A member of a group until it leaves. No call waits, and all are safe from any thread.

    The listener is called from any thread after the member's partitions changed. It must be quick and must not raise.
    """

    @property
    def member_id(self) -> str:
        """The member's id; empty until the group gave it one."""

    def held(self) -> MemberPartitions:
        """Return what it holds now, with positions. Partitions go only after `give_up`, or if deleted, overdue or `lost`."""

    def commit(self, positions: Mapping[TopicPartition, Position], *, at_once: bool = False) -> Future[None]:
        """Commit positions in partitions that it holds, in one append with others of a few milliseconds, or `at_once`.

        The future is done when they are in the log, and has NotAssignedError (nothing counts; also for a deleted
        `topic_id`), InvalidPositionError, GroupError or OSError (ENOSPC, EIO) if the position stays what it was.
        """

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Give partitions back; their next holder begins at the committed position. Others than those wanted back stay."""

    def leave(self) -> Future[None]:
        """End the membership; what was committed before counts. The future is done when the others may go on. Idempotent."""


class GroupsSummary(NamedTuple):
    groups: int
    members: int
    failed: tuple[str, ...] = ()
    """Why partitions of `__consumer_offsets` are not served, and their groups with them."""


class Groups(Protocol):
    def summary(self) -> GroupsSummary | None:
        """Return the groups in numbers; None where nobody has used groups yet (*known*)."""

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        """Return the positions of all groups, as far as they are known here; none of a remote engine (*known*)."""

    def listed(self) -> Mapping[str, GroupListing]:
        """Return the groups by name, ascending; a snapshot (*asked*). Raises GroupError, OSError."""

    def describe(self, group: str) -> GroupDescription:
        """Return a group as it is now (*asked*). Raises UnknownGroupError, GroupError."""

    def positions(self, group: str) -> GroupPositions:
        """Return the positions of a group; none for an unknown one, as in Kafka (*asked*). Raises GroupError."""

    def positions_in(self, topic: str) -> Mapping[str, Mapping[TopicPartition, CommittedPosition]]:
        """Return the positions of all visible groups in a topic's partitions (*asked*). Raises GroupError, OSError."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit positions as Kafka's reset tool does, for no member; creates the group (*changes*).

        A position may lie outside the log: readers then go by `auto.offset.reset`. Raises GroupNotEmptyError,
        UnknownTopicError (nothing is committed), InvalidPositionError, ReadOnlyError, GroupError, OSError.
        """

    def delete_positions(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete positions of a group; those it does not have are passed over (*changes*).

        Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, GroupError, OSError.
        """

    def create(self, group: str) -> None:
        """Create a group (*changes*; InvalidGroupError, GroupExistsError, ReadOnlyError, GroupError, OSError)."""

    def delete(self, group: str) -> None:
        """Delete all of a group (*changes*; UnknownGroupError, GroupNotEmptyError, ReadOnlyError, GroupError, OSError)."""

    def config(self, group: str) -> GroupConfig:
        """Return the settings of a group, the defaults for an unknown one (*known*)."""

    def settings(self, group: str) -> Sequence[ShownSetting]:
        """Return every setting of a group, and where its value comes from (*known*)."""

    def alter_config(self, group: str, changes: Mapping[str, str | None]) -> None:
        """Set settings, or remove None ones: all or nothing; members go by them at once (*changes*).

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
        """Become a member of a group, made if it is missing. Never waits: `Membership.held` shows the result.

        Raises InvalidGroupError, ReadOnlyError, GroupsUnsupportedError. The member's id begins with `client_id`.
        """

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Call `listener` after groups came or went or changed their state, generation or members. Does not wait."""
