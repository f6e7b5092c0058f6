"""Produce: clients' records are checked and appended by the same rules as lines in files."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from topicfs.coordination.groups.requests import RequestError
from topicfs.coordination.transactions.transaction import ProducerRun
from topicfs.listener.broker import Broker, LocalPartition, Request, names_in
from topicfs.listener.errors import REFUSALS, RefusedError, code_of, message_of
from topicfs.listener.requests.transactions import Verified, refused_append, verified
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import CODEC_MASK
from topicfs.storage.codec.headers import BatchHeader, Codec
from topicfs.storage.engine import Topic
from topicfs.storage.errors import (
    InvalidRecordError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    TornBatchError,
    UnknownTopicError,
)
from topicfs.storage.model import Appended, ProducerId, TopicPartition
from topicfs.storage.producers.append import VerificationGuard
from topicfs.storage.producers.progress import own
from topicfs.storage.wire import Values

ALL, LEADER, NONE = -1, 1, 0
"""The values of acks."""
_ZSTD_SINCE = 7
_ABORTABLE_SINCE, _ADDS_SINCE = 11, 12
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE, and the first version in which an append
adds its partition to the transaction.
"""


class _Appends(NamedTuple):
    """The result of an append to one partition, or its error; `partition` is set while a flush is due."""

    answer: Values
    partition: LocalPartition | None = None


def produce(broker: Broker, request: Request) -> Values | None:
    """Append each partition's batches. With acks=all, answer once every in-sync replica has flushed them."""
    values = request.values
    acks = values["acks"]
    topics = []
    unsynced: list[_Appends] = []
    guards: Verified = {} if values["transactionalId"] is None else _guards(broker, request)
    for one in values["topicData"]:
        answers = []
        for data in one["partitionData"]:
            appended = _append(broker, request, one, data, guards)
            answers.append(appended.answer)
            if appended.partition is not None:
                unsynced.append(appended)
        topics.append({**names_in(one), "partitionResponses": answers})
    if acks == ALL and unsynced:
        with broker.rest():
            for appended in unsynced:
                _sync(appended)
    return None if acks == NONE else {"responses": topics}


def _append(broker: Broker, request: Request, one: Values, data: Values, guards: Verified) -> _Appends:
    index, acks = data["index"], request.values["acks"]
    partition: LocalPartition | None = None
    try:
        topic = broker.topic_of(one)
        batches = bytearray(data["records"] or b"")
        _check_request(topic, acks)
        first = _check_batch(batches, request.version)
        guard = _guard_of(guards, TopicPartition(topic.name, index)) if first.is_transactional else None
        partition = broker.partition(topic, index)
        if acks == ALL:
            partition.check_in_sync()
        appended = own(partition).append(batches, guard=guard)
    except InvalidRecordError as error:
        refused = _refused(index, _corrupt(batches, error))
    except RecordTooLargeError as error:
        too_many = len(batches) > topic.config.effective_segment_bytes
        refused = _refused(
            index, RefusedError(ErrorCode.RECORD_LIST_TOO_LARGE, str(error)) if too_many else error
        )
    except REFUSALS as error:
        refused = _refused(index, error)
    else:
        return _Appends(_answer(index, appended, batches), partition)
    if partition is not None and refused["errorCode"] not in _WITHOUT_START:
        refused["logStartOffset"] = partition.log_start_offset
    return _Appends(refused)


