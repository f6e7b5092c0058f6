"""Tests of a log that accepts a transaction's first batch only after its coordinator has verified it."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk
from tests.doubles.records import marker, produced
from topicfs.storage.errors import InvalidTransactionStateError
from topicfs.storage.model import ProducerId
from topicfs.storage.producers.append import UNVERIFIED, Origin


@pytest.fixture
def log():
    on_disk = LogOnDisk()
    on_disk.log.close()
    return on_disk.load(clean=True)


def ask(log):
    return log.begin_verification(ProducerId(7), epoch=0, sequence=0, bumps_epoch=True)


def test_a_transaction_begins_with_its_guard(log):
    """Row 78: a transaction's first batch needs a verification guard. Later batches and plain data need no guard."""
    with pytest.raises(InvalidTransactionStateError):
        log.append(produced(sequence=0, txn=True), guard=UNVERIFIED)
    assert 0 == log.log_end_offset
    log.append(produced(sequence=0, txn=True), guard=ask(log))
    log.append(produced(sequence=1, txn=True), guard=UNVERIFIED)
    log.append(marker(), origin=Origin.COORDINATOR)
    log.append(produced(sequence=2))
    assert 4 == log.log_end_offset


def test_a_batch_that_was_delayed_behind_the_marker_is_refused(log):
    """A delayed batch with the guard of an ended transaction is refused, as it would open another transaction."""
    guard = ask(log)
    log.append(produced(sequence=0, txn=True), guard=guard)
    log.append(marker(), origin=Origin.COORDINATOR)
    with pytest.raises(InvalidTransactionStateError):
        log.append(produced(sequence=1, txn=True), guard=guard)
    assert 2 == log.log_end_offset


def test_a_repeat_is_answered_without_a_guard(log):
    """A repeated first batch is answered with its offsets, without a guard."""
    log.append(produced(sequence=0, txn=True), guard=ask(log))
    assert log.append(produced(sequence=0, txn=True), guard=UNVERIFIED).duplicate


def test_replicas_and_plain_logs_ask_nobody():
    """Replicas and logs without a coordinator need no guard."""
    on_disk = LogOnDisk()
    on_disk.log.append(produced(sequence=0, txn=True))
    on_disk.log.close()
    follower = on_disk.load(clean=True)
    follower.appender.append_as_follower(produced(pid=8, txn=True, offset=1))
    assert 2 == follower.log_end_offset
