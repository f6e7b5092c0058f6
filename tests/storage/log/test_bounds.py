"""Tests of a log's start and end, and of the limits that DeleteRecords, truncation and rolls observe."""

from __future__ import annotations

import errno
import struct
from itertools import groupby
from pathlib import Path

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of, records_of
from tests.doubles.mortal_disk import MortalDisk, dies
from tests.doubles.records import NOW, batch, marker, produced, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.records import BatchStamp
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.duties.plan import PlannedDeletion, plan_log
from topicfs.storage.errors import InvalidRecordError, InvalidTimestampError, OffsetOutOfRangeError
from topicfs.storage.model import MAX_OFFSET, Isolation, Offset, ProducerId
from topicfs.storage.producers.append import Origin
from topicfs.storage.retention import apply_retention

HOUR_MS = 3_600_000


def test_records_are_deleted_up_to_the_high_watermark():
    """Row 73: DeleteRecords stops at the high watermark. The offset -1 means the high watermark."""
    on_disk = LogOnDisk()
    for _ in range(6):
        on_disk.log.append(batch(b"v"))
    on_disk.reopen(high_watermark=4)
    with pytest.raises(OffsetOutOfRangeError):
        on_disk.log.delete_records(Offset(5))
    assert 0 == on_disk.log.log_start_offset
    assert 4 == on_disk.log.delete_records(Offset(-1))
    assert 4 == on_disk.log.log_start_offset
    assert (4, 6) == (on_disk.log.high_watermark, on_disk.log.log_end_offset)


@pytest.mark.parametrize("limit", [{"retention_ms": 1000}, {"retention_ms": -1, "retention_bytes": 0}])
def test_retention_takes_and_announces_nothing_that_is_not_replicated(limit):
    """Row 73: retention plans and deletes only segments that are completely below the high watermark."""
    on_disk = LogOnDisk(internal_segment_bytes=150, **limit)
    for _ in range(6):
        on_disk.log.append(sized_batch(140, timestamp=on_disk.clock()))
    on_disk.reopen(high_watermark=4)
    on_disk.clock.advance(HOUR_MS)
    announced = [step for step in plan_log(on_disk.log, on_disk.clock()) if isinstance(step, PlannedDeletion)]
    assert [0, 1, 2, 3] == [step.base_offset for step in announced]
    apply_retention(on_disk.log, on_disk.clock())
    assert [4, 5] == on_disk.base_offsets()


@pytest.mark.parametrize("segment_bytes", [300, 10_000])
def test_a_truncation_below_the_log_start_takes_it_down(segment_bytes):
    """A truncation below the log start lowers the log start. Records appended later are read, even after a restart."""
    on_disk = LogOnDisk(internal_segment_bytes=segment_bytes)
    for _ in range(8):
        on_disk.log.append(sized_batch(140))
    on_disk.log.delete_records(Offset(7))
    on_disk.log.replacer.truncate_to(Offset(5))
    assert (5, 5) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)
    assert 5 == on_disk.log.append(sized_batch(140)).base_offset
    assert [5] == offsets_of(on_disk.log)
    on_disk.reopen(log_start_offset=5)
    assert [5] == offsets_of(on_disk.log)


def test_a_truncation_at_an_aborts_marker_opens_its_transaction_again():
    """Truncating the log at an abort's marker makes the transaction open again, even after a kill."""
    on_disk = LogOnDisk()
    log = on_disk.log
    log.append(produced(b"a", b"b", txn=True))
    log.append(marker(commit=False), origin=Origin.COORDINATOR)
    assert (1, 3) == (len(log.aborted), log.offsets().last_stable_offset)
    assert [3, 3] == [log.visible_end(isolation) for isolation in Isolation]
    log.replacer.truncate_to(Offset(2))
    assert ((), 0) == (log.aborted, log.offsets().last_stable_offset)
    assert [] == list(log.chain.active.transaction_index)
    log.append(produced(b"c", sequence=2, txn=True))
    for each in (log, on_disk.kill()):
        assert ((), 0, 3) == (each.aborted, each.offsets().last_stable_offset, each.log_end_offset)
        assert 0 == each.visible_end(Isolation.READ_COMMITTED)
        assert 3 == each.visible_end(Isolation.READ_UNCOMMITTED)
        everything = each.read(Offset(0), max_bytes=10_000, isolation=Isolation.READ_UNCOMMITTED)
        assert (3, ()) == (everything.next_offset, everything.aborted)


