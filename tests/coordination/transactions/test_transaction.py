"""Tests of the pure functions that implement the rules of transactional ids.

Some cases are those of Kafka's TransactionCoordinatorTest and TransactionMetadataTest.
"""

from __future__ import annotations

from itertools import count

import pytest

from tests.doubles.refusals import refusal
from topicfs.coordination.groups.requests import Code, RequestError
from topicfs.coordination.transactions.transaction import (
    EXHAUSTED_EPOCH,
    NO_TIMEOUT_MS,
    End,
    ProducerRun,
    Status,
    Transaction,
    aborted_by_coordinator,
    check_partitions,
    completed,
    ended,
    has_expired,
    has_timed_out,
    initialized,
    with_partitions,
)
from topicfs.storage.model import ProducerId, Timestamp, TopicPartition

ID, NEXT_ID = ProducerId(1000), ProducerId(2000)
NOW = Timestamp(1_700_000_000_000)
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = 0, 2
"""The transaction version of older clients, and the version of clients that bump the epoch with each transaction."""


def new_ids(*ids: ProducerId):
    remaining = iter(ids or map(ProducerId, count(NEXT_ID)))
    return lambda: next(remaining)


def at(status: Status, epoch: int = 5, **how) -> Transaction:
    """Return a state with `status`. If a transaction is open in this status, the transaction has one partition."""
    is_open = status in (Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
    state = Transaction(ID, epoch, 60_000, status, frozenset({ONE} if is_open else ()), NOW, NOW, ID)
    return state._replace(**how)


def end(state: Transaction | None, epoch: int, *, commit: bool, version: int = NEW, producer_id=ID):
    request = End(ProducerRun(producer_id, epoch), commit=commit, version=version)
    return ended(state, request, NOW, new_ids())


def begin(state: Transaction | None, expected: tuple[ProducerId, int] | None = None) -> Transaction:
    run = None if expected is None else ProducerRun(*expected)
    return initialized(state, run, 30_000, NOW, new_ids(NEXT_ID))


def test_a_new_transactional_id_begins_with_epoch_0() -> None:
    """An unknown id gets a producer id, epoch 0 and the requested timeout."""
    assert Transaction(NEXT_ID, 0, 30_000, updated=NOW, previous_producer_id=NEXT_ID) == begin(None)
    assert NEXT_ID == begin(None, (ID, 3)).producer_id


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
def test_a_later_producer_gets_the_next_epoch(status: Status) -> None:
    """If no transaction is open, a new producer gets the next epoch of the same id, and an empty transaction."""
    begun = begin(at(status))
    assert (ID, 6, Status.EMPTY, -1) == (begun.producer_id, begun.epoch, begun.status, begun.started)


def test_a_producer_that_knows_its_epoch_may_repeat_the_request() -> None:
    """A producer that names its epoch gets the next epoch, and may repeat this request.

    A request that names any other epoch is fenced.
    """
    first = begin(at(Status.EMPTY), (ID, 5))
    assert (6, 5) == (first.epoch, first.last_epoch)
    assert first.run == begin(first, (ID, 5)).run
    assert Code.PRODUCER_FENCED == refusal(begin, first, (ID, 4))
    assert Code.PRODUCER_FENCED == refusal(begin, first, (NEXT_ID, 6))


@pytest.mark.parametrize("epoch", [EXHAUSTED_EPOCH, 32767])
def test_a_new_id_follows_the_last_epoch(epoch: int) -> None:
    """A producer whose epoch is 32766 or higher gets a new id with epoch 0.

    The producer may repeat the request under its old id.
    """
    begun = begin(at(Status.EMPTY, epoch), (ID, epoch))
    assert (NEXT_ID, 0, epoch, ID) == (*begun.run, begun.last_epoch, begun.previous_producer_id)
    again = begin(begun, (ID, epoch))
    assert begun.run == again.run
    assert (NEXT_ID, 0) == begin(at(Status.EMPTY, epoch)).run
    assert Code.UNKNOWN_SERVER_ERROR == refusal(begin, at(Status.EMPTY, epoch), (ID, 7))


def test_an_open_transaction_is_aborted_first() -> None:
    """A successor fences the producer of an open transaction; while the transaction ends, the successor must wait."""
    fenced = begin(at(Status.ONGOING))
    assert (ID, 6, Status.PREPARE_ABORT) == (*fenced.run, fenced.status)
    for status in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT):
        assert Code.CONCURRENT_TRANSACTIONS == refusal(begin, at(status))


