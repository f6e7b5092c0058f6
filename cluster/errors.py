"""Errors of a cluster: a table from Kafka's error codes to exceptions and remedies, and the errors of connections."""

from __future__ import annotations

import ssl
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from topicfs.storage import errors


class UnreachableError(errors.NoAnswerError):
    """A broker cannot be reached: there is no connection, it broke, or no answer came in time. A retry may succeed."""


class ThrottledError(UnreachableError):
    """A quota is exhausted, and the throttle time is longer than the caller waits. The request was not sent."""


class NotKafkaError(errors.ClusterError):
    """The server at an address does not speak Kafka's protocol."""


class MalformedAnswerError(errors.ClusterError):
    """An answer does not fit its request."""


class UnsupportedVersionError(errors.ClusterError):
    """A broker is too old or too new for a request."""


class AuthenticationError(errors.ClusterError):
    """The cluster rejects the client's identity, or the client rejects the cluster's identity."""


class CacheError(errors.ClusterError):
    """A directory cannot be used as a cache."""


class MirrorError(errors.ClusterError):
    """A directory cannot be used by this mirror."""


class WrittenByOthersError(MirrorError):
    """A mirror's directory contains something that the mirror did not write."""

    def __init__(self, directory: Path, what: str) -> None:
        reason = f"{what}: something other than the mirror wrote there; mirror into another directory"
        super().__init__(f"{directory}: {reason}")


class RetryCondition(Enum):
    """The condition under which a retry may succeed after an error."""

    NO = "no attempt helps"
    LATER = "time"
    ELSEWHERE = "the leaders as they are now"


class ErrorKind(NamedTuple):
    """A row of the table of error codes."""

    name: str
    retry: RetryCondition = RetryCondition.NO
    type: type[errors.StorageError] = errors.ClusterError


UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
REQUEST_TIMED_OUT = 7
TOPIC_AUTHORIZATION_FAILED = 29
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
UNKNOWN_TOPIC_ID = 100
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
GROUP_AUTHORIZATION_FAILED = 30
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82
UNKNOWN_LEADER_EPOCH = 75
UNSTABLE_OFFSET_COMMIT = 88
OUT_OF_ORDER_SEQUENCE = 45
DUPLICATE_SEQUENCE = 46
INVALID_PRODUCER_EPOCH = 47
UNKNOWN_PRODUCER_ID = 59
PRODUCER_FENCED = 90
DELETED = frozenset({UNKNOWN_TOPIC_ID, 42})
"""Error codes for a deleted topic id. 42 is INVALID_REQUEST, an answer during upgrades from Kafka 2.7 (without ids)."""

_ACL = (
    "ask for an ACL on it: Describe and Read to read, Write to append, DescribeConfigs to see its settings, "
    "Create, Alter, AlterConfigs or Delete to change it"
)

_REPLICAS = "too few replicas are in sync for acks=all: see min.insync.replicas, and which brokers are down"

