"""The life of a log, and its role among the replicas of its partition.

    SERVING     accepts writes, unless it is read-only
    OFFLINE     failed; accepts no writes until its partition is loaded again, as another log
    DELETING    its topic is deleted; its files are still open
    CLOSED      its files are closed
    DELETED     its topic is deleted and its files are closed
    SUPERSEDED  closed, and another log serves its partition; reads fail too, as that log may change the files

`TRANSITIONS` has all allowed changes. The roles follow Kafka's Partition.makeLeader and makeFollower
(kafka-storage.md#replication):

    ALONE     accepts appends, which are visible immediately. The role of a log that was just loaded.
    LEADER    accepts appends in its epoch; the high watermark makes them visible
    FOLLOWER  accepts only its leader's batches; its high watermark is its leader's
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from topicfs.storage.errors import PartitionGoneError, PartitionOfflineError, ReadOnlyError
from topicfs.storage.model import TopicPartition


class Life(Enum):
    SERVING = "serving"
    OFFLINE = "offline"
    DELETING = "being deleted"
    CLOSED = "closed"
    DELETED = "deleted"
    SUPERSEDED = "superseded"

    @property
    def is_open(self) -> bool:
        return self in (Life.SERVING, Life.OFFLINE, Life.DELETING)

    @property
    def is_final(self) -> bool:
        """True if this log never serves again, because its partition was deleted or another log object serves it."""
        return self in (Life.DELETING, Life.DELETED, Life.SUPERSEDED)


class Event(Enum):
    FAIL = "fail"
    DELETE = "delete"
    CLOSE = "close"
    SUPERSEDE = "supersede"


def _row(*after: Life | None) -> Mapping[Life, Life | None]:
    return MappingProxyType(dict(zip(Life, after, strict=True)))


TRANSITIONS: Mapping[Event, Mapping[Life, Life | None]] = MappingProxyType(
    {
        # Next state from SERVING, OFFLINE, DELETING, CLOSED, DELETED and SUPERSEDED, in this order.
        Event.FAIL: _row(
            Life.OFFLINE, Life.OFFLINE, Life.DELETING, Life.CLOSED, Life.DELETED, Life.SUPERSEDED
        ),
        Event.DELETE: _row(
            Life.DELETING, Life.DELETING, Life.DELETING, Life.DELETED, Life.DELETED, Life.SUPERSEDED
        ),
        Event.CLOSE: _row(Life.CLOSED, Life.CLOSED, Life.DELETED, Life.CLOSED, Life.DELETED, Life.SUPERSEDED),
        Event.SUPERSEDE: _row(None, None, None, Life.SUPERSEDED, Life.SUPERSEDED, Life.SUPERSEDED),
    }
)
"""The next state, by event and present state; None if the event is not allowed in that state."""


class Role(Enum):
    """The role of a log among the replicas of its partition."""

    ALONE = "alone"
    LEADER = "leader"
    FOLLOWER = "follower"


class LogLife:
    """The state and the role of one log. All methods are safe from any thread."""

    __slots__ = (
        "_changing",
        "_partition",
        "_read_only",
        "now",
        "reason",
        "role",
        "takes_appends",
        "takes_copies",
    )

    def __init__(self, partition: TopicPartition, *, read_only: bool) -> None:
        self._partition = partition
        self._read_only = read_only
        self._changing = threading.Lock()
        self.now, self.role = Life.SERVING, Role.ALONE
        self.reason: str | None = None
        """The first reason given why the log accepts no writes; None if no reason was given."""
        self.takes_appends = not read_only
        """True if clients may append to the log."""
        self.takes_copies = False
        """True if the log may append copies of its leader's batches."""

    def note(self, event: Event, reason: str | None = None) -> Life:
        """Enter the state that follows `event`; return the previous state. Raises ValueError for an invalid event."""
        with self._changing:
            before = self.now
            after = TRANSITIONS[event][before]
            if after is None:
                raise ValueError(f"{self._partition}: {event.value} a log that is {before.value}")
            self.now, self.reason = after, self.reason or reason
            self._update_allowed()
        return before

    def take(self, role: Role) -> None:
        """Change the role. An unwritable log may only become a follower; otherwise raises like `check_writable`."""
        with self._changing:
            if role is not Role.FOLLOWER:
                self.check_writable()
            self.role = role
            self._update_allowed()

    def _update_allowed(self) -> None:
        writable, follows = self.now is Life.SERVING and not self._read_only, self.role is Role.FOLLOWER
        self.takes_appends, self.takes_copies = writable and not follows, writable and follows

    def check_writable(self) -> None:
        """Raise PartitionOfflineError, PartitionGoneError or ReadOnlyError if the log must not be changed."""
        if self.now is not Life.SERVING:
            kind = PartitionGoneError if self.now.is_final else PartitionOfflineError
            raise kind(f"{self._partition}: {self.reason or 'closed'}")
        if self._read_only:
            raise ReadOnlyError(f"{self._partition}: opened read-only")
