"""Tests of appending as leader and as follower: accepted batches, their offsets, and the log's state on failure."""

from __future__ import annotations

import errno
import threading
from random import Random

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of, records_of
from tests.doubles.records import batch, marker, old_entry, produced, sized_batch
from tests.doubles.waiting import wait_until
from topicfs.storage import errors
from topicfs.storage.codec.batch import read_header, seal
from topicfs.storage.codec.binary.fields import LENGTH_POSITION, RECORD_COUNT_POSITION
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.model import Appended, Offset, TimestampType


def test_offsets_and_epoch_are_assigned():
    """An append writes the batch's offsets, from the log end on, and the leader epoch into the caller's buffer."""
    on_disk = LogOnDisk()
    first = batch(b"a", b"b", offset=77, epoch=5)
    assert Appended(0, 1, -1, 0) == on_disk.log.append(first)
    assert Appended(2, 2, -1, 0) == on_disk.log.append(batch(b"c"))
    header = read_header(first)
    assert (0, 1, 0) == (header.base_offset, header.last_offset, header.leader_epoch)
    assert [(0, b"a"), (1, b"b"), (2, b"c")] == records_of(on_disk.log)
    assert 3 == on_disk.log.offsets().high_watermark


def test_batches_encoded_here_give_the_same_files():
    """Batches that this process encodes give the same files, results and rolls as batches of a client."""
    believed, checked = (LogOnDisk(internal_segment_bytes=8192) for _ in range(2))
    for number in range(60):
        data = batch(b"%d" % number) + batch(b"x" * 10 * number, b"y", timestamp=1)
        assert checked.log.append(bytearray(data)) == believed.log.append(data, encoded_here=True)
    assert len(believed.log.chain.segments) > 3
    assert checked.disk.tree() == believed.disk.tree()


@pytest.mark.parametrize("seed", range(12))
def test_small_appends_give_the_same_files(seed: int):
    """Small appends that skip checks give the same files and results as full appends.

    In this test timestamps go back and far ahead, settings change, and logs are truncated. Some batches come from
    clients.
    """
    random = Random(seed)
    limits = {"internal_segment_bytes": 8192, "segment_ms": 1000, "segment_index_bytes": (60, 1200)[seed % 2]}
    logs = believed, checked = tuple(
        LogOnDisk(index_interval_bytes=500, max_message_bytes=400, **limits) for _ in range(2)
    )
    short = 0
    for _ in range(600):
        ahead = random.choice((0, 0, 0, 1, -1, -900, 700, 3_600_000, 3_600_001)) if seed % 3 else 0
        timestamp = -1 if random.random() < 0.2 else believed.clock() + ahead
        data = batch(bytes(random.choice((0, 10, 50, 350))), timestamp=timestamp)
        short += len(data) <= believed.log.chain.active.bytes_until_due
        here = random.random() < 0.8
        assert _answer(checked, bytearray(data)) == _answer(believed, data, encoded_here=here)
        change, milliseconds = random.randrange(40), random.choice((0, 0, 0, 1, -5, 400))
        setting = {"segment_ms": random.choice((5, 500, 5000))}
        if random.random() < 0.5:
            setting = {"internal_segment_bytes": random.choice((1000, 4096, 8192))}
        for each in logs:
            each.clock.advance(milliseconds)
            if change == 0:
                each.log.update_config(each.log.config._replace(**setting))
            elif change == 1:
                each.log.replacer.truncate_to(Offset(each.log.log_end_offset - 2))
            elif change == 2:
                each.log.appender.roll()
    assert short > 100
    assert len(believed.log.chain.segments) > 3
    assert checked.disk.tree() == believed.disk.tree()


