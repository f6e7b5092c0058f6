"""Tests of a log's aborted transactions: how they are indexed, read, and found again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.logs import Transactions
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import Isolation, Offset


def test_aborts_are_indexed_with_the_stable_offset_they_leave():
    """Row 83: an aborted transaction is indexed with the last stable offset after its marker.

    This is the first offset of a transaction that is still open. If no transaction is open, it is the offset after
    the marker.
    """
    log = Transactions()
    log.fill(5, pid=1)
    log.fill(3, pid=2)
    log.fill(2, pid=3)
    log.end(pid=1, commit=False)
    log.end(pid=3)
    log.fill(1, pid=2)
    log.end(pid=2, commit=False)
    assert log.aborted() == [AbortedSpan(1, 0, 10, 5), AbortedSpan(2, 5, 13, 14)]


def test_reads_list_the_aborts_of_returned_records():
    """Row 83: a read returns an abort whose marker is in a later segment. READ_UNCOMMITTED readers get no aborts."""
    log = Transactions()
    log.fill(2, pid=1)
    log.log.appender.roll()
    log.fill(1, pid=2, txn=False)
    log.log.appender.roll()
    log.end(pid=1, commit=False)
    fetched = log.log.read(Offset(0), max_bytes=4096)
    assert ((1, 0),) == fetched.aborted
    plain = log.log.read(Offset(0), max_bytes=4096, isolation=Isolation.READ_UNCOMMITTED)
    assert () == plain.aborted


def test_a_read_lists_only_aborts_within_its_range():
    """Rows 21 and 29: a read returns only the aborted transactions that overlap the read's own range.

    A transaction whose marker is the first record of the range is returned as well.
    """
    log = Transactions()
    for pid in (1, 2, 3):
        log.fill(2, pid=pid)
        log.end(pid=pid, commit=False)
    told = [log.log.read(Offset(offset), max_bytes=1).aborted for offset in range(9)]
    assert [((1, 0),)] * 3 + [((2, 3),)] * 3 + [((3, 6),)] * 3 == told
    assert ((1, 0), (2, 3), (3, 6)) == log.log.read(Offset(2), max_bytes=4096).aborted


def _with_aborts():
    """Return a log of three segments with three transactions, of which two are aborted."""
    log = Transactions()
    log.fill(8, pid=1)
    log.fill(2, pid=2)
    log.log.appender.roll()
    log.fill(5, pid=1)
    log.end(pid=1, commit=False)
    log.log.appender.roll()
    log.fill(3, pid=2)
    log.fill(2, pid=3, txn=False)
    log.end(pid=2, commit=False)
    return log


@pytest.mark.parametrize(
    ("lost", "recovery_point", "recovered"),
    [
        ((".txnindex",), 0, {10, 16}),
        ((".txnindex", ".snapshot"), 0, {10, 16}),
        ((".snapshot",), 0, {10, 16}),
        ((".snapshot",), 12, {10, 16}),
        ((".snapshot",), 16, {16}),
        ((), 12, {10, 16}),
        ((), 16, {16}),
    ],
)
def test_the_aborted_transactions_come_back(lost, recovery_point, recovered):
    """Rows 13 and 49: aborts of recovered segments are found again, with or without indexes and snapshots."""
    log = _with_aborts()
    aborted = [AbortedSpan(1, 0, 15, 8), AbortedSpan(2, 8, 21, 22)]
    assert aborted == log.aborted()
    for name in log.on_disk.names():
        if name.endswith(lost):
            log.on_disk.disk.unlink(log.log.directory / name)
    log.on_disk.disk.calls.clear()
    log.on_disk.kill(recovery_point=recovery_point)
    assert aborted == log.aborted()
    assert 22 == log.log.offsets().last_stable_offset
    written = [Path(path) for call, path in log.on_disk.disk.calls if call == "pwrite"]
    assert recovered == {int(path.stem) for path in written if path.suffix == ".txnindex"}


def test_a_damaged_transaction_index_is_rebuilt():
    """A damaged transaction index is rebuilt, even after a clean stop."""
    log = _with_aborts()
    before = log.aborted()
    log.log.close()
    log.on_disk.write("00000000000000000010.txnindex", b"garbage")
    log.on_disk.log = log.on_disk.load(clean=True)
    assert log.aborted() == before


def test_the_transaction_index_is_one_of_the_segments_files():
    """The transaction index is created with the first abort, and is listed and deleted with its segment."""
    log = Transactions()
    log.fill(1, pid=1)
    log.end(pid=1)
    assert not any(name.endswith(".txnindex") for name in log.on_disk.names())
    log.fill(1, pid=1)
    log.end(pid=1, commit=False)
    assert "00000000000000000000.txnindex" in log.log.segments()[0].files
    log.log.appender.roll()
    log.log.replacer.delete_oldest_segments(1, "test")
    assert "00000000000000000000.txnindex.deleted" in log.on_disk.names()


def test_read_only_loading_knows_the_transactions_and_writes_nothing():
    """A read-only load of a foreign directory finds the aborts in memory, and writes nothing."""
    log = _with_aborts()
    for name in log.on_disk.names():
        if name.endswith((".txnindex", ".snapshot")):
            log.on_disk.disk.unlink(log.log.directory / name)
    names = log.on_disk.names()
    shown = log.on_disk.load(clean=False, disk=log.on_disk.disk.read_only_view())
    assert 22 == shown.offsets().last_stable_offset
    assert ((1, 0), (2, 8)) == shown.read(Offset(0), max_bytes=9999).aborted
    assert log.on_disk.names() == names
