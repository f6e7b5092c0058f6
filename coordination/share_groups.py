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
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from topicfs.storage.codec.columns import Columns
from topicfs.storage.errors import InvalidNameError
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
    """The record cannot be processed: it moves to `QueueGroup.rejected` and is not delivered again."""
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
