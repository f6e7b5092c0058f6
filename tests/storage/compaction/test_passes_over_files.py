"""Tests of the files that a pass writes: gaps, groups, large batches, crashes, and the log's end (LogCleanerTest)."""

from __future__ import annotations

import pytest

from tests.doubles.compacted_log import CompactedLog, keyed_batch
from tests.doubles.records import NOW
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.codec.columns import decode
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp

INT_MAX = 2**31 - 1


def put_at(log: CompactedLog, offset: int, key: bytes, value: bytes | None = b"v") -> None:
    """Append a record at `offset`, possibly after a gap, as a follower does."""
    batch = keyed_batch((key, value))
    assign_offsets(batch, 0, base_offset=offset, leader_epoch=0)
    log.log.appender.append_as_follower(batch)


def test_deleted_keys_go_with_their_older_records():
    """Row 103: if a key is deleted, its older records are removed, and in the end the tombstone as well."""
    log = CompactedLog(delete_retention_ms=0)
    for number in range(10):
        log.put((b"%d" % number, b"v"))
    for number in range(0, 10, 2):
        log.put((b"%d" % number, None))
    log.log.appender.roll()
    expected = {b"%d" % number: b"v" for number in range(1, 10, 2)}
    log.clean()
    assert log.table() == expected
    log.checkpoint = None
    log.clean()
    assert [record.key for record in log.records()] == sorted(expected)


@pytest.mark.parametrize(
    ("later", "left"),
    [([], [(0, 1), (1, 0)]), ([(b"c", b"1")], [(0, 1), (2, 1)])],
    ids=["at the high watermark", "below the high watermark"],
)
def test_an_emptied_batch_is_kept_only_if_it_ends_at_the_high_watermark(later, left):
    """Row 112: an emptied batch that ends the log stays, so that a restart finds the same end.

    An emptied batch is dropped if the high watermark is above the cleaned part.
    """
    log = CompactedLog()
    log.put((b"a", b"1"))
    log.put((b"b", None))
    log.log.appender.roll()
    for pair in later:
        log.put(pair)
    log.clean()
    log.clock.advance(2 * log.config.delete_retention_ms)
    log.checkpoint = None
    log.clean()
    assert left == log.batches()


def test_young_segments_are_not_cleaned():
    """Row 113: the first segment with a young record and all later segments are not cleaned."""
    log = CompactedLog(min_compaction_lag_ms=1000)
    log.clock.advance(NOW - log.clock.now)
    for times in range(2):
        for number in range(6):
            log.log.append(keyed_batch((b"%d" % number, b"%d" % times)))
        log.log.appender.roll()
    for number in range(6):
        record = Record(Offset(0), Timestamp(NOW + 5000), b"%d" % number, b"young")
        log.put_record(record)
    log.log.appender.roll()
    log.clock.advance(2000)
    log.clean()
    assert [record.offset for record in log.records()] == list(range(6, 18))


def test_missing_offsets_do_not_stop_a_pass():
    """Row 113: missing offsets inside segments, between segments and at the dirty part's end do not stop a pass."""
    log = CompactedLog()
    for offset in (0, 7, 100):
        put_at(log, offset, b"a")
    log.log.appender.roll()
    for offset in (1000, 1003, 5000):
        put_at(log, offset, b"b")
    log.log.appender.roll()
    put_at(log, 9000, b"c")
    log.log.appender.roll()
    done = log.clean()
    assert 9001 == done.end_offset
    assert [100, 5000, 9000] == [record.offset for record in log.records()]
    assert 0 == log.plan().cleanable_bytes


def segments_far_apart(log: CompactedLog) -> list[int]:
    """Append a record at each end of a segment's range of offsets, each record in its own segment."""
    offsets = [0, 1, INT_MAX - 1, INT_MAX, INT_MAX + 1, 2 * INT_MAX]
    for offset in offsets:
        put_at(log, offset, b"key %d" % offset)
        log.log.appender.roll()
    return offsets


