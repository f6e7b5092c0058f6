"""The table that maps the engine's errors to Kafka's error codes, and the listener's own errors."""

from __future__ import annotations

import logging
from collections.abc import Callable

from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage import errors
from topicfs.storage.messages import reason_of
from topicfs.storage.wire import Values

_LOGGER = logging.getLogger("topicfs")


class ListenerError(errors.StorageError):
    """The listener cannot bind an address, or is not allowed to."""


class BadRequestError(Exception):
    """The client sent malformed bytes, or an unsupported request. The connection is closed, as by a broker."""


class RefusedError(Exception):
    """A request, or a part of a request, is answered with an error code."""

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
    (errors.GroupError, ErrorCode.NOT_COORDINATOR),
    (errors.InvalidNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (errors.InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (errors.PolicyViolationError, ErrorCode.POLICY_VIOLATION),
    (errors.ReadOnlyError, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (errors.CorruptionError, ErrorCode.CORRUPT_MESSAGE),
    # The client sends the request again. The second answer shows whether the requested records still exist.
    (errors.SegmentDeletedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.NotLeaderError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.PartitionGoneError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.PartitionOfflineError, ErrorCode.KAFKA_STORAGE_ERROR),
    (OSError, ErrorCode.KAFKA_STORAGE_ERROR),
)
"""The error codes by type of exception; the first type that matches counts."""


def code_of(error: Exception) -> ErrorCode:
    """Return the error code for `error`. An unexpected error is also logged with its traceback."""
    if isinstance(error, RefusedError):
        return error.code
    found = next((code for kind, code in CODES if isinstance(error, kind)), None)
    if found is None:
        _LOGGER.error("a request failed with an unexpected error", exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return found


def message_of(error: Exception) -> str:
    """Return the message about `error` that is sent to the client."""
    known = isinstance(error, (errors.StorageError, OSError))
    return reason_of(error) if known else str(error)


REFUSALS = (errors.StorageError, OSError, RefusedError)
"""Errors that are answered with an error code. Any other error is a bug, and ends the connection."""


def answer_or_error(answer: Values, make: Callable[[], Values | None]) -> Values:
    """Return `answer` with the fields that `make` returns, or with the code of the error that it raises."""
    try:
        return {**answer, "errorCode": ErrorCode.NONE, "errorMessage": None, **(make() or {})}
    except REFUSALS as error:
        return {**answer, "errorCode": code_of(error), "errorMessage": message_of(error)}
