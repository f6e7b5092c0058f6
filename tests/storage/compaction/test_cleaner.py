"""Tests of a pass of the cleaner over a real log: files, offsets and crashes (LogCleanerTest)."""

from __future__ import annotations

import pytest

from tests.doubles.compacted_log import CompactedLog
from tests.doubles.logs import DIRECTORY
from tests.doubles.mortal_disk import End, MortalDisk, every_step
from tests.doubles.records import NOW, marker, old_entry
from topicfs.storage.compaction.cleaner import CleaningStoppedError
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.reading.fetch import fetch
from topicfs.storage.model import Offset, ProducerId, Timestamp
from topicfs.storage.producers.append import Origin


def test_each_keys_newest_record_stays_where_it_was():
    """Row 103: a pass keeps the offsets of the records that stay, and reads skip the gaps."""
    log = CompactedLog()
    log.fill(keys=3, rounds=7)
    before = log.table()
    done = log.clean()
    assert [18, 19, 20] == [r.offset for r in log.records()]
    assert log.table() == before
    assert (21, 21, 3) == (done.end_offset, done.records_read, done.records_kept)


def test_records_beyond_the_cleaned_section_stay():
    """A pass does not change the active segment, even if its keys are repeated."""
    log = CompactedLog()
    log.fill(keys=2, rounds=2)
    log.put((b"k0", b"new"))
    log.clean()
    assert [2, 3, 4] == [r.offset for r in log.records()]


def test_neighbors_are_merged():
    """Row 114: seven segments of five records are merged into one segment."""
    log = CompactedLog()
    log.fill(keys=5, rounds=7)
    log.clean()
    assert [0, 35] == log.base_offsets()


def test_a_second_pass_begins_where_the_first_ended():
    """The offset map of a second pass has only the records that were appended after the first pass.

    These records replace older records of the same keys.
    """
    log = CompactedLog()
    log.fill(keys=3, rounds=3)
    log.clean()
    assert 0 == log.plan().cleanable_bytes
    log.fill(keys=2, rounds=2)
    assert 9 == log.plan().first_dirty_offset
    log.clean()
    assert {b"k0": b"2", b"k1": b"3", b"k2": b"8"} == log.table()


def test_tombstones_go_after_their_horizon():
    """Row 110: a tombstone stays for delete.retention.ms after the first pass that met it, and is then deleted."""
    log = CompactedLog(delete_retention_ms=1000)
    log.put((b"a", b"1"), (b"b", b"2"))
    log.log.appender.roll()
    log.put((b"a", None))
    log.log.appender.roll()
    log.put((b"c", b"3"))
    log.log.appender.roll()
    log.clean()
    assert [(b"b", b"2"), (b"a", None), (b"c", b"3")] == [(r.key, r.value) for r in log.records()]
    log.clock.advance(999)
    log.clean()
    assert 3 == len(log.records())
    log.clock.advance(1)
    log.clean()
    assert [b"b", b"c"] == [r.key for r in log.records()]


def test_a_small_map_makes_progress_pass_by_pass():
    """Row 113: if the offset map is small, each pass cleans up to the offset at which the map became full."""
    log = CompactedLog()
    log.fill(keys=20, rounds=3)
    before = log.table()
    ends = [log.clean(map_bytes=24 * 12).end_offset for _ in range(12)]
    assert ends == sorted(ends)
    assert 60 == ends[-1]
    assert log.table() == before


def test_the_next_pass_continues_inside_a_segment():
    """Row 113: the next pass continues inside the segment where a pass ended; records after this end are dirty."""
    log = CompactedLog()
    log.fill(keys=4, rounds=5, per_segment=10)
    assert 3 == log.clean(map_bytes=24 * 4).end_offset
    plan = log.plan()
    assert plan.cleanable_bytes == plan.clean_bytes + log.log.segments()[1].size_bytes
    log.clean()
    assert [16, 17, 18, 19] == [record.offset for record in log.records()]


def test_a_pass_that_is_stopped_leaves_no_file():
    """A pass that is stopped deletes the files that it has begun."""
    log = CompactedLog()
    log.fill(keys=2, rounds=4)
    before, answers = log.names(), iter([True] * 3)
    with pytest.raises(CleaningStoppedError):
        log.clean(proceed=lambda: next(answers, False))
    assert log.names() == before
    assert 8 == len(log.records())


