"""Tests that readers with READ_COMMITTED stop at the last stable offset."""

from __future__ import annotations

from tests.doubles.logs import Transactions
from topicfs.storage.model import Isolation, Offset


def test_readers_of_committed_records_stop_at_the_first_open_transaction():
    """Rows 60 and 84: a READ_COMMITTED read at or above the last stable offset is empty, and raises no error."""
    log = Transactions()
    log.fill(2, pid=1, txn=False)
    log.fill(2, pid=2)
    log.fill(2, pid=1, txn=False)
    assert 2 == log.log.offsets().last_stable_offset
    committed, everything = (
        len(log.log.read(Offset(2), max_bytes=4096, isolation=isolation).data)
        for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
    )
    assert (0, True) == (committed, everything > 0)
    log.end(pid=2)
    assert 7 == log.log.offsets().last_stable_offset


def test_the_stable_offset_waits_for_the_marker_to_be_replicated():
    """Row 84: a marker at or above the high watermark does not end the transaction for readers."""
    log = Transactions()
    log.fill(2, pid=1)
    log.end(pid=1)
    for high_watermark, stable in ((0, 0), (2, 0), (3, 3)):
        log.on_disk.kill(high_watermark=high_watermark)
        assert stable == log.log.offsets().last_stable_offset


def test_the_stable_offset_stays_below_the_high_watermark():
    """Row 60: the last stable offset is at most the high watermark, even if a transaction begins above it."""
    log = Transactions()
    log.fill(4, pid=1, txn=False)
    log.fill(2, pid=2)
    log.on_disk.kill(high_watermark=3)
    assert (3, 3) == (log.log.offsets().last_stable_offset, log.log.offsets().high_watermark)
    for isolation in Isolation:
        assert b"" == bytes(log.log.read(Offset(3), max_bytes=4096, isolation=isolation).data)


def test_the_stable_offset_is_never_below_the_log_start():
    """Row 85: if records inside an open transaction are deleted, the first unstable offset is the new log start.

    Here the first unstable offset moves from 0 to 5.
    """
    log = Transactions()
    log.fill(10, pid=1)
    log.log.delete_records(5)
    assert (5, 5) == (log.log.log_start_offset, log.log.offsets().last_stable_offset)


def test_an_open_transaction_goes_on_after_a_crash():
    """Row 99: after a crash a transaction is still open from its first offset on, and can be ended."""
    log = Transactions()
    log.fill(2, pid=1, txn=False)
    log.fill(2, pid=2)
    log.log.sync()
    log.on_disk.crash(keep=0)
    assert 2 == log.log.offsets().last_stable_offset
    log.fill(1, pid=2)
    log.end(pid=2)
    assert 6 == log.log.offsets().last_stable_offset
