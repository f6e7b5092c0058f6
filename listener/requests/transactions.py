"""Requests about transactions: producers' ids, partitions and positions of a transaction, its end, descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from topicfs.coordination.groups.requests import Code, OffsetCommitRequest, RequestError
from topicfs.coordination.membership import Position
from topicfs.coordination.records.group_records import fits_key
from topicfs.coordination.records.transaction_records import STATUSES
from topicfs.coordination.transactions.transaction import NEVER_STARTED, End, ProducerRun
from topicfs.listener.broker import Broker, Request
from topicfs.listener.errors import REFUSALS, RefusedError, answer_or_error, code_of
from topicfs.listener.requests.groups import groups_of, with_codes
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.disk.names import is_internal
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import ReadOnlyError, UnknownTopicError
from topicfs.storage.model import NO_LEADER_EPOCH, ProducerId, TopicPartition
from topicfs.storage.producers.append import UNVERIFIED, VerificationGuard
from topicfs.storage.producers.entry import ProducerEntry, next_run
from topicfs.storage.producers.progress import own
from topicfs.storage.wire import Values

OLDER, NEWER = 0, 2
"""The transaction versions of clients. Newer clients get a new epoch with each transaction."""
INIT_KNOWS_FENCED, KNOWS_FENCED = 4, 2
"""Since version 4 of InitProducerId, and since version 2 of the other requests, clients know PRODUCER_FENCED. Older
clients get INVALID_PRODUCER_EPOCH instead.
"""
END_SINCE_NEWER, COMMIT_SINCE_NEWER = 5, 5
"""The first versions of EndTxn and TxnOffsetCommit that only newer clients use."""
COMMIT_SINCE_ABORTABLE = 4
COMMIT_SINCE_LOADING = 2
"""Before this version, TxnOffsetCommit answers COORDINATOR_NOT_AVAILABLE while its coordinator is loading."""
ADD_SINCE_SEVERAL = 4
"""From this version on, AddPartitionsToTxn can name several transactions."""


def _code(ask: Callable[[], object], *, knows_fenced: bool = True) -> int:
    """Return the code of the error that `ask` raises, in the form that the client knows; NONE if it raises none."""
    try:
        ask()
    except RequestError as error:
        is_old = error.code is Code.PRODUCER_FENCED and not knows_fenced
        return Code.INVALID_PRODUCER_EPOCH if is_old else error.code
    except ReadOnlyError:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    except REFUSALS as error:
        return code_of(error)
    return ErrorCode.NONE


def _run(values: Values) -> ProducerRun:
    return ProducerRun(ProducerId(values["producerId"]), values["producerEpoch"])


# Producers.


def init_producer_id(broker: Broker, request: Request) -> Values:
    """Answer InitProducerId; a producer without a transactional id gets a new id, as from a broker.

    IDs are random numbers from a range that a broker's IDs never reach, so nothing has to be stored on disk.
    """
    values = request.values
    name: str | None = values["transactionalId"]
    known = ProducerRun(ProducerId(values.get("producerId", -1)), values.get("producerEpoch", -1))
    found = ProducerRun(ProducerId(-1), -1)

    def init() -> None:
        nonlocal found
        if (known.producer_id == -1) != (known.epoch == -1):
            raise RequestError(Code.INVALID_REQUEST)
        if name is None:
            found = ProducerRun(*next_run(None))
            return
        expected = None if known.epoch == -1 else known
        with broker.rest():
            found = broker.transactions().init_producer_id(name, values["transactionTimeoutMs"], expected)

    code = _code(init, knows_fenced=request.version >= INIT_KNOWS_FENCED)
    return {
        "errorCode": code,
        "producerId": found.producer_id,
        "producerEpoch": found.epoch,
    }


# Partitions.


def add_partitions_to_txn(broker: Broker, request: Request) -> Values:
    """Answer AddPartitionsToTxn: all partitions are added, or none."""
    values, version = request.values, request.version
    if version >= ADD_SINCE_SEVERAL:
        results = [
            {"transactionalId": one["transactionalId"], "topicResults": _added(broker, one, version)}
            for one in values["transactions"]
        ]
        return {"errorCode": ErrorCode.NONE, "resultsByTransaction": results}
    one = {
        "transactionalId": values["v3AndBelowTransactionalId"],
        "producerId": values["v3AndBelowProducerId"],
        "producerEpoch": values["v3AndBelowProducerEpoch"],
        "topics": values["v3AndBelowTopics"],
    }
    return {"resultsByTopicV3AndBelow": _added(broker, one, version)}


def _added(broker: Broker, one: Values, version: int) -> list[Values]:
    places = [
        TopicPartition(topic["name"], number) for topic in one["topics"] for number in topic["partitions"]
    ]

    def refusal(place: TopicPartition) -> ErrorCode:
        if version < ADD_SINCE_SEVERAL and is_internal(place.topic):
            return (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )  # AddOffsetsToTxn adds partitions of Kafka's own topics.
        return ErrorCode.NONE if broker.has(place) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    codes: dict[TopicPartition, int] = {place: refusal(place) for place in places}
    if any(codes.values()):
        codes = {place: code or ErrorCode.OPERATION_NOT_ATTEMPTED for place, code in codes.items()}
    else:
        name, run = one["transactionalId"], _run(one)
        client = NEWER if version >= ADD_SINCE_SEVERAL else OLDER
        ask = partial(broker.transactions().add_partitions, name, run, places, client)
        if one.get("verifyOnly", False):
            ask = partial(broker.transactions().check_partitions, name, run, places)
        with broker.rest():
            code = _code(ask, knows_fenced=version >= KNOWS_FENCED)
        codes = dict.fromkeys(places, code)
    results: dict[str, list[Values]] = {}
    for place, code in codes.items():
        result = {"partitionIndex": place.partition, "partitionErrorCode": code}
        results.setdefault(place.topic, []).append(result)
    return [{"name": name, "resultsByPartition": found} for name, found in results.items()]


def add_offsets_to_txn(broker: Broker, request: Request) -> Values:
    """Answer AddOffsetsToTxn: the group's partition of `__consumer_offsets` is added to the transaction."""
    values = request.values

    def add() -> None:
        partition = groups_of(broker).coordinator_partition(values["groupId"])
        place = TopicPartition(partition.topic, partition.number)
        broker.transactions().add_partitions(values["transactionalId"], _run(values), [place], OLDER)

    with broker.rest():
        code = _code(add, knows_fenced=request.version >= KNOWS_FENCED)
    return {"errorCode": code}