def test_partitions_begin_a_transaction() -> None:
    """The first partition begins the transaction. Partitions that the transaction already has are not written again."""
    run = ProducerRun(ID, 5)
    first = with_partitions(at(Status.COMPLETE_ABORT), run, [ONE], Timestamp(NOW + 5), NEW)
    assert first is not None
    assert (Status.ONGOING, NOW + 5, NOW + 5, NEW) == (
        first.status,
        first.started,
        first.updated,
        first.version,
    )
    assert with_partitions(first, run, [ONE], NOW, NEW) is None
    second = with_partitions(first, run, [ONE, TWO], Timestamp(NOW + 9), NEW)
    assert second is not None
    assert ({ONE, TWO}, NOW + 5, NOW + 9) == (second.partitions, second.started, second.updated)
    check_partitions(second, run, [TWO])
    assert Code.TRANSACTION_ABORTABLE == refusal(check_partitions, first, run, [ONE, TWO])


@pytest.mark.parametrize("ask", [check_partitions, lambda *args: with_partitions(*args, NOW, NEW)])
def test_partitions_that_are_refused(ask) -> None:
    """The producer id is checked first, then the epoch, and then the state of the transaction."""
    assert Code.INVALID_PRODUCER_ID_MAPPING == refusal(ask, None, ProducerRun(ID, 5), [ONE])
    state = at(Status.PREPARE_COMMIT)
    assert Code.INVALID_PRODUCER_ID_MAPPING == refusal(ask, state, ProducerRun(NEXT_ID, 5), [ONE])
    for epoch in (4, 6):
        assert Code.PRODUCER_FENCED == refusal(ask, state, ProducerRun(ID, epoch), [ONE])
    assert Code.CONCURRENT_TRANSACTIONS == refusal(ask, state, ProducerRun(ID, 5), [ONE])


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction(commit: bool, version: int) -> None:
    """The prepared state has the transaction's partitions, and the completed state has none.

    The producer of a newer client gets the next epoch.
    """
    prepared = end(at(Status.ONGOING), 5, commit=commit, version=version)
    assert prepared is not None
    wanted = Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT
    assert (wanted, {ONE}, 6 if version == NEW else 5) == (
        prepared.status,
        prepared.partitions,
        prepared.epoch,
    )
    done = completed(prepared, Timestamp(NOW + 1))
    wanted = Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT
    assert (wanted, frozenset(), prepared.run) == (done.status, done.partitions, done.run)
    assert end(done, 5, commit=commit, version=version) is None


def code_of_end(status: Status, epoch: int, *, commit: bool, version: int) -> str:
    try:
        return "same" if end(at(status), epoch, commit=commit, version=version) is None else "bump"
    except RequestError as error:
        return error.code.name


