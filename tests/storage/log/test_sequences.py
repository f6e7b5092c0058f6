"""Tests of which batches producers and coordinators may append: sequences, epochs and markers."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk, Transactions, offsets_of
from tests.doubles.records import marker, produced
from topicfs.storage.errors import (
    InvalidRecordError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from topicfs.storage.model import Offset
from topicfs.storage.producers.append import Origin


def test_a_repeat_of_one_of_the_last_five_batches_is_answered_with_its_offsets():
    """Row 76: a repeat of one of the last five batches gets the batch's offsets. Older batches are out of order."""
    log = LogOnDisk().log
    first = [log.append(produced(b"v", b"w", sequence=2 * n)) for n in range(6)]
    again = log.append(produced(b"v", b"w", sequence=4))
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, first[2].base_offset, 5)
    assert 12 == log.log_end_offset
    for sequence, count in ((0, 2), (10, 1), (9, 3)):
        with pytest.raises(OutOfOrderSequenceError):
            log.append(produced(*[b"v"] * count, sequence=sequence))
    assert 12 == log.log_end_offset


def test_a_repeat_rolls_nothing():
    """A repeat does not roll the log. A broker rolls before it checks for repeats."""
    log = LogOnDisk(internal_segment_bytes=len(produced()) + 1).log
    log.append(produced())
    assert log.append(produced()).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        log.append(produced(sequence=2))
    assert (Offset(0),) == log.chain.base_offsets
    log.append(produced(sequence=1))
    assert (Offset(0), Offset(1)) == log.chain.base_offsets


def test_a_refused_append_leaves_no_byte():
    """A refused append writes nothing, and the log stays usable."""
    on_disk = LogOnDisk()
    on_disk.log.append(produced(epoch=1))
    with pytest.raises(ProducerFencedError):
        on_disk.log.append(produced(epoch=0, sequence=1))
    assert 1 == on_disk.log.append(produced(epoch=1, sequence=1)).base_offset


def test_several_producers_in_one_append():
    """Row 77: a replica accepts batches of several producers in one append, and knows all these producers."""
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(
        produced(pid=1)
        + produced(pid=2, offset=1)
        + produced(pid=1, sequence=1, offset=2)
        + produced(pid=2, sequence=1, offset=3)
    )
    for log in (on_disk.log, on_disk.kill()):
        assert {1: 1, 2: 1} == {each.producer_id: each.last_sequence for each in log.producers()}
        assert log.append(produced(pid=2, sequence=1)).duplicate
    assert 4 == on_disk.log.append(produced(pid=1, sequence=2)).base_offset


def test_an_older_epoch_is_fenced_except_on_a_replica():
    """Row 77: a client's batch with an old epoch is fenced, but a replica accepts such a batch."""
    log = LogOnDisk().log
    log.append(produced(epoch=1))
    with pytest.raises(ProducerFencedError, match="epoch 0 was fenced by epoch 1"):
        log.append(produced(epoch=0))
    log.appender.append_as_follower(produced(epoch=0, offset=1))
    assert [0, 1] == offsets_of(log)


def test_an_unknown_producer_may_begin_anywhere():
    """Row 78: an unknown producer may begin at any sequence, because the producer's state may have expired."""
    assert 0 == LogOnDisk().log.append(produced(sequence=3, epoch=5)).base_offset


def test_a_producer_without_sequences_is_refused():
    """Row 128: a client's batch that has a producer ID but no sequence is refused."""
    with pytest.raises(InvalidRecordError, match="numbers its records from 0"):
        LogOnDisk().log.append(produced(sequence=-1))


def test_markers_of_clients_are_refused():
    """Row 123: a client's marker is refused."""
    log = LogOnDisk().log
    with pytest.raises(InvalidRecordError, match="come from coordinators"):
        log.append(marker())
    assert 0 == log.append(marker(), origin=Origin.COORDINATOR).base_offset


def test_plain_data_in_an_open_transaction_writes_nothing():
    """Row 92: plain data in an open transaction is refused with INVALID_TXN_STATE."""
    log = Transactions()
    log.fill(1, pid=1)
    with pytest.raises(InvalidTransactionStateError):
        log.fill(1, pid=1, txn=False)
    assert 1 == log.log.log_end_offset


def test_an_old_coordinator_writes_nothing():
    """Row 86: a marker with a coordinator epoch below the last one is fenced and not written."""
    log = LogOnDisk().log
    log.append(marker(coordinator_epoch=2), origin=Origin.COORDINATOR)
    with pytest.raises(ProducerFencedError):
        log.append(marker(coordinator_epoch=1), origin=Origin.COORDINATOR)
    assert 1 == log.log_end_offset
