"""Where a log begins and ends, and what may not pass: the edges that DeleteRecords, truncation and rolls keep."""

from __future__ import annotations

import pytest

from storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from storage.codec.records import BatchStamp
from storage.errors import InvalidTimestampError, OffsetOutOfRangeError
from storage.model import Isolation, Offset, ProducerId, Timestamp
from storage.producers.append import Origin
from tests.doubles.logs import LogOnDisk, batch, offsets_of, records_of, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk

NOW = Timestamp(1_700_000_000_000)
HOUR_MS = 3_600_000


def transactional(*values, sequence=0):
    stamp = BatchStamp(
        producer_id=ProducerId(7), producer_epoch=0, base_sequence=sequence, transactional=True
    )
    return batch(*values, timestamp=NOW, stamp=stamp)


def abort():
    return encode_marker(
        EndTransactionMarker(ControlType.ABORT, 0), timestamp=NOW, producer_id=ProducerId(7), producer_epoch=0
    )


def test_records_are_deleted_up_to_the_high_watermark():
    """Row 73: what is not replicated cannot be deleted, and -1 means up to there, not up to the log end."""
    on_disk = LogOnDisk()
    for _ in range(6):
        on_disk.log.append(batch(b"v"))
    on_disk.reopen(high_watermark=4)
    with pytest.raises(OffsetOutOfRangeError):
        on_disk.log.delete_records(Offset(5))
    assert 0 == on_disk.log.log_start_offset
    assert 4 == on_disk.log.delete_records(Offset(-1))
    assert (4, 4, 6) == (
        on_disk.log.log_start_offset,
        on_disk.log.high_watermark,
        on_disk.log.log_end_offset,
    )


@pytest.mark.parametrize("segment_bytes", [300, 10_000])
def test_a_truncation_below_the_log_start_takes_it_down(segment_bytes):
    """A log never begins behind its end; and what is appended then is read, also after a restart."""
    on_disk = LogOnDisk(internal_segment_bytes=segment_bytes)
    for _ in range(8):
        on_disk.log.append(sized_batch(140))
    on_disk.log.delete_records(Offset(7))
    on_disk.log.truncate_to(Offset(5))
    assert (5, 5) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)
    assert 5 == on_disk.log.append(sized_batch(140)).base_offset
    assert [5] == offsets_of(on_disk.log)
    on_disk.reopen(log_start_offset=5)
    assert [5] == offsets_of(on_disk.log)


def test_a_truncation_at_an_aborts_marker_opens_its_transaction_again():
    """The marker is the first record that goes: so the transaction is neither aborted nor ended any more."""
    on_disk = LogOnDisk()
    log = on_disk.log
    log.append(transactional(b"a", b"b"))
    log.append(abort(), origin=Origin.COORDINATOR)
    assert (1, 3) == (len(log.aborted), log.offsets().last_stable_offset)
    log.truncate_to(Offset(2))
    assert ((), 0) == (log.aborted, log.offsets().last_stable_offset)
    log.append(transactional(b"c", sequence=2))
    for each in (log, on_disk.kill()):
        assert ((), 0, 3) == (each.aborted, each.offsets().last_stable_offset, each.log_end_offset)
        everything = each.read(Offset(0), max_bytes=10_000, isolation=Isolation.READ_UNCOMMITTED)
        assert (3, ()) == (everything.next_offset, everything.aborted)


def test_a_truncation_takes_the_first_dirty_offset_down():
    """What is appended then at offsets that were clean was never cleaned."""
    log = LogOnDisk().log
    log.append(batch(b"a", b"b", b"c"))
    log.append(batch(b"d"))
    for first_dirty, left in ((Offset(4), 3), (Offset(1), 1)):
        log.first_dirty_offset = first_dirty
        log.truncate_to(Offset(3))
        assert left == log.first_dirty_offset


def test_an_append_of_several_batches_rolls_by_the_latest_of_them():
    """Wherever it stands among them."""
    for times in ((10, 5001, 20), (5001, 10, 20), (10, 20, 5001)):
        on_disk = LogOnDisk(segment_ms=5000)
        on_disk.log.append(batch(b"first", timestamp=0))
        on_disk.log.append(bytearray().join([batch(b"v", timestamp=time) for time in times]))
        assert [0, 1] == on_disk.base_offsets()


def test_an_append_of_several_batches_that_is_not_late_goes_on():
    """The latest of them is as late as a segment may be."""
    on_disk = LogOnDisk(segment_ms=5000)
    on_disk.log.append(batch(b"first", timestamp=0))
    on_disk.log.append(bytearray().join([batch(b"v", timestamp=time) for time in (10, 5000, 20)]))
    assert [0] == on_disk.base_offsets()


@pytest.mark.parametrize("encoded_here", [True, False])
def test_a_record_may_be_as_far_ahead_as_the_limit(encoded_here):
    """Exactly message.timestamp.after.max.ms is taken, a millisecond more is not, whoever made the batch."""
    on_disk = LogOnDisk(message_timestamp_after_max_ms=HOUR_MS)
    ahead = on_disk.clock.now + HOUR_MS
    stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
    for each in (BatchStamp(), stamp):
        on_disk.log.append(batch(b"v", timestamp=ahead, stamp=each), encoded_here=encoded_here)
        with pytest.raises(InvalidTimestampError):
            on_disk.log.append(
                batch(b"v", timestamp=ahead + 1, stamp=each),
                encoded_here=encoded_here,
            )


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_whose_roll_was_undone_does_not_come_back(seed):
    """It would stand in the way of the records that were appended in its place, durably."""
    on_disk = LogOnDisk(disk=SimulatedDisk(seed=seed))
    on_disk.log.append(batch(b"a"), durable=True)
    on_disk.disk.fail("write_bytes", suffix=".snapshot")
    with pytest.raises(OSError, match="Input/output"):
        on_disk.log.roll()
    on_disk.log.append(batch(b"b"), durable=True)
    on_disk.crash(keep=0.5, recovery_point=2)
    assert [(0, b"a"), (1, b"b")] == records_of(on_disk.log)


def test_a_segment_whose_records_are_of_1970_is_that_old():
    """0 is a time; only where no record has one does the file's own time count."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"v", timestamp=0))
    assert 0 == on_disk.log.segments()[0].largest_timestamp
    on_disk.log.roll()
    on_disk.log.append(batch(b"v", timestamp=-1))
    assert on_disk.disk.time == on_disk.log.segments()[1].largest_timestamp


def test_readers_places_are_bounded(monkeypatch):
    """Any number of readers at different places; those that read on find theirs, or search for it."""
    monkeypatch.setattr("storage.log.read._MAX_HINTS", 8)
    log = LogOnDisk().log
    for _ in range(40):
        log.append(batch(b"v"))
    for offset in range(40):
        assert offset + 1 == log.read(Offset(offset), max_bytes=1).next_offset
        assert len(log._reader._places) <= 8
