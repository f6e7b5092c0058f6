"""The state of a transactional id, and the rules by which requests change it (kafka-coordinators.md#transactions).

Each function takes the state of the newest record, and returns the next state, which takes effect once its record is
in the log. A refused request raises RequestError with Kafka's error code. Nothing here reads a clock or writes a
file. Source: Kafka's TransactionMetadata and TransactionCoordinator.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──┐
      │        ▲    └───► PrepareAbort ───► CompleteAbort ───┤
      └────────┴───────────────◄────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import IntEnum
from typing import NamedTuple

from topicfs.coordination.groups.requests import Code, RequestError
from topicfs.storage.model import NO_PRODUCER_ID, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers.entry import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH

NEVER_STARTED = Timestamp(-1)
EXHAUSTED_EPOCH = MAX_PRODUCER_EPOCH - 1
"""From this epoch on, a producer gets a new id. The largest epoch is left for the end of its last transaction."""
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that another system ends (two-phase commit)."""
BUMPS_EPOCH = 2
"""From this transaction version on, the end of a transaction begins a new producer epoch, and an append adds its
partition to the transaction.
"""


class Status(IntEnum):
    """The states that a record can have, with Kafka's numbers (`transaction_records.STATUSES`)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PREPARED = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
"""The states in which the end of the transaction is decided, but some partitions lack the marker."""


class ProducerRun(NamedTuple):
    """A producer's id and epoch."""

    producer_id: ProducerId
    epoch: int