ERRORS: dict[int, ErrorKind] = {
    UNKNOWN_SERVER_ERROR: ErrorKind("UNKNOWN_SERVER_ERROR", RetryCondition.LATER),
    OFFSET_OUT_OF_RANGE: ErrorKind("OFFSET_OUT_OF_RANGE"),
    2: ErrorKind("CORRUPT_MESSAGE", RetryCondition.LATER),
    UNKNOWN_TOPIC_OR_PARTITION: ErrorKind(
        "UNKNOWN_TOPIC_OR_PARTITION", RetryCondition.ELSEWHERE, errors.UnknownTopicError
    ),
    LEADER_NOT_AVAILABLE: ErrorKind("LEADER_NOT_AVAILABLE", RetryCondition.ELSEWHERE),
    6: ErrorKind("NOT_LEADER_OR_FOLLOWER", RetryCondition.ELSEWHERE),
    7: ErrorKind("REQUEST_TIMED_OUT", RetryCondition.LATER),
    8: ErrorKind("BROKER_NOT_AVAILABLE", RetryCondition.ELSEWHERE),
    9: ErrorKind("REPLICA_NOT_AVAILABLE", RetryCondition.ELSEWHERE),
    10: ErrorKind("MESSAGE_TOO_LARGE", type=errors.RecordTooLargeError),
    12: ErrorKind("OFFSET_METADATA_TOO_LARGE", type=errors.InvalidPositionError),
    13: ErrorKind("NETWORK_EXCEPTION", RetryCondition.ELSEWHERE),
    COORDINATOR_LOAD_IN_PROGRESS: ErrorKind(
        "COORDINATOR_LOAD_IN_PROGRESS", RetryCondition.LATER, errors.GroupError
    ),
    COORDINATOR_NOT_AVAILABLE: ErrorKind(
        "COORDINATOR_NOT_AVAILABLE", RetryCondition.LATER, errors.GroupError
    ),
    NOT_COORDINATOR: ErrorKind("NOT_COORDINATOR", RetryCondition.LATER, errors.GroupError),
    17: ErrorKind("INVALID_TOPIC_EXCEPTION", type=errors.InvalidNameError),
    18: ErrorKind("RECORD_LIST_TOO_LARGE", type=errors.RecordTooLargeError),
    19: ErrorKind("NOT_ENOUGH_REPLICAS", RetryCondition.LATER, errors.NotEnoughReplicasError),
    20: ErrorKind(
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND", RetryCondition.LATER, errors.NotEnoughReplicasAfterAppendError
    ),
    ILLEGAL_GENERATION: ErrorKind("ILLEGAL_GENERATION", type=errors.NotAssignedError),
    23: ErrorKind("INCONSISTENT_GROUP_PROTOCOL", type=errors.IncompatibleMemberError),
    24: ErrorKind("INVALID_GROUP_ID", type=errors.InvalidGroupError),
    UNKNOWN_MEMBER_ID: ErrorKind("UNKNOWN_MEMBER_ID", type=errors.NotAssignedError),
    26: ErrorKind("INVALID_SESSION_TIMEOUT", type=errors.GroupError),
    REBALANCE_IN_PROGRESS: ErrorKind("REBALANCE_IN_PROGRESS", type=errors.GroupError),
    TOPIC_AUTHORIZATION_FAILED: ErrorKind("TOPIC_AUTHORIZATION_FAILED", type=errors.NotAuthorizedError),
    GROUP_AUTHORIZATION_FAILED: ErrorKind("GROUP_AUTHORIZATION_FAILED", type=errors.NotAuthorizedError),
    31: ErrorKind("CLUSTER_AUTHORIZATION_FAILED", type=errors.NotAuthorizedError),
    32: ErrorKind("INVALID_TIMESTAMP", type=errors.InvalidTimestampError),
    33: ErrorKind("UNSUPPORTED_SASL_MECHANISM", type=AuthenticationError),
    34: ErrorKind("ILLEGAL_SASL_STATE", type=AuthenticationError),
    35: ErrorKind("UNSUPPORTED_VERSION", type=UnsupportedVersionError),
    36: ErrorKind("TOPIC_ALREADY_EXISTS", type=errors.TopicExistsError),
    37: ErrorKind("INVALID_PARTITIONS", type=errors.InvalidConfigError),
    38: ErrorKind("INVALID_REPLICATION_FACTOR", type=errors.InvalidConfigError),
    40: ErrorKind("INVALID_CONFIG", type=errors.InvalidConfigError),
    41: ErrorKind("NOT_CONTROLLER", RetryCondition.ELSEWHERE),
    42: ErrorKind("INVALID_REQUEST"),
    43: ErrorKind("UNSUPPORTED_FOR_MESSAGE_FORMAT", type=errors.InvalidRecordError),
    44: ErrorKind("POLICY_VIOLATION", type=errors.PolicyViolationError),
    45: ErrorKind("OUT_OF_ORDER_SEQUENCE_NUMBER", type=errors.OutOfOrderSequenceError),
    46: ErrorKind("DUPLICATE_SEQUENCE_NUMBER", type=errors.OutOfOrderSequenceError),
    47: ErrorKind("INVALID_PRODUCER_EPOCH", type=errors.ProducerFencedError),
    48: ErrorKind("INVALID_TXN_STATE", type=errors.InvalidTransactionStateError),
    49: ErrorKind("INVALID_PRODUCER_ID_MAPPING", type=errors.InvalidTransactionStateError),
    53: ErrorKind("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", type=errors.NotAuthorizedError),
    54: ErrorKind("SECURITY_DISABLED"),
    56: ErrorKind("KAFKA_STORAGE_ERROR", RetryCondition.ELSEWHERE),
    58: ErrorKind("SASL_AUTHENTICATION_FAILED", type=AuthenticationError),
    59: ErrorKind("UNKNOWN_PRODUCER_ID", type=errors.OutOfOrderSequenceError),
    68: ErrorKind("NON_EMPTY_GROUP", type=errors.GroupNotEmptyError),
    GROUP_ID_NOT_FOUND: ErrorKind("GROUP_ID_NOT_FOUND", type=errors.UnknownGroupError),
    73: ErrorKind("TOPIC_DELETION_DISABLED"),
    74: ErrorKind("FENCED_LEADER_EPOCH", RetryCondition.ELSEWHERE),
    UNKNOWN_LEADER_EPOCH: ErrorKind("UNKNOWN_LEADER_EPOCH", RetryCondition.LATER),
    76: ErrorKind("UNSUPPORTED_COMPRESSION_TYPE"),
    78: ErrorKind("OFFSET_NOT_AVAILABLE", RetryCondition.LATER),
    MEMBER_ID_REQUIRED: ErrorKind("MEMBER_ID_REQUIRED", type=errors.GroupError),
    81: ErrorKind("GROUP_MAX_SIZE_REACHED", type=errors.GroupFullError),
    FENCED_INSTANCE_ID: ErrorKind("FENCED_INSTANCE_ID", type=errors.NotAssignedError),
    86: ErrorKind("GROUP_SUBSCRIBED_TO_TOPIC", type=errors.GroupNotEmptyError),
    UNSTABLE_OFFSET_COMMIT: ErrorKind("UNSTABLE_OFFSET_COMMIT", RetryCondition.LATER, errors.GroupError),
    87: ErrorKind("INVALID_RECORD", type=errors.InvalidRecordError),
    89: ErrorKind("THROTTLING_QUOTA_EXCEEDED", RetryCondition.LATER),
    90: ErrorKind("PRODUCER_FENCED", type=errors.ProducerFencedError),
    UNKNOWN_TOPIC_ID: ErrorKind("UNKNOWN_TOPIC_ID", RetryCondition.ELSEWHERE, errors.UnknownTopicError),
    103: ErrorKind("INCONSISTENT_TOPIC_ID", RetryCondition.ELSEWHERE, errors.UnknownTopicError),
}
"""The errors that topicfs's requests can return, by Kafka's code."""