def test_a_truncation_takes_the_first_dirty_offset_down():
    """A truncation lowers the first dirty offset to the new log end, so later appends count as dirty."""
    log = LogOnDisk().log
    log.append(batch(b"a", b"b", b"c"))
    log.append(batch(b"d"))
    for first_dirty, left in ((Offset(4), 3), (Offset(1), 1)):
        log.parts.first_dirty_offset = first_dirty
        log.replacer.truncate_to(Offset(3))
        assert left == log.parts.first_dirty_offset


@pytest.mark.parametrize(
    ("times", "bases"),
    [((10, 5001, 20), [0, 1]), ((5001, 10, 20), [0, 1]), ((10, 20, 5001), [0, 1]), ((10, 5000, 20), [0])],
)
def test_an_append_of_several_batches_rolls_by_the_latest_of_them(times, bases):
    """An append rolls if any of its batches is more than segment.ms after the segment's first batch."""
    on_disk = LogOnDisk(segment_ms=5000)
    on_disk.log.append(batch(b"first", timestamp=0))
    on_disk.log.append(bytearray().join([batch(b"v", timestamp=time) for time in times]))
    assert bases == on_disk.base_offsets()


@pytest.mark.parametrize("encoded_here", [True, False])
def test_a_record_may_be_as_far_ahead_as_the_limit(encoded_here):
    """A timestamp exactly message.timestamp.after.max.ms ahead is accepted. One millisecond more is refused."""
    on_disk = LogOnDisk(message_timestamp_after_max_ms=HOUR_MS)
    ahead = on_disk.clock.now + HOUR_MS
    of_a_producer = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
    for stamp in (BatchStamp(), of_a_producer):
        on_disk.log.append(batch(b"v", timestamp=ahead, stamp=stamp), encoded_here=encoded_here)
        late = batch(b"v", timestamp=ahead + 1, stamp=stamp)
        with pytest.raises(InvalidTimestampError):
            on_disk.log.append(late, encoded_here=encoded_here)


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_whose_roll_was_undone_does_not_come_back(seed):
    """If a roll was undone, its files do not return after a crash, so they never hide later records."""
    on_disk = LogOnDisk(disk=SimulatedDisk(seed=seed))
    on_disk.log.append(batch(b"a"), durable=True)
    on_disk.disk.fail("write_bytes", suffix=".snapshot")
    with pytest.raises(OSError, match="Input/output"):
        on_disk.log.appender.roll()
    on_disk.log.append(batch(b"b"), durable=True)
    on_disk.crash(keep=0.5, recovery_point=2)
    assert [(0, b"a"), (1, b"b")] == records_of(on_disk.log)


def test_a_segment_whose_records_are_of_1970_is_that_old():
    """Timestamp 0 counts as a time. The file's time counts only if no record has a timestamp."""
    on_disk = LogOnDisk()
    on_disk.disk.time = 4711
    on_disk.log.append(batch(b"v", timestamp=-1))
    assert -1 == on_disk.log.status().last_timestamp
    assert 4711 == on_disk.log.segments()[0].largest_timestamp
    on_disk.log.appender.roll()
    on_disk.log.append(batch(b"v", timestamp=0))
    assert 0 == on_disk.log.segments()[1].largest_timestamp


def test_cached_read_positions_are_limited(monkeypatch):
    """The number of cached read positions is limited, but all readers find their records."""
    monkeypatch.setattr("topicfs.storage.log.reading.fetch._MAX_PLACES", 8)
    log = LogOnDisk().log
    for _ in range(40):
        log.append(batch(b"v"))
    for offset in range(40):
        assert offset + 1 == log.read(Offset(offset), max_bytes=1).next_offset
        assert len(log.parts.state.places) <= 8


def test_a_roll_trims_indexes_before_the_next_segment_exists():
    """A roll trims the indexes of a segment before the next segment exists.

    The unused slots of an untrimmed index would be read as entries.
    """
    for steps in range(50):
        disk = MortalDisk()
        on_disk = LogOnDisk(disk=disk, index_interval_bytes=0)
        for number in range(3):
            on_disk.log.append(sized_batch(100, timestamp=number + 1))
        died = dies(disk, on_disk.log.appender.roll, steps)
        if f"{3:020}.log" in on_disk.names():
            for kind in ("index", "timeindex"):
                assert not on_disk.content(f"{0:020}.{kind}").endswith(bytes(8)), f"after {steps} steps"
        if not died:
            break
    assert steps > 3