def test_small_appends_roll_after_the_last_offset_of_a_segment():
    """Small appends roll when an offset would be 2^31 or more above the segment's base."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    on_disk.log.appender.append_as_follower(batch(b"b", offset=2**31 - 3))
    for _ in range(4):
        on_disk.log.append(batch(b"c"), encoded_here=True)
    assert [0, 2**31] == on_disk.base_offsets()


def _answer(on_disk: LogOnDisk, data: bytearray, *, encoded_here: bool = False) -> Appended | type[Exception]:
    try:
        return on_disk.log.append(data, encoded_here=encoded_here)
    except (errors.InvalidTimestampError, errors.RecordTooLargeError) as error:
        return type(error)


def test_the_epoch_is_on_disk_before_the_first_record():
    """The first append writes epoch 0 at offset 0 to the epoch file."""
    on_disk = LogOnDisk()
    assert b"" == on_disk.content("leader-epoch-checkpoint")
    on_disk.log.append(batch(b"a"))
    assert b"0\n1\n0 0\n" == on_disk.content("leader-epoch-checkpoint")


def changed(position: int, octets: bytes) -> bytearray:
    """Return a batch of three records with other bytes at a position and a valid checksum."""
    data = batch(b"a", b"b", b"c")
    data[position : position + len(octets)] = octets
    seal(data, 0, len(data))
    return data


def miscounted(count: int, last_delta: int) -> bytearray:
    """Return a batch of three records whose header has these numbers."""
    data = changed(RECORD_COUNT_POSITION, count.to_bytes(4, "big"))
    data[23:27] = last_delta.to_bytes(4, "big", signed=True)
    seal(data, 0, len(data))
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytearray(), "without a record batch"),
        (batch(b"a")[:-1], "before its declared size"),
        (batch(b"a") + b"x", "before its declared size"),
        (batch(b"a")[:-1] + b"\1", "checksum"),
        (marker(), "come from coordinators"),
        (batch(b"a", stamp=BatchStamp(control=True, transactional=True)), "come from coordinators"),
        (produced(sequence=-1), "numbers its records from 0"),
        (miscounted(3, 0), "3 records with a last offset delta of 0"),
        (miscounted(3, 15), "3 records with a last offset delta of 15"),
        (miscounted(2, 2), "2 records with a last offset delta of 2"),
        (miscounted(3, -3), "offsets out of range"),
        (miscounted(6, 5), "6 records declared"),
        (miscounted(2, 1), "bytes remain"),
        (encode([], base_offset=0, last_offset=0), "0 records with a last offset delta of 0"),
        (changed(61, b"\1"), "not a record batch"),
        (changed(LENGTH_POSITION, b"\xff"), "length -"),
        (changed(16, b"\3"), "magic"),
        (old_entry(0, b"v"), "format 1"),
    ],
)
def test_batches_that_no_client_may_append(data, message):
    """Rows 122, 123 and 128: torn, damaged, control, miscounted, empty and old batches are refused.

    The disk does not change. Only compaction leaves batches without records.
    """
    on_disk = LogOnDisk()
    before = on_disk.disk.tree()
    with pytest.raises(errors.InvalidRecordError, match=message):
        on_disk.log.append(data)
    assert before == on_disk.disk.tree()
    assert 0 == on_disk.log.log_end_offset


def test_max_message_bytes_binds_leaders_only():
    """Row 61: max.message.bytes limits a client's batch, but not a follower's."""
    on_disk = LogOnDisk(max_message_bytes=200)
    on_disk.log.append(sized_batch(200))
    with pytest.raises(errors.RecordTooLargeError, match=r"201 bytes, max.message.bytes is 200"):
        on_disk.log.append(sized_batch(201))
    on_disk.log.appender.append_as_follower(sized_batch(500, offset=1))
    assert [0, 1] == offsets_of(on_disk.log)


@pytest.mark.parametrize("encoded_here", [True, False])
def test_an_append_larger_than_a_segment_is_refused(encoded_here: bool):
    """Row 62: an append larger than segment.bytes is refused, whoever encoded it."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    on_disk.log.append(sized_batch(100) * 3, encoded_here=encoded_here)
    with pytest.raises(errors.RecordTooLargeError, match=r"segment.bytes is 300"):
        on_disk.log.append(sized_batch(100) * 3 + sized_batch(70), encoded_here=encoded_here)
    assert [0, 1, 2] == offsets_of(on_disk.log)