_WITHOUT_START = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Errors for which a broker leaves the log start offset out of its answer."""


def _check_request(topic: Topic, acks: int) -> None:
    if acks not in (ALL, LEADER, NONE):
        raise RefusedError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.internal:
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name}: clients may not write to an internal topic"
        )


def _check_batch(batches: bytearray, version: int) -> BatchHeader:
    """Check the rules for Produce requests, before the log checks the batch; return its header. Raises RefusedError."""
    scanned = scan(batches, max_batches=2)
    if not len(scanned) and (not scanned.problem or isinstance(scanned.problem, TornBatchError)):
        raise RefusedError(
            ErrorCode.INVALID_RECORD, "a partition gets exactly one whole record batch in a request"
        )
    if not len(scanned):
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, str(scanned.problem))
    first = scanned[0]
    if len(scanned) > 1:
        raise RefusedError(ErrorCode.INVALID_RECORD, "a partition gets exactly one record batch in a request")
    if version < _ZSTD_SINCE and first.attributes & CODEC_MASK == Codec.ZSTD:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce supports zstd from version {_ZSTD_SINCE} on"
        )
    return first


# Transactions.


def _guards(broker: Broker, request: Request) -> Verified:
    """Return the guard or the error of each partition to which the request appends in a transaction."""
    version, runs, sequences = request.version, set(), {}
    for one in request.values["topicData"]:
        for data in one["partitionData"]:
            scanned = scan(data["records"] or b"", max_batches=1)
            if not len(scanned) or not scanned[0].is_transactional:
                continue
            first = scanned[0]
            with suppress(RefusedError, UnknownTopicError):  # The append fails with the same error.
                place = TopicPartition(broker.topic_of(one).name, data["index"])
                runs.add(ProducerRun(ProducerId(first.producer_id), first.producer_epoch))
                sequences[place] = first.base_sequence
    if not runs:
        return {}
    if len(runs) > 1:
        several = RefusedError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a request has transactions of several producers"
        )
        return dict.fromkeys(sequences, several)
    adds, (run,) = version >= _ADDS_SINCE, runs
    with broker.rest():
        found = verified(broker, request.values["transactionalId"], run, sequences, adds=adds)
    return {
        place: refused_append(one, adds=adds, knows_abortable=version >= _ABORTABLE_SINCE)
        if isinstance(one, RequestError)
        else one
        for place, one in found.items()
    }


def _guard_of(guards: Verified, place: TopicPartition) -> VerificationGuard:
    """Return the guard for a partition, or raise its error."""
    found = guards.get(place)
    if found is None:
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction needs a transactional id"
        )
    if isinstance(found, Exception):
        raise found
    return found


# Answers.


def _corrupt(batches: bytearray, error: InvalidRecordError) -> Exception:
    """Return the error for batches that the log refused. Invalid batches count as damaged in transit."""
    scanned = scan(batches, check_crc=True)
    if scanned.problem is None and len(scanned):
        return error
    return RefusedError(ErrorCode.CORRUPT_MESSAGE, str(error))


def _answer(index: int, appended: Appended, batches: bytearray) -> Values:
    time = appended.append_time
    if appended.duplicate:
        time = scan(batches, max_batches=1)[0].max_timestamp
    return {
        "index": index,
        "errorCode": 0,
        "baseOffset": appended.base_offset,
        "logAppendTimeMs": time,
        "logStartOffset": appended.log_start_offset,
        "recordErrors": [],
        "errorMessage": None,
    }


def _refused(index: int, error: Exception) -> Values:
    message = message_of(error)
    records = error.records if isinstance(error, InvalidRecordError) else ()
    return {
        "index": index,
        "errorCode": code_of(error),
        "baseOffset": -1,
        "logAppendTimeMs": -1,
        "logStartOffset": -1,
        "recordErrors": [{"batchIndex": one, "batchIndexErrorMessage": message} for one in records],
        "errorMessage": message,
    }


def _sync(appended: _Appends) -> None:
    """Flush a partition. If the flush fails, its error becomes the partition's answer."""
    assert appended.partition is not None
    try:
        appended.partition.sync()
    except NotEnoughReplicasError as error:
        appended.answer.update(
            _refused(appended.answer["index"], NotEnoughReplicasAfterAppendError(str(error)))
        )
    except REFUSALS as error:
        appended.answer.update(_refused(appended.answer["index"], error))