Verified: TypeAlias = Mapping[TopicPartition, VerificationGuard | Exception]


def verified(
    broker: Broker, name: str, run: ProducerRun, sequences: Mapping[TopicPartition, int], *, adds: bool
) -> Verified:
    """Verify a producer's batches: return a guard or an error for each partition.

    The log appends a batch only together with the guard of its partition. `sequences` has the first sequence number
    of each batch. If `adds`, as newer clients expect, partitions without an open transaction are added to the
    producer's transaction. Otherwise the coordinator must know these partitions already.
    """
    found: dict[TopicPartition, VerificationGuard | Exception] = {}
    asked: dict[TopicPartition, VerificationGuard] = {}
    for place, sequence in sequences.items():
        try:
            guard = own(broker.engine.partition(*place)).begin_verification(
                run.producer_id, epoch=run.epoch, sequence=sequence, bumps_epoch=adds
            )
        except REFUSALS as error:
            found[place] = error
        else:
            found[place] = guard or UNVERIFIED
            if guard is not None:
                asked[place] = guard
    if asked:
        try:
            if adds:
                broker.transactions().add_partitions(name, run, asked, NEWER)
            else:
                broker.transactions().check_partitions(name, run, asked)
        except RequestError as error:
            return {**found, **dict.fromkeys(asked, error)}
    return found