class Transaction(NamedTuple):
    """The state of a transactional id. Immutable."""

    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated: Timestamp = NEVER_STARTED
    started: Timestamp = NEVER_STARTED
    """Start of the open transaction; if none is open, start of the last transaction."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last change; a client that lost an answer repeats its request with this id."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id after the transaction, if the present id has no epoch left."""
    version: int = 0
    """The transaction version of the client."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The producer epoch before its last change. Records do not contain this field."""

    @property
    def run(self) -> ProducerRun:
        return ProducerRun(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= EXHAUSTED_EPOCH


NewId = Callable[[], ProducerId]


# Producers.


def initialized(
    known: Transaction | None, expected: ProducerRun | None, timeout_ms: int, now: Timestamp, new_id: NewId
) -> Transaction:
    """Return the state in which a producer begins. `expected`: the id and epoch that a running producer has.

    If the previous producer has an open transaction, return the state that aborts this transaction. The client must
    repeat the request after the abort.
    """
    if known is None:
        known = Transaction(new_id(), NO_PRODUCER_EPOCH, timeout_ms, updated=now)
    elif expected is not None and not _may_initialize(known, expected):
        raise RequestError(Code.PRODUCER_FENCED)
    if known.status in PREPARED:
        raise RequestError(Code.CONCURRENT_TRANSACTIONS)
    if known.status is Status.ONGOING:
        return aborted_by_coordinator(known, now, new_id)
    begun = known._replace(
        status=Status.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started=NEVER_STARTED,
        updated=now,
        previous_producer_id=known.producer_id,
    )
    if known.is_exhausted and (expected is None or expected.epoch == known.epoch):
        last = NO_PRODUCER_EPOCH if expected is None else known.epoch
        return begun._replace(producer_id=new_id(), epoch=0, last_epoch=last)
    if known.is_exhausted:
        raise RequestError(Code.UNKNOWN_SERVER_ERROR)  # As in a broker: the present id has no epoch left.
    if expected is None:
        return begun._replace(epoch=known.epoch + 1, last_epoch=NO_PRODUCER_EPOCH)
    if known.epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return begun._replace(epoch=known.epoch + 1, last_epoch=known.epoch)
    if expected.epoch == known.last_epoch:
        return begun  # The client repeats a request whose answer it did not get.
    raise RequestError(Code.PRODUCER_FENCED)


def _may_initialize(known: Transaction, expected: ProducerRun) -> bool:
    """Return whether the producer has the present id, or had the previous id until its epochs were used up."""
    return expected.producer_id == known.producer_id or (
        expected.producer_id == known.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH
    )


# Partitions.


def with_partitions(
    known: Transaction | None,
    run: ProducerRun,
    partitions: Collection[TopicPartition],
    now: Timestamp,
    version: int,
) -> Transaction | None:
    """Return the state with `partitions` added; None if the open transaction already has them.

    If no transaction is open, a new transaction begins.
    """
    known = _open_to(known, run)
    if known.status is Status.ONGOING and known.partitions.issuperset(partitions):
        return None
    return known._replace(
        status=Status.ONGOING,
        partitions=known.partitions.union(partitions),
        started=known.started if known.status is Status.ONGOING else now,
        updated=now,
        previous_producer_id=known.producer_id,
        version=version,
    )


def check_partitions(
    known: Transaction | None, run: ProducerRun, partitions: Collection[TopicPartition]
) -> None:
    """Check that partitions belong to the producer's transaction."""
    if not _open_to(known, run).partitions.issuperset(partitions):
        raise RequestError(Code.TRANSACTION_ABORTABLE)


def _open_to(known: Transaction | None, run: ProducerRun) -> Transaction:
    """Return `known` if it is the producer's state. Raises RequestError if not, or while the transaction ends."""
    if known is None or known.producer_id != run.producer_id:
        raise RequestError(Code.INVALID_PRODUCER_ID_MAPPING)
    if known.epoch != run.epoch:
        raise RequestError(Code.PRODUCER_FENCED)
    if known.status in PREPARED:
        raise RequestError(Code.CONCURRENT_TRANSACTIONS)
    return known


# The end.


class End(NamedTuple):
    """A client's request to end its transaction."""

    run: ProducerRun
    commit: bool
    version: int
    """The version of `transaction.version` that the client uses; the version of its request shows it."""


def ended(known: Transaction | None, request: End, now: Timestamp, new_id: NewId) -> Transaction | None:
    """Return the prepared state; None if the request repeats a request that was carried out."""
    if known is None:
        raise RequestError(Code.INVALID_PRODUCER_ID_MAPPING)
    if request.version < BUMPS_EPOCH:
        return _ended_in_epoch(known, request, now)
    return _ended_with_epoch(known, request, now, new_id)


def _ended_in_epoch(known: Transaction, request: End, now: Timestamp) -> Transaction | None:
    """End a transaction of an older client: the producer keeps its epoch."""
    if known.producer_id != request.run.producer_id:
        raise RequestError(Code.INVALID_PRODUCER_ID_MAPPING)
    if known.epoch != request.run.epoch:
        raise RequestError(Code.PRODUCER_FENCED)
    if known.status is Status.ONGOING:
        return _prepared(known, now, commit=request.commit)._replace(version=0)
    _check_repeated(known, commit=request.commit)
    return None


def _ended_with_epoch(known: Transaction, request: End, now: Timestamp, new_id: NewId) -> Transaction | None:
    """End a transaction of a newer client, and begin the producer's next epoch."""
    run = request.run
    had_old_id = run == ProducerRun(known.previous_producer_id, EXHAUSTED_EPOCH) and known.epoch == 0
    if known.producer_id != run.producer_id and not had_old_id:
        raise RequestError(Code.INVALID_PRODUCER_ID_MAPPING)
    was_ended = known.status not in (Status.EMPTY, Status.ONGOING)
    if was_ended and (had_old_id or known.epoch == run.epoch + 1):
        _check_repeated(known, commit=request.commit)
        return None
    if known.status in PREPARED or known.epoch != run.epoch:
        raise RequestError(Code.PRODUCER_FENCED)
    if known.status is not Status.ONGOING and request.commit:
        raise RequestError(Code.INVALID_TXN_STATE)
    return _prepared_with_epoch(known, now, new_id, commit=request.commit)


def aborted_by_coordinator(known: Transaction, now: Timestamp, new_id: NewId) -> Transaction:
    """Return the state that fences a producer and aborts its transaction: after a timeout, or for a new producer."""
    return _prepared_with_epoch(known, now, new_id, commit=False)


def _prepared_with_epoch(known: Transaction, now: Timestamp, new_id: NewId, *, commit: bool) -> Transaction:
    next_id = new_id() if known.is_exhausted else NO_PRODUCER_ID
    began = known.started if known.status is Status.ONGOING else now
    return _prepared(known, now, commit=commit)._replace(
        epoch=min(known.epoch + 1, MAX_PRODUCER_EPOCH),
        last_epoch=known.epoch,
        next_producer_id=next_id,
        started=began,
        version=BUMPS_EPOCH,
    )


def _prepared(known: Transaction, now: Timestamp, *, commit: bool) -> Transaction:
    return known._replace(
        status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
        updated=now,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _check_repeated(known: Transaction, *, commit: bool) -> None:
    """Check that a repeated request asks for the end that was already carried out. Raises RequestError."""
    prepared, complete = (
        (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)
        if commit
        else (Status.PREPARE_ABORT, Status.COMPLETE_ABORT)
    )
    if known.status is prepared:
        raise RequestError(Code.CONCURRENT_TRANSACTIONS)
    if known.status is not complete:
        raise RequestError(Code.INVALID_TXN_STATE)


def completed(known: Transaction, now: Timestamp) -> Transaction:
    """Return the state that follows the prepared state, once all partitions have the marker."""
    run = known.run
    if known.version >= BUMPS_EPOCH and known.next_producer_id != NO_PRODUCER_ID:
        run = ProducerRun(known.next_producer_id, 0)
    return known._replace(
        producer_id=run.producer_id,
        epoch=run.epoch,
        status=Status.COMPLETE_COMMIT if known.status is Status.PREPARE_COMMIT else Status.COMPLETE_ABORT,
        partitions=frozenset(),
        updated=now,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


# Time.


def has_timed_out(known: Transaction, now: Timestamp) -> bool:
    """Return whether the coordinator has to abort the open transaction."""
    return (
        known.status is Status.ONGOING
        and known.timeout_ms != NO_TIMEOUT_MS
        and known.started + known.timeout_ms < now
    )


def has_expired(known: Transaction, now: Timestamp, expiration_ms: int) -> bool:
    """Return whether the transactional id may be forgotten: it has no transaction, and was not used for long."""
    is_at_rest = known.status is not Status.ONGOING and known.status not in PREPARED
    return is_at_rest and known.updated <= now - expiration_ms
