"""A member of a share group: see `coordination.share_groups.ShareSession`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from topicfs.coordination.share_groups import Acknowledgement, Leased, RecordName, ShareMember
from topicfs.storage.engine import Listeners
from topicfs.storage.errors import SessionClosedError
from topicfs.storage.model import Timestamp


class SessionGroup(Protocol):
    """The group of a session: what it does for the session, under its lock."""

    @property
    def name(self) -> str: ...

    def take(self, session: QueueSession, most: int) -> Sequence[Leased]: ...

    def acknowledge(self, session: QueueSession, words: Mapping[RecordName, Acknowledgement]) -> None: ...

    def leave(self, session: QueueSession) -> None: ...


class QueueSession:
    """One member and the records that it holds. The group does all the rest, under its lock."""

    def __init__(
        self, group: SessionGroup, member_id: str, topics: tuple[str, ...], holder: str, since: Timestamp
    ) -> None:
        self._group = group
        self._member_id = member_id
        self.topics = topics
        self.holder = holder
        self.since = since
        self.leases: dict[RecordName, Leased] = {}
        """The oldest lease first; changed by the group alone."""
        self.listeners = Listeners()
        self.is_closed = False

    @property
    def member_id(self) -> str:
        return self._member_id

    def take(self) -> Leased | None:
        taken = self.take_some(1)
        return taken[0] if taken else None

    def take_some(self, most: int) -> Sequence[Leased]:
        self._check_open()
        return self._group.take(self, most)

    def acknowledge(self, words: Mapping[RecordName, Acknowledgement]) -> None:
        self._check_open()
        self._group.acknowledge(self, words)

    def held(self) -> Sequence[Leased]:
        return list(self.leases.values())

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self.listeners.add(listener)

    def close(self) -> None:
        self._group.leave(self)

    def as_member(self) -> ShareMember:
        return ShareMember(self._member_id, self.holder, self.topics, self.since, len(self.leases))

    def _check_open(self) -> None:
        if self.is_closed:
            raise SessionClosedError(f"group {self._group.name}: the session was closed")
