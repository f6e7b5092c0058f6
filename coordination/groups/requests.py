"""The requests to a group coordinator, its answers, and the records it writes, as Python values.

Requests and answers have Kafka's field names, but are not encoded. Each request comes with a `reply` function, which
is called once, perhaps later. A `Write` has records that must be in the log before the change takes effect: the
coordinator's runner appends them and then calls `written`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from topicfs.coordination.membership import Position
from topicfs.storage.model import Offset, TopicPartition

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""A record's key and value; the value None is a tombstone."""


class Code(IntEnum):
    """The Kafka error codes that coordinators use."""

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
    GROUP_AUTHORIZATION_FAILED = 30
    INVALID_REQUEST = 42
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    TRANSACTIONAL_ID_NOT_FOUND = 105
    TRANSACTION_ABORTABLE = 120


class Write(NamedTuple):
    """Records to append together."""

    records: tuple[KeyValue, ...]
    written: Callable[[Code, Offset], None]
    """Called with NONE and the offset of the first record; with an error code if nothing was appended."""


class Protocol(NamedTuple):
    """An assignor that a member offers, and the metadata that the leader receives for this assignor."""

    name: str
    metadata: bytes


NO_SESSION_MS = 0
"""The session timeout of members of this process, which send no heartbeats. Kafka clients never have this timeout."""


class JoinRequest(NamedTuple):
    """A request to join or rejoin a group."""

    group: str
    member_id: str = ""
    """The member's id; empty if it has none yet."""
    proposed_id: str = ""
    """The id for a new member of this process; if empty, the coordinator generates an id."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = "/127.0.0.1"
    reader: str = ""
    """The reading program, as shown to users (`coordination.membership.MemberDescription`)."""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"
    protocols: tuple[Protocol, ...] = ()
    version: int = 9
    """Version of Kafka's request. From version 4 on a new member first gets an id; from 9 on the assignment may be
    skipped.
    """
    reason: str = ""
    heartbeats: bool = True
    """False if this process notices the end of the member by itself. Then the member needs no session timer."""


class JoinedMember(NamedTuple):
    """A member, as the join answer to the leader lists it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to a JoinRequest."""

    code: Code = Code.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """All members in the leader's answer; empty in the answers to other members."""


class SyncRequest(NamedTuple):
    """A request for the member's assignment; the leader's request carries all assignments."""

    group: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = MappingProxyType({})


class SyncAnswer(NamedTuple):
    """The answer to a SyncRequest."""

    code: Code
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves. For a static member, the instance id is enough."""

    member_id: str = ""
    instance_id: str | None = None
    reason: str = ""


class OffsetCommitRequest(NamedTuple):
    """A request to commit positions."""

    group: str
    positions: Mapping[TopicPartition, Position]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """The member's generation; -1 if the commit does not come from a member."""
    retention_ms: int | None = None
    version: int = 10


JoinReply: TypeAlias = Callable[[JoinAnswer], None]
SyncReply: TypeAlias = Callable[[SyncAnswer], None]
CommitReply: TypeAlias = Callable[[Code | Mapping[TopicPartition, Code]], None]
"""Called with one code for all partitions, or with a code for each partition."""


class RequestError(Exception):
    """A refused request, with Kafka's error code."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code
