"""The requests to a group coordinator, its answers, and the records it has written, as values.

Requests and answers are Kafka's, by its names, without their bytes. An answer may come later: each request brings a
`reply`, which is called once. What must be in the log first is a `Write`: the runner of the coordinator appends it and
then calls `written`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from topicfs.coordination.membership import Position
from topicfs.storage.model import Offset, TopicPartition

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""A record's key and value; None deletes the key."""


class Code(IntEnum):
    """Kafka's error codes, those that a group coordinator answers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88


class Write(NamedTuple):
    """Records to be appended together."""

    records: tuple[KeyValue, ...]
    written: Callable[[Code, Offset], None]
    """Called with NONE and the offset of the first record, or with the error: then nothing was appended."""


class Protocol(NamedTuple):
    """An assignor that a member offers, and what it tells the leader for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member joins, or joins again."""

    group: str
    member_id: str = ""
    """Empty: it has none yet."""
    proposed_id: str = ""
    """The id that a new member of this process gets; empty: one is made up."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = "/127.0.0.1"
    reader: str = ""
    """The program that reads, for people (`coordination.membership.MemberDescription`)."""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"
    protocols: tuple[Protocol, ...] = ()
    version: int = 9
    """Version of Kafka's request: from 4 on a new member is given an id first, from 9 on assigning may be skipped."""
    reason: str = ""
    heartbeats: bool = True
    """False: this process knows when the member ends, and no timer is needed to find out."""


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a JoinRequest."""

    code: Code = Code.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings all of them."""

    group: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


class SyncAnswer(NamedTuple):
    """The answer to a SyncRequest."""

    code: Code
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves; a static one may be named by its instance alone."""

    member_id: str = ""
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """Positions to be committed."""

    group: str
    positions: Mapping[TopicPartition, Position]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """-1: in the name of no member."""
    retention_ms: int | None = None
    version: int = 10


JoinReply: TypeAlias = Callable[[JoinAnswer], None]
SyncReply: TypeAlias = Callable[[SyncAnswer], None]
CommitReply: TypeAlias = Callable[[Code | Mapping[TopicPartition, Code]], None]
"""One code for all, or one for each partition."""


class RequestError(Exception):
    """A request is refused with a code of Kafka's."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code
