"""The protocol of queues, Kafka's share groups: records handed out one by one, each to one holder at a time.

How to use it:

    group = engine.share_groups.group("billing")              the group, made by its first session
    session = group.open(["orders"], holder="bash, process 4711")
    leased = session.take()                                   a record for this session alone, or None: nothing now
    form.render_one(leased.columns, leased.index, topic=leased.record_name.topic, partition=leased.record_name.partition)
    session.acknowledge({leased.record_name: Acknowledgement.ACCEPT})
    session.close()                                           other sessions can take the records it still holds

A session is a member of the group, for example an open file or a process. A reader that finds no record calls
`listen`, and calls `take` again when its listener is called: when new records arrive, a holder releases records, or a
lease ends. A session may hold any number of records (`held`). It holds each record until it acknowledges the record
or closes, or the lease ends. A released record is delivered again, up to the group's delivery limit. A record that
reaches the limit, or that a holder rejects, moves to `rejected` and is not delivered again.

Delivery is at least once: no record is lost, and a record whose acceptance has returned is never delivered again. The
state is stored as a broker stores it (kafka-coordinators.md#share-groups), so a broker and topicfs can continue each
other's groups. As in `storage.engine`, all calls are safe from any thread. Calls marked "May wait" may read the disk,
and calls that change something write: make both kinds in threads that may wait.

Settings have Kafka's names and defaults (`storage.config.share_group`), except `share.auto.offset.reset`: here a new
group begins at the earliest record, as a shell user expects; a broker's new group begins at the latest.
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


def parse_record_name(text: str) -> RecordName:
    """Parse the name of a record. Raises InvalidNameError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidNameError(f"{text!r}: not the name of a record, such as orders-0-42")
    return RecordName(found["topic"], int(found["partition"]), Offset(int(found["offset"])))


class Acknowledgement(IntEnum):
    """A holder's answer to a record; Kafka's numbers."""

    ACCEPT = 1
    """The record is done: it is never delivered again."""
    RELEASE = 2
    """The record is given back, so that another session can take it. The delivery counts toward the limit."""
    REJECT = 3
    """The record cannot be processed: it moves to `ShareGroup.rejected` and is not delivered again."""
    RENEW = 4
    """The record is still being processed: the lease starts again."""


@dataclass(frozen=True, slots=True)
class Leased:
    """A record that one session holds, with the batch that contains it."""

    record_name: RecordName
    columns: Columns
    index: int
    batch_bytes: memoryview
    """All bytes of the batch that contains the record, as in the log."""
    delivery_count: int
    """How often the record was delivered; 1 for the first delivery."""
    lease_end: Timestamp

    @property
    def record(self) -> Record:
        return self.columns.record(self.index)


class InFlight(NamedTuple):
    record_name: RecordName
    member_id: str
    holder: str
    """The name that the session was opened with; empty for a member known only from another process's records."""
    since: Timestamp
    delivery_count: int
    lease_end: Timestamp


class RejectedBy(Enum):
    """Why a record was rejected."""

    REJECT = "reject"
    """Its holder rejected it."""
    LIMIT = "limit"
    """It reached the group's delivery limit."""


class Rejected(NamedTuple):
    """A rejected record. It stays in its log until retention deletes it."""

    record_name: RecordName
    time: Timestamp
    by: RejectedBy
    delivery_count: int
    holder: str
    """The holder of the session that last held the record; empty if unknown."""