# Positions.


def txn_offset_commit(broker: Broker, request: Request) -> Values:
    """Answer TxnOffsetCommit: positions that take effect when the transaction is committed."""
    values, version = request.values, request.version
    asked = {
        TopicPartition(topic["name"], one["partitionIndex"]): one
        for topic in values["topics"]
        for one in topic["partitions"]
    }
    known = {place: one for place, one in asked.items() if broker.has(place)}
    codes: Code | Mapping[TopicPartition, Code] = {}

    def commit() -> None:
        nonlocal codes
        positions = {
            place: Position(
                one["committedOffset"],
                one["committedMetadata"] or "",
                one.get("committedLeaderEpoch", NO_LEADER_EPOCH),
            )
            for place, one in known.items()
        }
        codes = _committed(broker, request, positions)

    code: int = ErrorCode.NONE
    if known:
        with broker.rest():
            code = _code(commit)
    if code == Code.COORDINATOR_LOAD_IN_PROGRESS and version < COMMIT_SINCE_LOADING:
        code = Code.COORDINATOR_NOT_AVAILABLE

    def code_at(name: str | None, number: int) -> int:
        place = TopicPartition(name or "", number)
        if place not in known:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return code or (codes if isinstance(codes, Code) else codes.get(place, Code.NONE))

    return {"topics": with_codes([(topic["name"], topic) for topic in values["topics"]], code_at)}


def _committed(
    broker: Broker, request: Request, positions: Mapping[TopicPartition, Position]
) -> Code | Mapping[TopicPartition, Code]:
    values, version = request.values, request.version
    group, run = values["groupId"], _run(values)
    if not group or not fits_key(group):
        raise RequestError(Code.INVALID_GROUP_ID)
    partition = groups_of(broker).coordinator_partition(group)
    place = TopicPartition(partition.topic, partition.number)
    adds = version >= COMMIT_SINCE_NEWER
    guard = verified(broker, values["transactionalId"], run, {place: -1}, adds=adds)[place]
    if isinstance(guard, RequestError):
        guard = RequestError(code_for_append(guard.code, knows_abortable=version >= COMMIT_SINCE_ABORTABLE))
    if isinstance(guard, Exception):
        raise guard
    asked = OffsetCommitRequest(
        group=group,
        positions=positions,
        member_id=values.get("memberId", ""),
        instance_id=values.get("groupInstanceId"),
        generation=values.get("generationId", -1),
        version=0,  # An unknown group is answered with ILLEGAL_GENERATION in every version.
    )
    return groups_of(broker).commit_in_transaction(asked, *run, guard)


def code_for_append(code: Code, *, knows_abortable: bool) -> Code:
    """Return the code for an append that is refused because the coordinator refused its verification with `code`."""
    if code is Code.PRODUCER_FENCED:
        return Code.INVALID_PRODUCER_EPOCH
    if code is Code.TRANSACTION_ABORTABLE and not knows_abortable:
        return Code.INVALID_TXN_STATE
    return code


# Ends.


def end_txn(broker: Broker, request: Request) -> Values:
    """Answer EndTxn once the decision is on disk. Newer clients continue with the id and epoch in the answer."""
    values, version = request.values, request.version
    after = ProducerRun(ProducerId(-1), -1)
    asked = End(_run(values), values["committed"], NEWER if version >= END_SINCE_NEWER else OLDER)

    def end() -> None:
        nonlocal after
        after = broker.transactions().end(values["transactionalId"], asked)

    with broker.rest():
        code = _code(end, knows_fenced=version >= KNOWS_FENCED)
    return {
        "errorCode": code,
        "producerId": after.producer_id,
        "producerEpoch": after.epoch,
    }


