"""Tests that a transaction begins with its lowest sequence, after its coordinator has verified it (KIP-890)."""

from __future__ import annotations

import pytest

from topicfs.storage.codec.control import ControlType, EndTransactionMarker
from topicfs.storage.errors import InvalidTransactionStateError, OutOfOrderSequenceError, ProducerFencedError
from topicfs.storage.model import Offset, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers.append import (
    MAX_VERIFICATIONS,
    DataBatch,
    Origin,
    Verification,
    VerificationGuard,
    Verifications,
)
from topicfs.storage.producers.state import ProducerState

PID = ProducerId(7)
NOW = Timestamp(1_700_000_000_000)


@pytest.fixture
def state():
    return ProducerState(TopicPartition("t", 0))


def append(state, first, *, epoch=0, txn=True, verified=True):
    adding = state.begin(PID, Origin.CLIENT)
    adding.add_data(DataBatch(epoch, first, first, Offset(0), Offset(0), NOW, txn), verified=verified)
    state.finish(adding)


def end(state, *, epoch=0):
    adding = state.begin(PID, Origin.COORDINATOR)
    adding.add_marker(
        EndTransactionMarker(ControlType.COMMIT, 0), epoch=epoch, offset=Offset(1), timestamp=NOW
    )
    state.finish(adding)


def ask(state, sequence=0, *, epoch=0, bumps_epoch=True):
    return state.begin_verification(PID, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch)


def test_a_first_sequence_other_than_0_is_refused_under_version_2():
    """Row 78: an unknown producer may begin at sequence 3.

    Under version 2 the first sequence must be 0, because each transaction has its own epoch.
    """
    for bumps_epoch in (False, True):
        state = ProducerState(TopicPartition("t", 0))
        ask(state, 3, epoch=5, bumps_epoch=bumps_epoch)
        if bumps_epoch:
            with pytest.raises(OutOfOrderSequenceError, match="instead of 0"):
                append(state, 3, epoch=5)
        else:
            append(state, 3, epoch=5)


def test_a_batch_above_the_lowest_sequence_is_refused(state):
    """While two batches of a producer are being verified, the batch with the lower sequence must come first.

    The batch with the higher sequence is refused, because the earlier batch may still arrive.
    """
    append(state, 0, txn=False)
    ask(state, 2)
    ask(state, 1)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 2 instead of 1"):
        append(state, 2)
    append(state, 1)


def test_a_newer_epoch_replaces_the_lowest_sequence():
    """A request with a newer epoch replaces the stored lowest sequence. An older epoch changes nothing."""
    asked = Verification(3, 5, bumps_epoch=False, guard=VerificationGuard())
    assert (3, 4) == asked.asked_again(epoch=3, sequence=4)[:2]
    assert (4, 9) == asked.asked_again(epoch=4, sequence=9)[:2]
    assert asked == asked.asked_again(epoch=3, sequence=6) == asked.asked_again(epoch=2, sequence=0)


def test_data_that_would_open_a_transaction_unverified_is_refused(state):
    """Data that would open a transaction without a verification is refused. Later data needs no verification."""
    with pytest.raises(InvalidTransactionStateError, match="coordinator did not confirm"):
        append(state, 0, verified=False)
    append(state, 0)
    append(state, 1, verified=False)


def test_an_old_epoch_is_fenced_before_anybody_is_asked(state):
    """A request with an old epoch is fenced, and the coordinator is not asked."""
    append(state, 0, epoch=3)
    with pytest.raises(ProducerFencedError):
        ask(state, epoch=2)
    with pytest.raises(ProducerFencedError):
        append(state, 0, epoch=2, verified=False)


def test_nobody_is_asked_while_the_transaction_is_open(state):
    """Inside an open transaction no verification is needed, but a newer epoch needs one."""
    append(state, 0)
    assert ask(state, 1) is None
    assert ask(state, 0, epoch=1) is not None


def test_one_guard_for_all_that_ask():
    """All requests of a producer share one guard until the guard ends. Later requests share a new guard."""
    verifications = Verifications()
    first = verifications.begin(PID, epoch=0, sequence=1, bumps_epoch=True)
    assert first is verifications.begin(PID, epoch=0, sequence=0, bumps_epoch=True)
    assert verifications.answered(PID, first)
    assert not verifications.answered(PID, None)
    assert not verifications.answered(ProducerId(8), first)
    verifications.end(PID)
    assert not verifications.answered(PID, first)
    assert first is not verifications.begin(PID, epoch=0, sequence=0, bumps_epoch=True)


@pytest.mark.parametrize("finish", [lambda state: append(state, 0), end], ids=["data", "marker"])
def test_a_guard_is_taken_away_by_what_came_in_between(state, finish):
    """Data or a marker ends the guard, so that a delayed batch opens no transaction."""
    guard = ask(state)
    finish(state)
    assert not state.verifications.answered(PID, guard)


def test_plain_data_takes_no_guard_away(state):
    """An append outside of a transaction does not remove the producer's guard."""
    guard = ask(state)
    append(state, 0, txn=False)
    assert state.verifications.answered(PID, guard)


def test_the_oldest_of_too_many_verifications_is_forgotten(state):
    """A partition keeps at most MAX_VERIFICATIONS verifications.

    If there are more, the oldest one is dropped, and its producer has to ask again.
    """
    for number in range(MAX_VERIFICATIONS + 1):
        state.begin_verification(ProducerId(100 + number), epoch=0, sequence=0, bumps_epoch=True)
    assert state.verifications.get(ProducerId(100)) is None
    assert state.verifications.get(ProducerId(101)) is not None
