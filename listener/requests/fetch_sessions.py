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
_MOST_PARTITIONS = 100_000
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
        """Take what a request adds and removes (RefusedError)."""
        for topic in values["topics"]:
            key = key_of(topic)
            for one in topic["partitions"]:
                self.partitions[key, one["partition"]] = Wanted(
                    one["fetchOffset"], one["partitionMaxBytes"], one.get("currentLeaderEpoch", -1)
                )
        for topic in values.get("forgottenTopicsData", ()):
            for number in topic["partitions"]:
                self.partitions.pop((key_of(topic), number), None)
                self.shown.pop((key_of(topic), number), None)
        if len(self.partitions) > _MOST_PARTITIONS:
            raise RefusedError(ErrorCode.INVALID_REQUEST)

    def served(self, partition: tuple[TopicKey, int]) -> None:
        """Put a partition that had its turn behind the others."""
        self.partitions[partition] = self.partitions.pop(partition)


def key_of(topic: Values) -> TopicKey:
    """Return what names a topic in a request."""
    found: TopicKey = topic["topicId"] if "topicId" in topic else topic["topic"]
    return found


def session_of(request: Request) -> Session:
    """Return the session that a request continues or begins, with the partitions that it wants now (RefusedError)."""
    values = request.values
    number, epoch = values.get("sessionId", 0), values.get("sessionEpoch", FINAL)
    sessions: dict[int, Session] = request.client.sessions
    if epoch in (FINAL, INITIAL):
        sessions.pop(number, None)
        session = Session()
        if epoch == INITIAL:
            session.id = random.randint(1, 2**31 - 1)  # noqa: S311 (it protects nothing)
            sessions.clear()
            sessions[session.id] = session
    else:
        found = sessions.get(number)
        if found is None:
            raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != found.epoch:
            raise RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session = found
        session.epoch = epoch + 1 if epoch < 2**31 - 1 else 1
        session.incremental = True
    session.take(values)
    if session.incremental and not session.partitions:
        del sessions[number]
        session.id = 0
    return session