def write_txn_markers(broker: Broker, request: Request) -> Values:
    """Answer WriteTxnMarkers, with which an administrator ends a hanging transaction in a partition."""

    def written(one: Values, place: TopicPartition) -> int:
        if not broker.has(place):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        kind = ControlType.COMMIT if one["transactionResult"] else ControlType.ABORT
        marker = EndTransactionMarker(kind, one["coordinatorEpoch"])
        return _code(partial(broker.transactions().write_marker, place, _run(one), marker))

    with broker.rest():
        markers = [
            {
                "producerId": one["producerId"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {
                                "partitionIndex": number,
                                "errorCode": written(one, TopicPartition(topic["name"], number)),
                            }
                            for number in topic["partitionIndexes"]
                        ],
                    }
                    for topic in one["topics"]
                ],
            }
            for one in request.values["markers"]
        ]
    return {"markers": markers}


# Descriptions.


def list_transactions(broker: Broker, request: Request) -> Values:
    """Answer ListTransactions."""
    values = request.values
    states, ids = set(values["stateFilters"]), set(values["producerIdFilters"])
    duration, now = values.get("durationFilter", -1), system_clock()
    unknown = [state for state in values["stateFilters"] if state not in STATUSES]
    try:
        listed = broker.transactions().listed()
    except RequestError as error:
        return {
            "errorCode": error.code,
            "unknownStateFilters": [],
            "transactionStates": [],
        }
    found = [
        {
            "transactionalId": name,
            "producerId": one.producer_id,
            "transactionState": STATUSES[one.status],
        }
        for name, one in listed.items()
        if (not ids or one.producer_id in ids)
        and (not states or STATUSES[one.status] in states)
        and (duration < 0 or now - one.started > duration)
    ]
    return {
        "errorCode": ErrorCode.NONE,
        "unknownStateFilters": unknown,
        "transactionStates": found,
    }


def describe_transactions(broker: Broker, request: Request) -> Values:
    """Answer DescribeTransactions."""
    return {"transactionStates": [_described(broker, name) for name in request.values["transactionalIds"]]}


def _described(broker: Broker, name: str) -> Values:
    try:
        with broker.rest():
            one = broker.transactions().describe(name)
    except RequestError as error:
        return {"errorCode": error.code, "transactionalId": name}
    topics: dict[str, list[int]] = {}
    for place in sorted(one.partitions):
        topics.setdefault(place.topic, []).append(place.partition)
    return {
        "errorCode": ErrorCode.NONE,
        "transactionalId": name,
        "transactionState": STATUSES[one.status],
        "transactionTimeoutMs": one.timeout_ms,
        "transactionStartTimeMs": one.started,
        "producerId": one.producer_id,
        "producerEpoch": one.epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }


def describe_producers(broker: Broker, request: Request) -> Values:
    """Answer DescribeProducers: the producers that each partition remembers."""

    def producers(name: str, number: int) -> Values:
        if not broker.has(TopicPartition(name, number)):
            raise UnknownTopicError(f"{name}-{number}: no such partition")
        return {
            "activeProducers": list(map(_producer, own(broker.engine.partition(name, number)).producers()))
        }

    return {
        "topics": [
            {
                "name": one["name"],
                "partitions": [
                    answer_or_error({"partitionIndex": number}, partial(producers, one["name"], number))
                    for number in one["partitionIndexes"]
                ],
            }
            for one in request.values["topics"]
        ],
    }


def _producer(entry: ProducerEntry) -> Values:
    first = entry.transaction_first_offset
    return {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "lastSequence": entry.last_sequence,
        "lastTimestamp": entry.last_timestamp,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnStartOffset": NEVER_STARTED if first is None else first,
    }


def refused_append(error: RequestError, *, adds: bool, knows_abortable: bool) -> RefusedError:
    """Return the answer to Produce if the coordinator refused to verify the append.

    Errors that require a retry become NOT_ENOUGH_REPLICAS, because every client retries after this error.
    """
    code = code_for_append(error.code, knows_abortable=knows_abortable)
    again = {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}
    if code in again or (code is Code.CONCURRENT_TRANSACTIONS and not adds):
        return RefusedError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{code.name}",
        )
    return RefusedError(ErrorCode(code))