def test_duplicates_are_known_after_cleaning_and_a_restart():
    """Rows 104 and 111: the last batch of a live producer stays, even if all of its records are removed."""
    log = CompactedLog()
    stamp = {"producer_id": ProducerId(7), "producer_epoch": 0}
    log.put((b"a", b"1"), (b"a", b"2"), base_sequence=0, **stamp)
    log.put((b"a", b"3"), base_sequence=2, **stamp)
    log.log.appender.roll()
    log.put((b"a", b"4"))
    log.log.appender.roll()
    log.clean()
    log.kill(recovery_point=0)
    again = log.put((b"a", b"3"), base_sequence=2, **stamp)
    assert (True, 2) == (again.duplicate, again.base_offset)
    assert 4 == log.put((b"a", b"5"), base_sequence=3, **stamp).base_offset


def test_aborted_records_go_and_their_transaction_stays_known():
    """Rows 105 and 118: read_committed readers see the same records after a pass. The index of aborts is rewritten."""
    log = CompactedLog()
    stamp = {"producer_id": ProducerId(7), "producer_epoch": 0, "transactional": True}
    log.put((b"a", b"1"))
    log.put((b"a", b"2"), (b"b", b"3"), base_sequence=0, **stamp)
    log.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    log.put((b"c", b"4"), base_sequence=2, **stamp)
    log.log.append(marker(commit=True), origin=Origin.COORDINATOR)
    log.log.appender.roll()
    log.clean()
    assert {b"a": b"1", b"c": b"4"} == log.table()
    assert [(1, 3)] == [tuple(span)[1:3] for span in log.log.aborted]
    log.kill()
    assert [tuple(span)[1:3] for span in log.log.aborted] in ([(1, 3)], [])
    assert {b"a": b"1", b"c": b"4"} == log.table()


def test_undecided_transactions_are_not_cleaned():
    """Row 120: records at or above the last stable offset are not cleaned."""
    log = CompactedLog()
    log.fill(keys=1, rounds=2, per_segment=2)
    log.put((b"x", b"1"), producer_id=ProducerId(7), producer_epoch=0, base_sequence=0, transactional=True)
    log.log.appender.roll()
    assert 2 == log.plan().end_offset


def test_a_preallocated_log_is_cleaned_to_its_size():
    """Row 117: a cleaned segment has no preallocated zeros after its last batch."""
    log = CompactedLog(preallocate=True, internal_segment_bytes=5000)
    log.fill(keys=1, rounds=3, per_segment=100)
    log.clean()
    assert len(log.content("00000000000000000000.log")) == log.log.segments()[0].size_bytes < 200


def test_a_running_reader_keeps_what_it_began_with():
    """A reader keeps the old files: they are renamed, and only unlinked after file.delete.delay.ms."""
    log = CompactedLog()
    log.fill(keys=2, rounds=4)
    chain = log.log.chain
    log.clean()
    assert len(chain.segments[0].log.pread(9999, 0)) == chain.segments[0].size
    log.clock.advance(1000)
    log.log.replacer.remove_deleted_files(Timestamp(log.clock.now))
    assert not [name for name in log.names() if name.endswith(".deleted")]


def test_segments_that_left_meanwhile_abandon_the_pass():
    """If retention deletes a segment during the pass, the cleaned segment is discarded."""
    log = CompactedLog(cleanup_policy=("compact", "delete"))
    log.fill(keys=2, rounds=4)
    old = log.log.chain.segments[:2]
    cleaned = log.log.replacer.new_cleaned_segment(Offset(0))
    cleaned.deactivate()
    log.log.replacer.delete_oldest_segments(1, "test")
    assert not log.log.replacer.replace_segments(old, cleaned)
    log.log.replacer.discard_segment(cleaned)
    assert not [name for name in log.names() if name.endswith(".cleaned")]