@pytest.mark.parametrize(
    ("status", "retried_abort", "current_abort", "retried_commit", "current_commit"),
    [
        (Status.EMPTY, "PRODUCER_FENCED", "bump", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
        (Status.COMPLETE_ABORT, "same", "bump", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        (Status.COMPLETE_COMMIT, "INVALID_TXN_STATE", "bump", "same", "INVALID_TXN_STATE"),
        (Status.ONGOING, "PRODUCER_FENCED", "bump", "PRODUCER_FENCED", "bump"),
        (
            Status.PREPARE_COMMIT,
            "INVALID_TXN_STATE",
            "PRODUCER_FENCED",
            "CONCURRENT_TRANSACTIONS",
            "PRODUCER_FENCED",
        ),
        (
            Status.PREPARE_ABORT,
            "CONCURRENT_TRANSACTIONS",
            "PRODUCER_FENCED",
            "INVALID_TXN_STATE",
            "PRODUCER_FENCED",
        ),
    ],
    ids=str,
)
def test_ends_of_newer_clients(
    status: Status, retried_abort: str, current_abort: str, retried_commit: str, current_commit: str
) -> None:
    """Each answer is that of the table in Kafka's TransactionCoordinator.

    A request whose epoch is one below the present epoch is a repeated request.
    """
    found = [
        code_of_end(status, epoch, commit=commit, version=NEW) for commit in (False, True) for epoch in (4, 5)
    ]
    assert [retried_abort, current_abort, retried_commit, current_commit] == found


@pytest.mark.parametrize(
    ("status", "abort", "commit"),
    [
        (Status.EMPTY, "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        (Status.COMPLETE_ABORT, "same", "INVALID_TXN_STATE"),
        (Status.COMPLETE_COMMIT, "INVALID_TXN_STATE", "same"),
        (Status.PREPARE_COMMIT, "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"),
        (Status.PREPARE_ABORT, "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"),
    ],
    ids=str,
)
def test_ends_of_older_clients(status: Status, abort: str, commit: str) -> None:
    """If epochs are not bumped, the state alone decides the answer, and a request with another epoch is fenced."""
    assert abort == code_of_end(status, 5, commit=False, version=OLD)
    assert commit == code_of_end(status, 5, commit=True, version=OLD)
    for epoch in (4, 6):
        assert "PRODUCER_FENCED" == code_of_end(status, epoch, commit=True, version=OLD)


def test_ends_of_unknown_producers() -> None:
    """A request to end a transaction is refused if its transactional id is unknown or its producer id is wrong."""
    for version in (OLD, NEW):
        for state, producer_id in ((None, ID), (at(Status.ONGOING), NEXT_ID)):
            code = refusal(end, state, 5, commit=True, version=version, producer_id=producer_id)
            assert Code.INVALID_PRODUCER_ID_MAPPING == code


def test_the_last_epoch_ends_in_a_new_id() -> None:
    """A transaction of epoch 32766 ends with epoch 32767. The producer continues with a new id and epoch 0."""
    prepared = end(at(Status.ONGOING, EXHAUSTED_EPOCH), EXHAUSTED_EPOCH, commit=True)
    assert prepared is not None
    assert (ID, 32767, NEXT_ID) == (*prepared.run, prepared.next_producer_id)
    assert Code.CONCURRENT_TRANSACTIONS == refusal(end, prepared, EXHAUSTED_EPOCH, commit=True)
    done = completed(prepared, NOW)
    assert (NEXT_ID, 0, ID) == (*done.run, done.previous_producer_id)
    assert end(done, EXHAUSTED_EPOCH, commit=True) is None
    assert Code.INVALID_TXN_STATE == refusal(end, done, EXHAUSTED_EPOCH, commit=False)


def test_fencing_at_the_largest_epoch_stays_there() -> None:
    """The epoch never exceeds 32767, and the abort gives the transactional id a new producer id."""
    prepared = aborted_by_coordinator(at(Status.ONGOING, 32767), NOW, new_ids(NEXT_ID))
    assert (32767, NEXT_ID, 0) == (prepared.epoch, *completed(prepared, NOW).run)


def test_timeouts() -> None:
    """Only an open transaction times out, and only after more than its timeout. Without a timeout it never does."""
    state = at(Status.ONGOING)
    assert not has_timed_out(state, Timestamp(NOW + 60_000))
    assert has_timed_out(state, Timestamp(NOW + 60_001))
    assert not has_timed_out(at(Status.PREPARE_COMMIT), Timestamp(NOW + 10**9))
    assert not has_timed_out(at(Status.ONGOING, timeout_ms=NO_TIMEOUT_MS), Timestamp(2**62))


@pytest.mark.parametrize("status", Status)
def test_expiry(status: Status) -> None:
    """A transactional id without a transaction expires exactly after the expiration time."""
    at_rest = status in (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)
    assert at_rest is has_expired(at(status), Timestamp(NOW + 7), 7)
    assert not has_expired(at(status), Timestamp(NOW + 6), 7)
