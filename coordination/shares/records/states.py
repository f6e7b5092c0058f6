"""The state of one record of a share group, or of several records in the same state.

    Available 0 ──acquire──► Acquired 1 ──accept──► Acknowledged 2
        ▲                        │
        └─release, lock's end────┴─reject, gap, the limit──► Archived 4

A change that is being written is *in transition*: nothing else may change the record until the write has succeeded or
failed (kafka-coordinators.md#share-groups).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NOBODY = ""
"""The holder of a record that nobody holds."""


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self >= RecordState.ACKNOWLEDGED


AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


class _Before(NamedTuple):
    """The state before a change that has not been written yet."""

    state: RecordState
    member: str
    limit: int


class DeliveryState:
    """A record's state, its number of deliveries, its holder, and the end of its lock."""

    __slots__ = ("_archived", "_before", "count", "lease_end", "member", "since", "state")

    def __init__(
        self,
        state: RecordState,
        count: int,
        member: str = NOBODY,
        *,
        since: int = -1,
        lease_end: int | None = None,
    ) -> None:
        self.state = state
        self.count = count
        self.member = member
        self.since = since
        """When the record was acquired, in ms."""
        self.lease_end = lease_end
        """When the lock ends, in ms; None if the record is not locked."""
        self._before: _Before | None = None
        self._archived = False

    def __repr__(self) -> str:
        return f"{self.state.name}×{self.count}{self.member and ' by ' + self.member}"

    @property
    def in_transition(self) -> bool:
        return self._before is not None

    @property
    def is_free(self) -> bool:
        return self.state is AVAILABLE and self._before is None

    @property
    def is_done(self) -> bool:
        """True if the state is final and has been written."""
        return self._before is None and self.state.is_final

    def copy(self) -> DeliveryState:
        return DeliveryState(self.state, self.count, self.member, since=self.since, lease_end=self.lease_end)

    def acquire(self, member: str, now: int, lease_end: int) -> None:
        assert self.is_free
        self.state, self.member = ACQUIRED, member
        self.count += 1
        self.since, self.lease_end = now, lease_end

    def expire(self, limit: int, *, archive: bool) -> None:
        """End the lock: the record becomes Available, or Archived at the limit. A failed write does not undo this."""
        assert self.state is ACQUIRED
        assert self._before is None
        self._give_up(archive or self.count >= limit)

    def archive(self) -> None:
        """Become Archived immediately, even in transition."""
        self._archived = True
        self.state, self.member, self.lease_end = ARCHIVED, NOBODY, None

    def begin(self, state: RecordState, limit: int) -> None:
        """Begin a change that is to be written. At the delivery limit, Archived replaces Available."""
        assert self.state is ACQUIRED
        assert self._before is None
        self._before = _Before(self.state, self.member, limit)
        self.state = ARCHIVED if state is AVAILABLE and self.count >= limit else state
        self.member = NOBODY

    def commit(self) -> None:
        self._before, self.lease_end = None, None

    def undo(self, now: int) -> None:
        """Undo a change that was not written. The record is Acquired again, or expired if its lock has ended."""
        before, self._before = self._before, None
        assert before is not None
        if self._archived:
            return
        if self.lease_end is not None and self.lease_end <= now:
            self._give_up(self.count >= before.limit)
        else:
            self.state, self.member = before.state, before.member

    def _give_up(self, archived: bool) -> None:
        self.state = ARCHIVED if archived else AVAILABLE
        self.member, self.lease_end = NOBODY, None