def test_a_producer_of_which_no_record_is_left_is_forgotten_at_a_restart():
    """If all records of a producer were deleted, the producer is unknown after a restart."""
    on_disk = LogOnDisk()
    on_disk.log.append(produced())
    on_disk.log.delete_records(Offset(1))
    assert on_disk.log.append(produced()).duplicate
    on_disk.reopen(log_start_offset=1)
    assert [] == on_disk.log.producers()
    assert 1 == on_disk.log.append(produced()).base_offset


def test_a_replacement_is_on_disk_step_by_step():
    """A replacement of segments is synced three times.

    The directory is synced when the new files have `.swap` names, before the old files are removed, and when the new
    files have their final names.
    """
    on_disk = LogOnDisk(
        internal_segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0
    )
    for number in range(5):
        on_disk.log.append(sized_batch(140, timestamp=NOW, key=b"%d" % (number % 2)))
    on_disk.disk.calls.clear()
    clean(on_disk.log, plan(cleaning_params(on_disk.log, Offset(0), NOW)), now=NOW)
    steps = [
        call if call == "sync_directory" else Path(path).suffix
        for call, path in on_disk.disk.calls
        if call in ("rename", "sync_directory")
    ]
    steps = [step for step, _ in groupby(steps)]
    begin = steps.index(".cleaned")
    assert [".cleaned", "sync_directory"] == steps[begin : begin + 2]
    swapped = steps.index(".swap", begin)
    assert "sync_directory" not in steps[begin + 2 : swapped]
    assert "sync_directory" == steps[swapped + 1]


@pytest.mark.parametrize("encoded_here", [True, False])
def test_no_append_uses_the_reserve(encoded_here: bool):
    """While the reserve is in use, an append is refused, even a small append that skips checks."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"), encoded_here=True)
    assert len(batch(b"b")) < on_disk.log.chain.active.bytes_until_due
    on_disk.log.parts.append_gate.closed = True
    with pytest.raises(OSError, match="the disk is full") as refused:
        on_disk.log.append(batch(b"b"), encoded_here=encoded_here)
    assert errno.ENOSPC == refused.value.errno
    assert [(0, b"a")] == records_of(on_disk.log)


def _append_as_follower(log, data):
    position, offset = 0, log.log_end_offset
    for header in list(scan(data)):
        struct.pack_into(">Q", data, header.position, offset & 2**64 - 1)
        position, offset = header.end_position, offset + header.record_count
    assert position == len(data)
    log.appender.append_as_follower(data)


WAYS = [
    pytest.param(lambda log, data: log.append(data, encoded_here=True), id="own batches"),
    pytest.param(lambda log, data: log.append(data), id="batches of others"),
    pytest.param(_append_as_follower, id="as follower"),
]


@pytest.mark.parametrize("append", WAYS)
@pytest.mark.parametrize("too_many", [[2], [3], [1, 1], [1, 1, 1]], ids=str)
def test_no_record_gets_an_offset_at_which_it_cannot_be_read(append, too_many):
    """An append beyond MAX_OFFSET is refused as a whole. All earlier records can be read, even after a kill."""
    on_disk = LogOnDisk()
    on_disk.log.replacer.truncate_fully_and_start_at(Offset(MAX_OFFSET - 2))
    append(on_disk.log, batch(b"a"))
    append(on_disk.log, batch(b"b"))
    with pytest.raises(InvalidRecordError):
        append(on_disk.log, bytearray().join(batch(*[b"x"] * count) for count in too_many))
    append(on_disk.log, batch(b"c"))
    with pytest.raises(InvalidRecordError):
        append(on_disk.log, batch(b"x"))
    expected = [(MAX_OFFSET - 2, b"a"), (MAX_OFFSET - 1, b"b"), (MAX_OFFSET, b"c")]
    for log in (on_disk.log, on_disk.reopen(), on_disk.kill()):
        assert expected == records_of(log)
        assert MAX_OFFSET + 1 == log.log_end_offset