@pytest.mark.parametrize("empty_indexes", [False, True], ids=["indexes", "empty indexes"])
def test_sparse_offsets_are_grouped_as_far_as_an_index_reaches(empty_indexes):
    """Row 114: a group of segments spans at most 2^31 offsets.

    This holds even if the indexes are empty, so that only the names of the files show the offsets.
    """
    log = CompactedLog()
    offsets = segments_far_apart(log)
    log.log.close()
    if empty_indexes:
        for name in log.names():
            if name.endswith(".index"):
                log.write(name, b"")
    log.log = log.load(clean=True)
    log.clean()
    bases = log.base_offsets()
    assert len(bases) < len(offsets) + 1
    ends = [*bases[1:], log.log.log_end_offset]
    assert all(end - 1 - base <= INT_MAX for base, end in zip(bases[:-1], ends, strict=False))
    assert [record.offset for record in log.records()] == offsets
    log.kill(recovery_point=log.log.log_end_offset)
    assert [record.offset for record in log.records()] == offsets


@pytest.mark.parametrize("step", [".log.cleaned", ".timeindex.cleaned"])
def test_a_rename_that_fails_before_the_old_files_are_removed(step):
    """If a rename fails before the old files are removed, the pass deletes its files. The next pass succeeds."""
    log = CompactedLog()
    log.fill(keys=2, rounds=5)
    before = log.names()
    log.disk.fail("rename", suffix=step)
    with pytest.raises(OSError, match="Input/output error"):
        log.clean()
    assert log.names() == before
    assert log.log.offline_reason is None
    log.clean()
    assert [8, 9] == [record.offset for record in log.records()]


@pytest.mark.parametrize("step", [".log", "00000000000000000005.index", ".log.swap", ".timeindex.swap"])
def test_a_rename_that_fails_after_the_old_files_are_removed(step):
    """If a rename fails after the old files are removed, the new files stay; loading completes the replacement."""
    log = CompactedLog()
    log.fill(keys=2, rounds=5)
    log.disk.fail("rename", suffix=step)
    with pytest.raises(PartitionOfflineError, match="replacing segments failed"):
        log.clean()
    assert "replacing segments failed" in log.log.offline_reason
    log.kill(recovery_point=10)
    assert [8, 9] == [record.offset for record in log.records()]
    assert 10 == log.put((b"k0", b"more")).base_offset


def test_a_batch_larger_than_any_window_is_cleaned():
    """Row 117: the read buffer grows to the size of the batch."""
    log = CompactedLog()
    large = b"x" * 700_000
    log.put((b"a", large), (b"b", b"1"))
    log.put((b"b", b"2"))
    log.put((b"a", b"3"), (b"c", large))
    log.log.appender.roll()
    log.clean()
    found = log.records()
    assert [(2, 1), (3, 1), (4, 700_000)] == [(record.offset, len(record.value)) for record in found]


def test_live_producers_survive_in_the_files_alone():
    """Row 104: after a restart from the cleaned files a repeated batch is answered with its first offsets."""
    log = CompactedLog()
    stamp = {"producer_id": ProducerId(7), "producer_epoch": 0}
    log.put((b"2", b"a"), (b"1", b"b"), (b"3", b"c"), base_sequence=0, **stamp)
    log.put((b"3", b"d"), (b"1", b"e"), (b"4", b"f"), base_sequence=3, **stamp)
    log.put((b"1", b"g"), (b"2", b"h"), base_sequence=6, **stamp)
    log.log.appender.roll()
    log.clean()
    assert [3, 5, 6, 7] == [record.offset for record in log.records()]
    log.reopen()
    again = log.put((b"1", b"g"), (b"2", b"h"), base_sequence=6, **stamp)
    assert (True, 6, 7) == (again.duplicate, again.base_offset, again.last_offset)


def test_large_batches_that_all_go_hold_no_reader_up():
    """Row 109: a read from the start finds the next batch, however many batches of any size were dropped."""
    log = CompactedLog()
    for number in range(20):
        log.put((b"key", bytes(3000 + number)))
    log.put((b"last", b"v"))
    log.clean_all()
    fetched = log.log.read(Offset(0), max_bytes=1)
    assert [19] == [record.offset for record in decode(fetched.data)[0]]
    assert [(19, 1), (20, 1)] == log.batches()