class QueuePosition(NamedTuple):
    partition: TopicPartition
    start_offset: Offset
    """All records below this offset are done (Kafka's SPSO); -1 before the group's first session."""
    end_offset: Offset
    """No record at or above this offset has been delivered yet."""
    in_flight: int
    waiting: int
    """Number of records that were delivered before and now wait for another delivery."""
    lag: int
    """Number of records that are not done: in flight, waiting, or not delivered yet."""


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
        """The member's id, in Kafka's format. Never waits."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose records the session takes. Never waits."""

    def take(self) -> Leased | None:
        """Lease the next record to this session; None if there is none now.

        Records that other sessions gave back come first. A record that was delivered often is leased alone, because it
        may crash its readers (kafka-coordinators.md#poison-records). Raises SessionClosedError, UnknownTopicError,
        CorruptionError (the next call skips the batch), PartitionOfflineError, ReadOnlyError, OSError.
        """

    def take_some(self, most: int) -> Sequence[Leased]:
        """Lease up to `most` adjacent records of a partition; empty if there are none. Raises like `take`."""

    def acknowledge(self, words: Mapping[RecordName, Acknowledgement]) -> None:
        """Acknowledge records, durably on return. After OSError or StorageError, the session still holds them.

        Raises RecordNotHeldError if the session does not hold a record; then no record of its partition changes.
        """

    def held(self) -> Sequence[Leased]:
        """Return the records that the session holds, the oldest lease first. Never waits."""

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when `take` may find a record; return a function that cancels this.

        The listener may be called from any thread and must return quickly.
        """

    def close(self) -> None:
        """Give back all held records, and leave the group. Idempotent; raises no error."""


class ShareGroup(Protocol):
    """A share group: its sessions share the records of topics."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> ShareGroupSettings:
        """The present settings. Never waits."""

    def listed_settings(self) -> Sequence[ShownSetting]:
        """Return every setting, and the source of its value. Never waits."""

    @property
    def state(self) -> str:
        """`Empty`, `Stable` or `Dead`, as Kafka's tools print it. Never waits."""

    @property
    def epoch(self) -> int:
        """The group's epoch, which rises when a session opens or closes, or the topics change. Never waits."""

    def topics(self) -> Sequence[str]:
        """Return the names of the topics in which the group has a state. Never waits."""

    def members(self) -> Sequence[ShareMember]:
        """Return the open sessions, the oldest first. Never waits."""

    def open(self, topics: Sequence[str], *, holder: str) -> ShareSession:
        """Open a session over topics; a group's first session creates the group.

        `holder` describes the session to users, for example by its program and process. Raises UnknownTopicError,
        PolicyViolationError (an internal topic), GroupExistsError (a consumer group has that name), GroupFullError
        (200 members), UnknownGroupError (deleted since `group` returned it), ReadOnlyError, OSError.
        """

    def positions(self, topic: str) -> Sequence[QueuePosition]:
        """Return the group's position in each partition of a topic. May wait. Raises UnknownTopicError."""

    def in_flight(self, topic: str) -> Sequence[InFlight]:
        """Return the held records, by partition and offset. Never waits."""

    def acknowledge_for_holder(self, record_name: RecordName, word: Acknowledgement) -> None:
        """Acknowledge a held record for its holder. Raises RecordNotHeldError if nobody holds it."""

    def rejected(self, topic: str) -> Sequence[Rejected]:
        """Return the rejected records that are still in their logs, at most the newest 10,000. May wait.

        They are ordered by partition and offset.
        """

    def forget_rejected(self, record_name: RecordName) -> None:
        """Remove a record from `rejected`. Raises RecordNotHeldError if the record is not in `rejected`."""

    def reset(self, partition: TopicPartition, offset: Offset) -> None:
        """Set the start offset in a partition. Raises GroupNotEmptyError, UnknownTopicError, ReadOnlyError, OSError."""

    def alter(self, changes: Mapping[str, str | None]) -> None:
        """Set settings (None: reset). Raises InvalidConfigError, UnknownGroupError, ReadOnlyError, OSError."""


class ShareGroups(Protocol):
    """The share groups of an engine (`coordination.engine.Engine.share_groups`)."""

    @property
    def unavailable(self) -> str | None:
        """A sentence that says why the engine cannot have share groups; None if it can have them. Never waits."""

    def groups(self) -> Mapping[str, ShareGroup]:
        """Return the groups that have sessions or a stored state, by name. The first call may wait."""

    def exists(self, name: str) -> bool:
        """Return whether a group of that name is stored. The first call may wait."""

    def group(self, name: str) -> ShareGroup:
        """Return any group by name. May wait. Raises InvalidGroupError, GroupExistsError, GroupsUnsupportedError."""

    def create(self, name: str) -> ShareGroup:
        """Create a group without sessions, for `mkdir`. Raises GroupExistsError and errors of `group`."""

    def delete(self, name: str) -> None:
        """Delete a group and its state. Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, OSError."""


class NoShareGroups:
    """The share groups of an engine that cannot have any: each call fails with the reason."""

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