REMEDIES = {
    UNKNOWN_SERVER_ERROR: "the broker's log says more",
    2: "the broker's disk may be failing: see its log",
    10: "raise max.message.bytes of the topic",
    12: "see offset.metadata.max.bytes at the brokers",
    18: "raise segment.bytes of the topic",
    19: _REPLICAS,
    20: _REPLICAS,
    23: "set `assignor` of the group to one that its other members have (kafka-consumer-groups --describe --state)",
    26: "see group.min.session.timeout.ms and group.max.session.timeout.ms at the brokers",
    TOPIC_AUTHORIZATION_FAILED: _ACL,
    GROUP_AUTHORIZATION_FAILED: "ask for an ACL on the group: Read to read as a member, Describe to see it, Delete to delete it",
    31: "ask for an ACL on the cluster",
    32: "see message.timestamp.before.max.ms and after.max.ms",
    33: "set sasl.mechanism to one that it offers",
    34: "set security.protocol to that of the listener",
    38: "see default.replication.factor, and which brokers are down",
    56: "a disk of the broker failed: see its log",
    58: "check user and password, or the token",
    68: "end its members first",
    73: "set delete.topic.enable=true at the brokers",
    81: "see group.max.size at the brokers",
    86: "end its members first",
}


MAX_QUOTED_CHARACTERS = 300
"""Maximum number of characters that are quoted from a message of a broker or server."""


def quoted(text: str, *secrets: str) -> str:
    """Return the text of a broker or server for use in a message: shortened, and without `secrets`."""
    for one in filter(None, secrets):
        text = text.replace(one, "…")
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}…"


def kind_of(code: int) -> ErrorKind:
    return ERRORS.get(code, ErrorKind(f"error {code}"))


def error_of(code: int, what: str, message: str | None = None) -> errors.StorageError:
    """Return the exception for an error code. `what` names the object concerned, `message` is the broker's text."""
    kind = kind_of(code)
    said = f"{kind.name}: {quoted(message)}" if message else kind.name
    remedy = f"; {REMEDIES[code]}" if code in REMEDIES else ""
    return kind.type(f"{what}: the cluster answers {said}{remedy}")


NO_TLS = "set security.protocol to PLAINTEXT or SASL_PLAINTEXT"


def tls_reason(error: ssl.SSLError) -> str:
    """Return why the TLS handshake failed, with the remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _CERTIFICATE_REMEDIES.get(error.verify_code, "")
        return f"its certificate is rejected: {error.verify_message.rstrip('.')}{remedy and '; '}{remedy}"
    # Builds of Python differ in which of the two they raise if the peer closes the connection.
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return f"it closed the connection; if it does not speak TLS, {NO_TLS}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "wrong version number" in reason or "record layer failure" in reason:
        return f"it does not speak TLS; {NO_TLS}"
    if "certificate" in reason or "unknown ca" in reason:
        return f"it rejects this client's certificate ({reason}): set ssl.keystore.location to one that it trusts"
    return f"TLS: {reason}"


_CERTIFICATE_REMEDIES = {
    10: "its owner has to renew it",
    **dict.fromkeys((18, 19, 20, 21), "set ssl.truststore.location to a file with the CA that signed it"),
    **dict.fromkeys((62, 64), "connect by a name that it contains, or have it issued for this name"),
}
"""Remedies by OpenSSL's verification codes: expired, unknown authority, wrong host name, wrong address."""
