"""The error codes by which clients learn of the engine's errors, in one table; and the errors of the listener itself."""

from __future__ import annotations

import logging
from collections.abc import Callable

from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage import errors
from topicfs.storage.messages import reason_of
from topicfs.storage.wire import Values

_LOGGER = logging.getLogger("topicfs")


class ListenerError(errors.StorageError):
    """An address at which the listener cannot, or may not, accept connections."""


class BadRequestError(Exception):
    """Bytes that are no request, or a request that is not answered: the connection is closed, as a broker does."""


class RefusedError(Exception):
    """A request, or a part of one, that is answered by an error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


CODES: tuple[tuple[type[BaseException], ErrorCode], ...] = (
    (errors.NotEnoughReplicasAfterAppendError, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    (errors.NotEnoughReplicasError, ErrorCode.NOT_ENOUGH_REPLICAS),
    (errors.InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (errors.InvalidRecordError, ErrorCode.INVALID_RECORD),
    (errors.RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (errors.ProducerFencedError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (errors.OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (errors.InvalidTransactionStateError, ErrorCode.INVALID_TXN_STATE),
    (errors.OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (errors.UnknownTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (errors.UnknownGroupError, ErrorCode.GROUP_ID_NOT_FOUND),
    (errors.GroupNotEmptyError, ErrorCode.NON_EMPTY_GROUP),
    (errors.InvalidNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (errors.InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (errors.PolicyViolationError, ErrorCode.POLICY_VIOLATION),
    (errors.ReadOnlyError, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (errors.CorruptionError, ErrorCode.CORRUPT_MESSAGE),
    # The client asks again, and learns then what has become of the records.
    (errors.SegmentDeletedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.NotLeaderError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.PartitionGoneError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.PartitionOfflineError, ErrorCode.KAFKA_STORAGE_ERROR),
    (OSError, ErrorCode.KAFKA_STORAGE_ERROR),
)
"""The first type that matches counts."""


def code_of(error: Exception) -> ErrorCode:
    """Return the code for an error; one that nobody expects is logged with its traceback."""
    if isinstance(error, RefusedError):
        return error.code
    found = next((code for kind, code in CODES if isinstance(error, kind)), None)
    if found is None:
        _LOGGER.error("a request failed", exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return found


def message_of(error: Exception) -> str:
    """Return what a client is told of an error."""
    known = isinstance(error, (errors.StorageError, OSError))
    return reason_of(error) if known else str(error)


REFUSALS = (errors.StorageError, OSError, RefusedError)
"""The errors that are answered. Any other one is a mistake here, and ends the connection."""


def answer_or_error(answer: Values, make: Callable[[], Values | None]) -> Values:
    """Return the answer to one part of a request: `answer` with what `make` returns, or with the error that it raises."""
    try:
        return {**answer, "errorCode": ErrorCode.NONE, "errorMessage": None, **(make() or {})}
    except REFUSALS as error:
        return {**answer, "errorCode": code_of(error), "errorMessage": message_of(error)}
