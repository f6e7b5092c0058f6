"""Tests of which batches producers and coordinators may append: sequences, epochs and markers."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of
from tests.doubles.records import marker, produced
from topicfs.storage.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from topicfs.storage.model import Offset
from topicfs.storage.producers.append import Origin


def test_a_repeat_of_one_of_the_last_five_batches_is_answered_with_its_offsets():
    """Row 76: a repeat of one of the last five batches gets the batch's offsets. Older batches are out of order."""
    log = LogOnDisk().log
    for n in range(6):
        log.append(produced(b"v", b"w", sequence=2 * n))
    for n in range(1, 6):
        again = log.append(produced(b"v", b"w", sequence=2 * n))
        assert (True, 2 * n, 2 * n + 1) == (again.duplicate, again.base_offset, again.last_offset)
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


def test_an_old_coordinator_writes_nothing():
    """Row 86: a marker with a coordinator epoch below the last one is fenced and not written."""
    log = LogOnDisk().log
    log.append(marker(coordinator_epoch=2), origin=Origin.COORDINATOR)
    with pytest.raises(ProducerFencedError):
        log.append(marker(coordinator_epoch=1), origin=Origin.COORDINATOR)
    assert 1 == log.log_end_offset
