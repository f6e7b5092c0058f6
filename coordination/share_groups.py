"""The protocol of queues, Kafka's share groups: records handed out one by one, each to one holder at a time.

How to use it:

    group = engine.share_groups.group("billing")              the group, made by its first session
    session = group.open(["orders"], holder="bash, process 4711")
    leased = session.take()                                   a record for this session alone, or None: nothing now
    form.render_one(leased.columns, leased.index, topic=leased.place.topic, partition=leased.place.partition)
    session.acknowledge({leased.place: Acknowledgement.ACCEPT})
    session.close()                                           what it holds is at once there for others

A session is a member of the group: an open file, a process. A reader that found nothing listens to its session
(`listen`), and takes again when it is called: records came, were released, or a lease ended. Any number of records may
be held at a time (`held`), each until it is acknowledged, until its lease ends, or until the close. What was released,
whose lease ended or whose holder went is delivered again, up to the group's limit of deliveries; after that, or when a
holder rejects it, it is in `rejected` and not delivered any more.

Delivery is at least once: a record whose acceptance returned is never delivered again, and none is lost. The state is
kept as a broker keeps it (kafka-coordinators.md#share-groups), so that one goes on with it, and so do we with a
broker's. As in `storage.engine` all calls are safe from any thread; *known* never waits, *asked* may read the disk,
*changes* writes, and is called in threads that may wait.

Settings have Kafka's names and defaults (`storage.config.share_group`), but for `share.auto.offset.reset`: a group that is made
here begins at the earliest record, as one expects of a shell, where a broker's begins at the latest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from topicfs.storage.codec.columns import Columns
from topicfs.storage.config.listing import ShownSetting
from topicfs.storage.config.share_group import ShareGroupSettings
from topicfs.storage.errors import GroupsUnsupportedError, InvalidNameError, UnknownGroupError
from topicfs.storage.model import Offset, Record, Timestamp, TopicPartition

_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})-(?P<offset>0|[1-9][0-9]{0,18})")


class RecordName(NamedTuple):
    topic: str
    partition: int
    offset: Offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def parse_place(text: str) -> RecordName:
    """Return the place that is written so. Raises InvalidNameError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidNameError(f"{text!r}: a record is named by topic, partition and offset, as orders-0-42")
    return RecordName(found["topic"], int(found["partition"]), Offset(int(found["offset"])))


class Acknowledgement(IntEnum):
    """The holder's word on a record, by Kafka's numbers."""

    ACCEPT = 1
    """The record is done: it is never delivered again."""
    RELEASE = 2
    """The record is there for others, and counts as delivered once more."""
    REJECT = 3
    """The record cannot be done: it is not delivered again, and found in `ShareGroup.rejected`."""
    RENEW = 4
    """The record is still being worked on: the lease begins again."""


@dataclass(frozen=True, slots=True)
class Leased:
    """A record that one session holds, among the records it came with."""

    place: RecordName
    columns: Columns
    index: int
    batch_bytes: memoryview
    """The whole batch that holds it, as it stands in the log."""
    delivery_count: int
    """1 for the first delivery."""
    lease_end: Timestamp

    @property
    def record(self) -> Record:
        return self.columns.record(self.index)


class InFlight(NamedTuple):
    place: RecordName
    member_id: str
    holder: str
    """The name that the session gave itself; empty for a member that another process's records tell of."""
    since: Timestamp
    delivery_count: int
    lease_end: Timestamp


class RejectedBy(Enum):
    """The reason for which a record was given up."""

    REJECT = "reject"
    """Its holder said so."""
    LIMIT = "limit"
    """The record was delivered as often as may be."""


class Rejected(NamedTuple):
    """A record that was given up. It stands in its log as before, as long as that keeps it."""

    place: RecordName
    time: Timestamp
    by: RejectedBy
    delivery_count: int
    holder: str
    """The session that held it last, as far as it is known."""


class QueuePosition(NamedTuple):
    partition: TopicPartition
    start_offset: Offset
    """All records below are done; -1 before the first session (Kafka's SPSO)."""
    end_offset: Offset
    """No record from here on was delivered yet."""
    in_flight: int
    waiting: int
    """Records that were delivered and will be again."""
    lag: int
    """Records that are not done: those in flight, those waiting, and those that never were delivered."""


class ShareMember(NamedTuple):
    member_id: str
    holder: str
    topics: tuple[str, ...]
    since: Timestamp
    held: int