def test_indexes_that_cannot_be_read_leave_the_old_segments_in_place():
    """A damaged transaction index raises an error before any file is renamed, and the new segment is discarded."""
    log = CompactedLog()
    log.fill(keys=2, rounds=4)
    old = log.log.chain.segments[:2]
    cleaned = log.log.replacer.new_cleaned_segment(Offset(0))
    cleaned.deactivate()
    log.disk.write_bytes(DIRECTORY / "00000000000000000000.txnindex.cleaned", b"damaged")
    with pytest.raises(CorruptionError, match=r"\.txnindex\.cleaned"):
        log.log.replacer.replace_segments(old, cleaned)
    assert old == log.log.chain.segments[:2]
    log.log.replacer.discard_segment(cleaned)
    assert not [name for name in log.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_corrupt_batch_ends_the_pass_with_file_and_position():
    """A corrupt batch ends the pass with an error, and no temporary file is left."""
    log = CompactedLog()
    log.fill(keys=2, rounds=4)
    name = "00000000000000000005.log"
    data = bytearray(log.content(name))
    data[-1] ^= 1
    log.write(name, data)
    log.log = log.load(clean=True)
    with pytest.raises(CorruptionError, match=rf"{name}: position \d+: .*checksum"):
        log.clean()
    assert not [each for each in log.names() if each.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("end", End, ids=str)
def test_a_crash_at_every_step_leaves_the_old_or_the_new_set(end):
    """Row 115: after a crash the log has either all records from before the pass or all from after it.

    A second pass then completes the cleaning.
    """
    for steps in every_step():
        log = CompactedLog(disk=MortalDisk(seed=steps))
        log.fill(keys=2, rounds=5)
        log.log.sync()
        log.disk.sync_directory(DIRECTORY)
        old = log.records()
        new = old[-2:]
        died = log.dies(log.clean, steps)
        end.of(log.disk)
        log.log, log.checkpoint = log.load(clean=False, recovery_point=10), None
        assert log.records() in ([old, new] if died else [new]), f"after {steps} steps"
        assert [] == log.temporary_files()
        log.clean()
        assert new == log.records()
        if not died:
            break
    assert steps > 20


def test_a_crash_at_every_step_keeps_every_key_that_was_on_disk():
    """A crash loses no key, because the newer record is flushed before the older record is removed."""
    for steps in every_step():
        log = CompactedLog(disk=MortalDisk(), internal_segment_bytes=500)
        log.fill(keys=4, rounds=1)
        log.log.sync()
        log.disk.sync_directory(DIRECTORY)
        log.fill(keys=4, rounds=2)
        died = log.dies(log.clean, steps)
        log.crash(keep=0.0, recovery_point=4)
        assert {b"k0", b"k1", b"k2", b"k3"} == set(log.table()), f"after {steps} steps"
        if not died:
            break
    assert steps > 20


def test_a_cleaned_segment_keeps_the_time_of_the_last_one_it_replaces():
    """A cleaned segment has the file time of the last segment that it replaces, because retention may use this time."""
    log = CompactedLog()
    log.fill(keys=4, rounds=5)
    for segment in log.log.chain.segments[:-1]:
        segment.set_modified_time(Timestamp(1000 + segment.base_offset))
    done = log.clean()
    assert [1000 + done.segments_before[-1]] == [s.modified_time for s in log.log.chain.segments[:-1]]


@pytest.mark.parametrize(("retention_ms", "left"), [(500, [3]), (950, [0, 3])])
def test_tombstones_of_old_formats_go_by_the_newest_clean_segment(retention_ms, left):
    """A tombstone of an old format is dropped according to the time of its segment's file.

    It is dropped if this file is delete.retention.ms older than the file of the last clean segment.
    """
    log = CompactedLog(delete_retention_ms=retention_ms)
    log.log.appender.append_as_follower(bytearray(old_entry(0, None, key=b"gone", timestamp=NOW)))
    log.log.appender.roll()
    for number in (1, 2, 3):
        log.put((b"k", b"%d" % number))
        log.log.appender.roll()
    for segment, modified in zip(log.log.chain.segments, (100, 1000, 1000, 1000), strict=False):
        segment.set_modified_time(Timestamp(modified))
    log.checkpoint = Offset(2)
    log.clean()
    assert [r.offset for r in log.records()] == left


def test_cached_read_positions_end_with_the_old_files():
    """A read after a pass finds its record, although the record's position in the file has changed."""
    log = CompactedLog()
    for pair in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3"), (b"c", b"4")):
        log.put(pair)
    log.log.appender.roll()
    for offset in range(3):
        assert log.log.read(Offset(offset), max_bytes=1).next_offset == offset + 1
    log.clean()
    assert 4 == log.log.read(Offset(3), max_bytes=1).next_offset


def test_a_read_that_began_before_a_pass_leaves_no_cached_position():
    """If a read begins before a pass, the read stores no position of an old file for later readers."""
    log = CompactedLog()
    for pair in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3"), (b"c", b"4")):
        log.put(pair)
    log.log.appender.roll()
    state = log.log.parts.state
    log.clean()
    fetch(state, state.end, Offset(2), 1)
    assert 4 == log.log.read(Offset(3), max_bytes=1).next_offset
