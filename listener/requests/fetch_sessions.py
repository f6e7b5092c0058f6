"""Fetch sessions (KIP-227): a client names all its partitions once, and after that only changes.

A session belongs to the connection on which it began, and a connection has at most one session. A client that asks
for any other session has to begin again with all its partitions, as after a broker has evicted its session.
"""

from __future__ import annotations

import random
from typing import NamedTuple, TypeAlias
from uuid import UUID

from topicfs.listener.broker import Request
from topicfs.listener.errors import RefusedError
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.wire import Values

FINAL, INITIAL = -1, 0
"""FINAL ends the session or asks for no session; INITIAL begins a session."""
SINCE_TOPIC_IDS = 13
"""From this version of Fetch on, topics are identified by their ids."""
_MAX_SESSION_PARTITIONS = 100_000
"""Largest number of partitions in a session."""

TopicKey: TypeAlias = str | UUID
"""A topic's name; since SINCE_TOPIC_IDS, its ID."""


class Wanted(NamedTuple):
    """A partition that a client fetches."""

    offset: int
    max_bytes: int
    leader_epoch: int


class LastShown(NamedTuple):
    """The offsets that the last answer gave for a partition."""

    high_watermark: int
    log_start_offset: int


class Session:
    """The partitions that a client fetches; the partition to be read next comes first."""

    def __init__(self, *, by_id: bool) -> None:
        self.by_id = by_id
        """True if the session's requests identify topics by their ids."""
        self.id = 0
        """The session's ID; 0 for a single request without a session."""
        self.epoch = INITIAL + 1
        """The epoch that the next request must have."""
        self.incremental = False
        """True if answers leave out partitions that have no news."""
        self.partitions: dict[tuple[TopicKey, int], Wanted] = {}
        self.shown: dict[tuple[TopicKey, int], LastShown] = {}

    def take(self, values: Values) -> None:
        """Add and remove the partitions that a request lists.

        Raises RefusedError, and changes nothing, if there are too many.
        """
        added = {
            (key_of(topic), one["partition"]): Wanted(
                one["fetchOffset"], one["partitionMaxBytes"], one.get("currentLeaderEpoch", -1)
            )
            for topic in values["topics"]
            for one in topic["partitions"]
        }
        removed = {
            (key_of(topic), number)
            for topic in values.get("forgottenTopicsData", ())
            for number in topic["partitions"]
        }
        added = {key: wanted for key, wanted in added.items() if key not in removed}
        leaving = removed & self.partitions.keys()
        coming = added.keys() - self.partitions.keys()
        if len(self.partitions) + len(coming) - len(leaving) > _MAX_SESSION_PARTITIONS:
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        self.partitions |= added
        for key in leaving:
            del self.partitions[key]
            self.shown.pop(key, None)

    def served(self, partition: tuple[TopicKey, int]) -> None:
        """Move a partition to the end of the session, after its records were sent."""
        self.partitions[partition] = self.partitions.pop(partition)


def key_of(topic: Values) -> TopicKey:
    """Return the name or ID by which a request identifies a topic."""
    found: TopicKey = topic["topicId"] if "topicId" in topic else topic["topic"]
    return found


def session_of(request: Request) -> Session:
    """Return the session that a request continues or begins, updated with the request's partitions.

    Raises RefusedError, and then changes no session.
    """
    values = request.values
    number, epoch = values.get("sessionId", 0), values.get("sessionEpoch", FINAL)
    sessions: dict[int, Session] = request.client.sessions
    by_id = request.version >= SINCE_TOPIC_IDS
    if epoch in (FINAL, INITIAL):
        session = Session(by_id=by_id)
        session.take(values)
        sessions.pop(number, None)
        if epoch == INITIAL:
            session.id = random.randint(1, 2**31 - 1)  # noqa: S311 (it protects nothing)
            sessions.clear()
            sessions[session.id] = session
        return session
    found = sessions.get(number)
    if found is None:
        raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if epoch != found.epoch:
        raise RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if by_id != found.by_id:  # A client that has just learned the ids begins a new session after this error.
        raise RefusedError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    found.take(values)
    found.epoch = epoch + 1 if epoch < 2**31 - 1 else 1
    found.incremental = True
    if not found.partitions:
        del sessions[number]
        found.id = 0
    return found