class ShareSession(Protocol):
    """A member of a share group, from `ShareGroup.open` to its close."""

    @property
    def member_id(self) -> str:
        """The member's id, as Kafka makes one (*known*)."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose records it is given (*known*)."""

    def take(self) -> Leased | None:
        """Lease the next record to this session; None if there is none now (*changes*).

        Records that others gave back come first, those that kill their readers alone
        (kafka-coordinators.md#poison-records). Raises SessionClosedError, UnknownTopicError, CorruptionError (take
        again to skip the batch), PartitionOfflineError, ReadOnlyError, OSError.
        """

    def take_some(self, most: int) -> Sequence[Leased]:
        """Lease up to `most` adjacent records of one partition; empty: there is none now (*changes*). Raises as `take`."""

    def acknowledge(self, words: Mapping[RecordName, Acknowledgement]) -> None:
        """Decide what becomes of records; kept when it returns (*changes*). After OSError or StorageError they are held.

        RecordNotHeldError if one is not held by this session: nothing changes in its partition.
        """

    def held(self) -> Sequence[Leased]:
        """Return what it holds, the oldest lease first; what was taken from it is not among them (*known*)."""

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, quickly and from any thread, whenever `take` may find something new; returns its cancellation."""

    def close(self) -> None:
        """Give back what it holds, and leave the group (*changes*). Idempotent; raises nothing."""


class ShareGroup(Protocol):
    """A share group: sessions that share the records of topics."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> ShareGroupSettings:
        """The settings as they are now (*known*)."""

    def listed_settings(self) -> Sequence[ShownSetting]:
        """Return every setting that holds, and where its value comes from (*known*)."""

    @property
    def state(self) -> str:
        """`Empty`, `Stable` or `Dead`, as Kafka's tools print it (*known*)."""

    @property
    def epoch(self) -> int:
        """The group's epoch, which goes up when sessions come and go or topics change (*known*)."""

    def topics(self) -> Sequence[str]:
        """Return the topics in which the group has a state, by name (*known*)."""

    def members(self) -> Sequence[ShareMember]:
        """Return the open sessions, the oldest first (*known*)."""

    def open(self, topics: Sequence[str], *, holder: str) -> ShareSession:
        """Begin a session over topics; the first one of a group makes it (*changes*).

        `holder` is what people are shown of it, as its program and process. Raises UnknownTopicError,
        PolicyViolationError (an internal topic), GroupExistsError (a consumer group has that name), GroupFullError
        (200 members), UnknownGroupError (deleted since `group` returned it), ReadOnlyError, OSError.
        """

    def positions(self, topic: str) -> Sequence[QueuePosition]:
        """Return where the group stands in each partition of a topic (*asked*). Raises UnknownTopicError."""

    def in_flight(self, topic: str) -> Sequence[InFlight]:
        """Return the records that are held, by partition and offset (*known*)."""

    def settle(self, place: RecordName, word: Acknowledgement) -> None:
        """Decide a record in flight in its holder's place (*changes*). Raises RecordNotHeldError if nobody holds it."""

    def rejected(self, topic: str) -> Sequence[Rejected]:
        """Return the newest 10,000 rejected records that their logs still have, by partition and offset (*asked*)."""

    def forget_rejected(self, place: RecordName) -> None:
        """Take a record out of `rejected` (*changes*). Raises RecordNotHeldError where it is not there."""

    def reset(self, partition: TopicPartition, offset: Offset) -> None:
        """Set the start offset (*changes*; GroupNotEmptyError, UnknownTopicError, ReadOnlyError, OSError)."""

    def alter(self, changes: Mapping[str, str | None]) -> None:
        """Set settings, or remove None ones (*changes*; InvalidConfigError, UnknownGroupError, ReadOnlyError, OSError)."""


class ShareGroups(Protocol):
    """The share groups of an engine (`coordination.engine.Engine.share_groups`)."""

    @property
    def unavailable(self) -> str | None:
        """The reason why there are none, as a sentence; None: there may be (*known*)."""

    def groups(self) -> Mapping[str, ShareGroup]:
        """Return the groups by name: with sessions, or with a state that is kept (*asked*, the first time)."""

    def exists(self, name: str) -> bool:
        """Return whether a group of the name is kept (*asked*, the first time)."""

    def group(self, name: str) -> ShareGroup:
        """Return a group, perhaps to be made (*asked*; InvalidGroupError, GroupExistsError, GroupsUnsupportedError)."""

    def create(self, name: str) -> ShareGroup:
        """Make a group without sessions, as `mkdir` does (*changes*). Raises GroupExistsError, and as `group`."""

    def delete(self, name: str) -> None:
        """Delete a group with all it keeps (*changes*). Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, OSError."""


class NoShareGroups:
    """The share groups of an engine that has none, and why."""

    def __init__(self, reason: str) -> None:
        self.unavailable = reason

    def groups(self) -> Mapping[str, ShareGroup]:
        return {}

    def exists(self, name: str) -> bool:
        del name
        return False

    def group(self, name: str) -> ShareGroup:
        raise GroupsUnsupportedError(f"{name}: {self.unavailable}")

    def create(self, name: str) -> ShareGroup:
        raise GroupsUnsupportedError(f"{name}: {self.unavailable}")

    def delete(self, name: str) -> None:
        raise UnknownGroupError(f"{name}: no such group")
