"""Tests of several passes over a log with transactions: what is kept, and for how long (LogCleanerTest)."""

from __future__ import annotations

import pytest

from tests.doubles.compacted_log import CompactedLog, keyed_batch
from topicfs.storage.model import Timestamp
from topicfs.storage.producers.append import Origin

RETENTION_MS = 1000
STAMP = {"producer_id": 7, "producer_epoch": 0, "transactional": True}


def offsets(log: CompactedLog) -> list[int]:
    return [last for last, _ in log.batches()]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_marker_outlives_its_records_by_the_retention(commit):
    """Row 106: a marker stays in the pass that removes its records, and gets a horizon in the next pass.

    A pass after this horizon removes the marker.
    """
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    log.put((b"a", b"1"), base_sequence=0, **STAMP)
    log.end_transaction(commit=commit)
    log.put((b"a", b"2"), base_sequence=1, **STAMP)
    log.end_transaction(commit=True)
    log.put((b"b", b"3"))
    log.put((b"b", b"4"))
    log.clean_all()
    assert [1, 2, 3, 5] == offsets(log)
    log.clean_all()
    assert [1, 2, 3, 5] == offsets(log)
    log.clean_all(after_ms=RETENTION_MS - 1)
    assert [1, 2, 3, 5] == offsets(log)
    log.clean_all(after_ms=1)
    assert [2, 3, 5] == offsets(log)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_emptied_last_batch_holds_its_marker_until_the_producer_writes_again(commit):
    """Row 107: an emptied batch with a producer's newest sequence stays, and so does the marker after it.

    After the producer has written again, passes remove the batch and the marker.
    """
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    log.put((b"a", b"1"), (b"b", b"1"), base_sequence=0, **STAMP)
    log.end_transaction(commit=commit)
    log.put((b"a", b"2"), (b"b", b"2"))
    log.put((b"c", b"3"))
    for _ in range(3):
        log.clean_all(after_ms=2 * RETENTION_MS)
        assert [(1, 0), (2, 1), (4, 2), (5, 1)] == log.batches()
    log.put((b"d", b"4"), base_sequence=2, **STAMP)
    log.end_transaction(commit=True)
    log.clean_all()
    assert (2, 1) == log.batches()[0]
    log.clean_all()
    assert (2, 1) == log.batches()[0]
    log.clean_all(after_ms=RETENTION_MS)
    assert [(4, 2), (5, 1)] == log.batches()[:2]


def test_the_last_sequence_of_an_aborted_transaction_stays():
    """Row 111: an emptied batch of an aborted transaction keeps the producer's last sequence.

    This holds even after a restart without snapshots.
    """
    log = CompactedLog(delete_retention_ms=RETENTION_MS)
    log.put((b"a", b"1"), (b"b", b"1"), base_sequence=0, **STAMP)
    log.end_transaction(commit=False)
    log.put((b"c", b"2"))
    for _ in range(2):
        log.clean_all(after_ms=2 * RETENTION_MS)
    assert (1, 0) == log.batches()[0]
    for name in log.names():
        if name.endswith(".snapshot"):
            log.disk.unlink(log.log.directory / name)
    log.kill()
    assert 4 == log.put((b"d", b"3"), base_sequence=2, **STAMP).base_offset


def test_aborts_are_known_over_passes_and_segments():
    """Row 118: aborted records stay hidden if data, marker and index are cleaned in different passes."""
    log = CompactedLog(internal_segment_bytes=10_000, delete_retention_ms=RETENTION_MS)
    log.put((b"a", b"1"))
    log.put((b"b", b"aborted"), base_sequence=0, **STAMP)
    log.log.appender.roll()
    log.put((b"c", b"aborted"), base_sequence=1, **STAMP)
    log.log.appender.roll()
    log.end_transaction(commit=False)
    log.put((b"d", b"2"))
    log.log.appender.roll()
    for _ in range(3):
        log.clean(map_bytes=24 * 3)
        assert [b"a", b"d"] == [r.key for r in log.records()]
        log.reopen()
        assert [b"a", b"d"] == [r.key for r in log.records()]
    assert [(1, 3)] == [tuple(span)[1:3] for span in log.log.aborted]
    assert [(0, 1), (2, 0), (3, 1), (4, 1)] == log.batches()
    log.log.appender.remove_expired_producers(Timestamp(log.clock.now + 2**40))
    for _ in range(3):
        log.clean_all(after_ms=RETENTION_MS)
        assert [b"a", b"d"] == [r.key for r in log.records()]
    assert ([(0, 1), (4, 1)], ()) == (log.batches(), log.log.aborted)


def _committed_after_an_abort():
    """Return a reopened log with an abort below the log start and later commits, each in its own segment."""
    log = CompactedLog(cleanup_policy=("compact", "delete"))
    for sequence, key in enumerate((b"a", b"b", b"c")):
        log.put((key, b"1"), base_sequence=sequence, **STAMP)
        log.end_transaction(commit=key != b"a")
        log.log.appender.roll()
    log.log.delete_records(2)
    log.reopen(log_start_offset=2)
    log.put((b"d", b"2"))
    return log


def test_an_abort_below_the_log_start_hides_nothing_of_later_transactions():
    """If an abort's marker was deleted with its segment, the abort hides no later commit of the same producer."""
    log = _committed_after_an_abort()
    assert () == log.log.aborted
    log.log.replacer.delete_oldest_segments(1, "test")
    log.clean_all()
    assert [b"b", b"c", b"d"] == [record.key for record in log.records()]


def test_an_aborted_record_below_the_log_start_goes_before_its_marker():
    """A pass removes an aborted record below the log start together with its transaction's marker.

    If the checkpoint of the log start is lost, the record therefore does not return.
    """
    log = _committed_after_an_abort()
    log.clean_all()
    assert () == log.log.aborted
    log.reopen(log_start_offset=0)
    assert [b"b", b"c", b"d"] == [record.key for record in log.records()]


def test_an_abort_that_ended_before_the_dirty_section_leaves_later_keys_to_the_map():
    """If an abort ended before the dirty part, later committed records of this producer are put into the map.

    These records replace older records of their keys.
    """
    log = CompactedLog()
    log.put((b"k", b"old"))
    log.put((b"a", b"aborted"), base_sequence=0, **STAMP)
    log.end_transaction(commit=False)
    log.log.appender.roll()
    log.clean()
    log.put((b"k", b"new"), base_sequence=1, **STAMP)
    log.end_transaction(commit=True)
    log.log.appender.roll()
    log.clean()
    assert [b"new"] == [record.value for record in log.records()]


def test_only_the_last_batch_of_a_producer_is_kept():
    """Row 109: a producer's last batch stays, because it has the last sequence. Older batches and their markers go.

    The batches all begin at sequence 0, like those of a group coordinator.
    """
    log = CompactedLog(delete_retention_ms=RETENTION_MS)

    def write_and_clean(key, times):
        for _ in range(times):
            batch = keyed_batch((key, b"v"), base_sequence=0, **STAMP)
            log.log.append(batch, origin=Origin.COORDINATOR)
            log.end_transaction(commit=True)
        for _ in range(3):
            log.clean_all(after_ms=2 * RETENTION_MS)

    write_and_clean(b"key", 4)
    assert [(6, 1), (7, 1)] == log.batches()
    write_and_clean(b"other", 2)
    assert [(6, 1), (7, 1), (10, 1), (11, 1)] == log.batches()
