"""Fetch sessions (KIP-227): a client names its partitions once, and then only what changes.

A session belongs to the connection on which it began, which has one at most. A client that asks for another one begins
again with all its partitions, as it does with a broker that has dropped its session.
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
"""Epochs of a request that ends its session, or wants none, and of one that begins a session."""
_MAX_SESSION_PARTITIONS = 100_000
"""Most partitions of a session."""

TopicKey: TypeAlias = str | UUID
"""A topic by its name or, from version 13 on, by its id."""


class Wanted(NamedTuple):
    """A partition that a client fetches."""

    offset: int
    max_bytes: int
    leader_epoch: int


class LastShown(NamedTuple):
    """What an answer said last about a partition."""

    high_watermark: int
    log_start_offset: int


class Session:
    """The partitions that a client fetches, the one that is due first at the front."""

    def __init__(self) -> None:
        self.id = 0
        """0: not a session, but a request on its own."""
        self.epoch = INITIAL + 1
        """The epoch of the next request."""
        self.incremental = False
        """True once answers leave out partitions of which there is nothing new."""
        self.partitions: dict[tuple[TopicKey, int], Wanted] = {}
        self.shown: dict[tuple[TopicKey, int], LastShown] = {}

    def take(self, values: Values) -> None:
        """Take what a request adds and removes; all of it, or nothing if there are too many partitions (RefusedError)."""
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
        """Put a partition that had its turn behind the others."""
        self.partitions[partition] = self.partitions.pop(partition)


def key_of(topic: Values) -> TopicKey:
    """Return what names a topic in a request."""
    found: TopicKey = topic["topicId"] if "topicId" in topic else topic["topic"]
    return found


def session_of(request: Request) -> Session:
    """Return the session that a request continues or begins, with the partitions that it wants now.

    Raises RefusedError, and leaves the sessions as they were.
    """
    values = request.values
    number, epoch = values.get("sessionId", 0), values.get("sessionEpoch", FINAL)
    sessions: dict[int, Session] = request.client.sessions
    if epoch in (FINAL, INITIAL):
        session = Session()
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
    found.take(values)
    found.epoch = epoch + 1 if epoch < 2**31 - 1 else 1
    found.incremental = True
    if not found.partitions:
        del sessions[number]
        found.id = 0
    return found