def test_a_producers_log_append_time():
    """A client's batch with LogAppendTime is stored with CreateTime.

    The batch is refused if it has no timestamp, or if the topic itself sets the append time.
    """
    stamp = BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME)
    on_disk = LogOnDisk()
    data = batch(b"a", timestamp=7, stamp=stamp)
    on_disk.log.append(data)
    assert TimestampType.CREATE_TIME is read_header(data).timestamp_type
    with pytest.raises(errors.InvalidTimestampError):
        on_disk.log.append(batch(b"a", timestamp=-1, stamp=stamp))
    stamping = LogOnDisk(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(errors.InvalidTimestampError):
        stamping.log.append(batch(b"a", timestamp=7, stamp=stamp))


@pytest.mark.parametrize("interval_bytes", [0, 4096])
def test_a_full_disk_keeps_nothing(interval_bytes: int):
    """On a full disk an append leaves no bytes, even if index entries are due. Once there is space, appends succeed."""
    on_disk = LogOnDisk(index_interval_bytes=interval_bytes)
    on_disk.log.append(batch(b"a"))
    on_disk.log.append(batch(b"b"))
    before = on_disk.content("00000000000000000000.log")
    on_disk.disk.fill(512)
    with pytest.raises(OSError) as full:
        on_disk.log.append(batch(b"c" * 2000), encoded_here=True)
    assert errno.ENOSPC == full.value.errno
    assert before == on_disk.content("00000000000000000000.log")
    assert [0, 1] == offsets_of(on_disk.log)
    on_disk.disk.fill(None)
    assert 2 == on_disk.log.append(batch(b"c"), encoded_here=True).base_offset
    assert [0, 1, 2] == offsets_of(on_disk.kill())


def test_a_full_disk_during_a_roll():
    """If a new segment's files do not fit, the append fails and the old segment stays active."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    on_disk.log.append(sized_batch(250))
    for operation in ("open", "write_bytes", "pwrite"):
        on_disk.disk.fail(operation, number=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            on_disk.log.append(sized_batch(250))
        assert [0] == on_disk.base_offsets()
        assert "00000000000000000001.log" not in on_disk.names()
    on_disk.log.append(sized_batch(250))
    assert [0, 1] == on_disk.base_offsets()
    assert [0, 1] == offsets_of(on_disk.log)


@pytest.mark.parametrize("encoded_here", [True, False])
def test_a_failed_write_that_cannot_be_undone_takes_the_log_offline(encoded_here: bool):
    """If both the write and the truncation fail, the file's content is unknown, and the log goes offline."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"), encoded_here=encoded_here)
    on_disk.disk.fail("pwrite", suffix=".log")
    on_disk.disk.fail("truncate", suffix=".log")
    with pytest.raises(errors.PartitionOfflineError, match="could not be undone"):
        on_disk.log.append(batch(b"b"), encoded_here=encoded_here)
    with pytest.raises(errors.PartitionOfflineError):
        on_disk.log.append(batch(b"b"), encoded_here=encoded_here)
    assert on_disk.log.status().state.startswith("offline: ")
    assert [0] == offsets_of(on_disk.log)


def test_a_failed_sync_takes_the_log_offline():
    """A failed sync may have lost a page, so the log accepts no writes until it is loaded again."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"), durable=True)
    on_disk.disk.fail("sync", suffix=".log")
    with pytest.raises(OSError, match="Input/output"):
        on_disk.log.append(batch(b"b"), durable=True)
    for attempt in (lambda: on_disk.log.append(batch(b"c")), on_disk.log.sync, on_disk.log.appender.roll):
        with pytest.raises(errors.PartitionOfflineError):
            attempt()
    assert 1 == on_disk.log.offsets().recovery_point
    assert [0, 1] == offsets_of(on_disk.log)
    on_disk.log.close()
    assert [0] == offsets_of(on_disk.crash(keep=1.0, recovery_point=1))


def test_flush_messages():
    """An append flushes the log if at least flush.messages records are unflushed."""
    on_disk = LogOnDisk(flush_messages=3)
    on_disk.log.append(batch(b"a", b"b"))
    assert 2 == on_disk.log.parts.unflushed_records
    on_disk.log.append(batch(b"c"))
    assert 0 == on_disk.log.parts.unflushed_records
    assert [0, 1, 2] == offsets_of(on_disk.crash(keep=0.0))


def test_durable_appends_are_on_disk():
    """A record appended with `durable` survives any later crash, even if it is the first record of a segment."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for number in range(5):
        on_disk.log.append(sized_batch(200), durable=True)
        assert number + 1 == on_disk.log.offsets().recovery_point
    assert [0, 1, 2, 3, 4] == offsets_of(on_disk.crash(keep=0.0))


def test_flushing_up_to_an_offset():
    """Flushing up to an offset flushes the segments below it, and moves the recovery point to their end."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for _ in range(3):
        on_disk.log.append(sized_batch(200))
    on_disk.log.appender.flush(on_disk.base_offsets()[-1])
    assert 2 == on_disk.log.recovery_point
    on_disk.log.appender.flush(1)
    assert 2 == on_disk.log.recovery_point
    assert [0, 1] == offsets_of(on_disk.crash(keep=0.0, recovery_point=2))


def test_followers_keep_offsets():
    """Row 57: a follower keeps gaps between offsets. A read that begins inside a gap returns the next record."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    offsets = [0, 50, 51, 52, 70, 1000]
    for offset in offsets:
        on_disk.log.appender.append_as_follower(sized_batch(150, offset=offset, epoch=3))
    assert offsets == offsets_of(on_disk.log)
    assert len(on_disk.base_offsets()) > 2
    for start, expected in ((1, 50), (53, 70), (71, 1000), (999, 1000)):
        assert expected == offsets_of(on_disk.log, start)[0]
    assert 1001 == on_disk.log.log_end_offset


def test_followers_offsets_ascend():
    """A follower refuses a whole append if it begins below the log end, or if its offsets do not ascend."""
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(batch(b"a", offset=5))
    with pytest.raises(errors.InvalidRecordError, match="log ends at 6"):
        on_disk.log.appender.append_as_follower(batch(b"b", offset=5))
    with pytest.raises(errors.InvalidRecordError, match="log ends at 10"):
        on_disk.log.appender.append_as_follower(batch(b"b", offset=9) + batch(b"c", offset=8))
    assert [5] == offsets_of(on_disk.log)


def test_a_followers_segment_is_based_at_its_first_offset():
    """Row 39: batches at 0 and 2^31+1 need two segments. The second one has a snapshot and the base offset 2^31+1."""
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(batch(b"a", offset=0))
    on_disk.log.appender.append_as_follower(batch(b"b", offset=2**31 + 1))
    assert [0, 2**31 + 1] == on_disk.base_offsets()
    assert f"{2**31 + 1:020d}.snapshot" in on_disk.names()
    assert [0, 2**31 + 1] == offsets_of(on_disk.log)


def test_a_segment_for_an_old_batch_is_based_as_early_as_fits():
    """Row 39: the base offset of a new segment for a compressed old batch is the batch's last offset - (2^31 - 1).

    The header of such a batch has only the last offset, so the first offset is not known.
    """
    on_disk = LogOnDisk()
    for offset in (0, 2**31 + 2):
        on_disk.log.appender.append_as_follower(bytearray(old_entry(offset, b"v")))
    assert [0, 3] == on_disk.base_offsets()
    assert 2**31 + 3 == on_disk.log.log_end_offset


def test_a_segment_for_old_batches_has_room_for_the_last_of_them():
    """A new segment's base offset is computed from the append's last offset, so that indexes can hold all offsets."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    on_disk.log.appender.append_as_follower(bytearray(old_entry(0, b"v")))
    on_disk.log.appender.append_as_follower(bytearray(old_entry(9, b"v") + old_entry(2**31 + 5, b"v")))
    assert [0, 6] == on_disk.base_offsets()
    assert [0, 9, 2**31 + 5] == offsets_of(on_disk.log)


def test_epochs_of_a_leader_are_noted():
    """A follower's epoch file gets each new epoch with the offset of its first batch."""
    on_disk = LogOnDisk()
    for offset, epoch in ((0, 1), (1, 1), (2, 2), (5, 4)):
        on_disk.log.appender.append_as_follower(batch(b"a", offset=offset, epoch=epoch))
    assert ((1, 0), (2, 2), (4, 5)) == on_disk.log.epochs.entries


def test_listeners_hear_of_appends_until_they_cancel():
    """A listener is called after each change of the end or start, until it cancels. Cancelling twice is harmless."""
    on_disk = LogOnDisk()
    heard = []
    cancel = on_disk.log.listen(lambda: heard.append(on_disk.log.log_end_offset))
    on_disk.log.append(batch(b"a"))
    on_disk.log.appender.append_as_follower(batch(b"b", offset=1))
    on_disk.log.delete_records(1)
    cancel()
    cancel()
    on_disk.log.append(batch(b"c"))
    assert [1, 2, 2] == heard


def test_a_read_only_log_takes_nothing():
    """Each change of a read-only log raises ReadOnlyError."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    on_disk.log.close()
    shown = on_disk.load(clean=True, disk=on_disk.disk.read_only_view())
    for attempt in (
        lambda: shown.append(batch(b"b")),
        lambda: shown.delete_records(1),
        lambda: shown.replacer.truncate_to(0),
        shown.appender.roll,
    ):
        with pytest.raises(errors.ReadOnlyError):
            attempt()
    shown.sync()
    shown.close()


def test_appends_that_wait_for_the_disk_share_its_next_flush():
    """Durable appends that arrive during a flush share one later flush."""
    on_disk, began, may_end, flushes = LogOnDisk(), threading.Event(), threading.Event(), []
    segment = on_disk.log.chain.active
    sync = segment.sync

    def slow_sync() -> None:
        flushes.append(on_disk.log.log_end_offset)
        began.set()
        assert may_end.wait(30)
        sync()

    segment.sync = slow_sync
    threads = [
        threading.Thread(target=on_disk.log.append, args=(batch(b"v"),), kwargs={"durable": True})
        for _ in range(6)
    ]
    threads[0].start()
    assert began.wait(30)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: on_disk.log.log_end_offset == len(threads), "the log has all appends")
    may_end.set()
    for thread in threads:
        thread.join(30)
    assert [1, 6] == flushes
    assert 0 == on_disk.log.parts.unflushed_records
