"""Tests of a log's producer snapshots: when they are written, used and deleted."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of
from tests.doubles.records import NOW, batch, produced
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.model import ProducerId
from topicfs.storage.producers.snapshot import decode
from topicfs.storage.producers.state import DEFAULT_EXPIRATION_MS

EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")


def in_segments(*batches: bytearray) -> LogOnDisk:
    """Return a log with a segment for each batch, and an empty last segment."""
    on_disk = LogOnDisk()
    for data in batches:
        on_disk.log.append(data)
        on_disk.log.appender.roll()
    return on_disk


def of_producers(count: int = 4) -> LogOnDisk:
    """Return a log with a segment for each of `count` producers, and an empty last segment."""
    return in_segments(*(produced(pid=pid) for pid in range(count)))


def of_sequences(count: int) -> LogOnDisk:
    """Return a log with a segment for each of `count` batches of one producer, and an empty last segment."""
    return in_segments(*(produced(sequence=sequence) for sequence in range(count)))


def remove_snapshots(on_disk: LogOnDisk) -> None:
    for offset in on_disk.snapshots():
        on_disk.disk.unlink(on_disk.log.directory / f"{offset:020d}.snapshot")


def test_the_snapshot_of_a_roll_excludes_the_batch_that_caused_it():
    """Row 79: the snapshot of a roll covers the batches below the roll's offset, not the batch that caused the roll."""
    on_disk = LogOnDisk(internal_segment_bytes=100)
    on_disk.log.append(produced(sequence=0))
    on_disk.log.append(produced(sequence=1))
    on_disk.log.append(produced(sequence=2))
    assert [1, 2] == on_disk.snapshots()
    reloaded = on_disk.kill(recovery_point=3)
    assert reloaded.append(produced(sequence=2)).duplicate


def test_a_snapshot_is_taken_at_every_roll_even_without_producers():
    """Row 80: each roll writes a snapshot, even without producers, and a flush keeps the snapshots."""
    on_disk = in_segments(batch(b"v"), batch(b"v"), batch(b"v"))
    on_disk.log.appender.flush()
    assert [1, 2, 3] == on_disk.snapshots()
    assert EMPTY_SNAPSHOT == on_disk.content(f"{1:020d}.snapshot")


def test_an_existing_snapshot_is_not_written_again():
    """Row 97: a roll or close does not rewrite an existing snapshot."""
    on_disk = in_segments(produced())
    on_disk.disk.calls.clear()
    on_disk.log.appender.roll()
    on_disk.reopen()
    assert [] == [path for call, path in on_disk.disk.calls if call == "write_bytes" and "snapshot" in path]


def test_a_clean_log_without_snapshots_never_had_producers():
    """Rows 44 and 81: if a cleanly closed log has no snapshots, it never had producers, so it is not read.

    The log gets empty snapshots at the base offsets of its last segments and at its end.
    """
    on_disk = of_sequences(4)
    on_disk.log.close()
    remove_snapshots(on_disk)
    on_disk.disk.calls.clear()
    on_disk.log = on_disk.load(clean=True)
    assert [] == [path for call, path in on_disk.disk.calls if call == "pread" and path.endswith(".log")]
    assert [3, 4] == on_disk.snapshots()
    assert EMPTY_SNAPSHOT == on_disk.content("00000000000000000003.snapshot")


def test_recovery_takes_a_snapshot_at_every_recovered_base_and_at_the_end():
    """Rows 43 and 81: recovery writes snapshots at each base offset from the recovery point on, and at the log end."""
    on_disk = of_sequences(4)
    on_disk.log.append(produced(sequence=4))
    remove_snapshots(on_disk)
    on_disk.kill(recovery_point=3)
    assert [3, 4, 5] == on_disk.snapshots()
    remove_snapshots(on_disk)
    on_disk.kill(recovery_point=0)
    assert [1, 2, 3, 4, 5] == on_disk.snapshots()
    assert on_disk.log.append(produced(sequence=4)).duplicate


def producers_in(on_disk, offset):
    return [entry.producer_id for entry in decode(on_disk.content(f"{offset:020d}.snapshot"))]


def test_recovery_forgets_expired_producers_at_each_segments_base():
    """Recovery drops expired producers at the base offset of each segment, as a broker does."""
    on_disk = of_producers()
    on_disk.clock.now = NOW + DEFAULT_EXPIRATION_MS
    on_disk.kill()
    assert [[0], [1], [2], [3]] == [producers_in(on_disk, offset) for offset in (1, 2, 3, 4)]
    assert [] == on_disk.log.producers()


@pytest.mark.parametrize("log_start", [2, 4])
def test_recovery_leaves_no_snapshot_at_the_log_start(log_start):
    """Recovery deletes snapshots at or below the log start, and a close adds none."""
    on_disk = of_producers()
    on_disk.kill(log_start_offset=log_start)
    expected = list(range(log_start + 1, 5))
    assert expected == on_disk.snapshots()
    assert list(range(log_start, 4)) == [entry.producer_id for entry in on_disk.log.producers()]
    on_disk.log.close()
    assert expected == on_disk.snapshots()


def test_a_clean_start_deletes_the_snapshot_at_the_log_start():
    """A clean start deletes the snapshot at the log start, because the snapshot covers only deleted records."""
    on_disk = of_producers()
    on_disk.log.close()
    on_disk.log = on_disk.load(clean=True, log_start_offset=2)
    assert [3, 4] == on_disk.snapshots()


def test_a_close_takes_no_snapshot_at_a_log_start_that_was_raised_to_the_end():
    """A close writes no snapshot if DeleteRecords has moved the log start to the end."""
    on_disk = LogOnDisk()
    on_disk.log.append(produced())
    on_disk.log.delete_records(1)
    on_disk.log.close()
    assert [] == on_disk.snapshots()


def test_recovery_writes_a_snapshot_at_the_second_last_base():
    """If recovery begins at the last segment, it writes a snapshot at the previous segment's base offset as well.

    A later truncation needs this snapshot.
    """
    on_disk = of_producers(3)
    on_disk.log.append(produced(pid=3))
    remove_snapshots(on_disk)
    on_disk.kill(recovery_point=3)
    assert [2, 3, 4] == on_disk.snapshots()


def test_a_truncation_takes_a_snapshot_at_the_new_end():
    """A truncation writes a snapshot at the new end, as a broker does."""
    on_disk = LogOnDisk()
    on_disk.log.append(produced(pid=1))
    on_disk.log.append(produced(pid=2))
    on_disk.log.replacer.truncate_to(1)
    assert [1] == on_disk.snapshots()
    assert [1] == producers_in(on_disk, 1)


def test_a_segment_recovered_after_a_clean_close_takes_the_later_snapshots_along():
    """If a segment is recovered after a clean close, later snapshots are written again.

    These are the snapshots at the base offsets of the last two segments, and at the log's end.
    """
    on_disk = of_producers()
    on_disk.log.close()
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000000.index")
    on_disk.log = on_disk.load(clean=True)
    assert [1, 3, 4] == on_disk.snapshots()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [1, 2])
@pytest.mark.parametrize("damage", [b"", EMPTY_SNAPSHOT[:7], b"\0\1" + bytes(60)])
def test_a_bad_snapshot_is_deleted_and_an_older_one_used(damage, offset, clean):
    """Row 100: an empty, torn or corrupt snapshot is deleted, and the log is read from an older snapshot on."""
    on_disk = of_sequences(1)
    on_disk.log.append(produced(sequence=1))
    on_disk.log.close()
    on_disk.write(f"{offset:020d}.snapshot", damage)
    on_disk.log = on_disk.load(clean=clean)
    assert on_disk.log.append(produced(sequence=1)).duplicate
    assert 56 == len(on_disk.content(f"{2:020d}.snapshot"))


def test_stray_snapshots_except_the_newest_are_deleted():
    """Rows 47 and 102: snapshots that are not at a segment's base offset are deleted, except the newest of them."""
    on_disk = in_segments(batch(b"v"), batch(b"v"))
    on_disk.log.append(batch(b"v", b"v"))
    on_disk.log.close()
    for offset in (1, 2, 3, 4):
        on_disk.write(f"{offset:020d}.snapshot", EMPTY_SNAPSHOT)
    on_disk.log = on_disk.load(clean=True)
    assert [1, 2, 4] == on_disk.snapshots()


def test_snapshots_go_with_their_segments():
    """Row 75: retention deletes a segment together with its snapshot."""
    on_disk = in_segments(batch(b"v"), batch(b"v"), batch(b"v"))
    on_disk.log.replacer.delete_oldest_segments(2, "test")
    assert [2, 3] == on_disk.snapshots()
    assert "00000000000000000001.snapshot.deleted" in on_disk.names()


def test_a_producer_is_known_after_its_records_were_deleted_inside_a_segment():
    """Row 45: if the log start moves into a segment, the producers of the deleted records stay known.

    They are known even after a restart.
    """
    on_disk = LogOnDisk()
    on_disk.log.append(produced(pid=1))
    on_disk.log.append(produced(pid=2))
    on_disk.log.delete_records(1)
    on_disk.reopen(log_start_offset=1)
    assert on_disk.log.append(produced(pid=1)).duplicate
    assert on_disk.log.append(produced(pid=2)).duplicate


def test_a_producer_whose_segment_went_is_known_until_a_restart():
    """Row 46: a producer whose segment was deleted stays known until a restart."""
    on_disk = in_segments(produced(pid=1))
    on_disk.log.append(produced(pid=2))
    on_disk.log.delete_records(1)
    assert on_disk.log.append(produced(pid=1)).duplicate
    on_disk.kill(log_start_offset=1, recovery_point=0)
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000002.snapshot")
    on_disk.kill(log_start_offset=1, recovery_point=1)
    assert on_disk.log.append(produced(pid=2)).duplicate
    assert not on_disk.log.append(produced(pid=1)).duplicate


def test_truncation_forgets_what_came_after():
    """Row 98: a truncation restores the producers' state at the new end, and deletes later snapshots."""
    on_disk = of_sequences(4)
    on_disk.log.replacer.truncate_to(2)
    assert [1, 2] == on_disk.snapshots()
    assert on_disk.log.append(produced(sequence=1)).duplicate
    assert not on_disk.log.append(produced(sequence=2)).duplicate


def test_recovery_reads_the_sequence_of_an_emptied_batch():
    """Row 82: recovery reads the producer and its last sequence from a batch without records."""
    on_disk = LogOnDisk()
    stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0, leader_epoch=0)
    emptied = encode([], stamp, base_offset=0, last_offset=3, max_timestamp=NOW)
    on_disk.log.appender.append_as_follower(emptied)
    on_disk.kill()
    assert 4 == on_disk.log.append(produced(sequence=4)).base_offset


def test_records_after_a_damaged_segment_without_an_index_stay():
    """If a damaged segment lacks its index, recovery removes only the damaged records and keeps the later segments.

    A broker does the same, because it first rebuilds the missing index.
    """
    on_disk = LogOnDisk()
    for sequence in range(0, 6, 2):
        on_disk.log.append(produced(sequence=sequence))
        on_disk.log.append(produced(sequence=sequence + 1))
        on_disk.log.appender.roll()
    name = "00000000000000000002.log"
    content = bytearray(on_disk.content(name))
    content[-1] ^= 1
    on_disk.write(name, bytes(content))
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000002.index")
    on_disk.kill()
    assert [0, 1, 2, 4, 5] == offsets_of(on_disk.log)
    assert [2, 4, 6] == on_disk.snapshots()


def test_producers_whose_batches_are_read_again_stand_in_a_brokers_order():
    """Producers that recovery reads again are in the same order as in a broker.

    Producers 7 and 23 are in the same bucket of a broker's hash table. In this bucket the producer that was added last
    comes first.
    """
    on_disk = LogOnDisk()
    for pid in (7, 23):
        on_disk.log.append(produced(pid=pid))
    on_disk.log.appender.roll()
    on_disk.log.append(produced(pid=39))
    on_disk.disk.unlink(on_disk.log.directory / "00000000000000000002.snapshot")
    on_disk.kill(recovery_point=2)
    found = decode(on_disk.content("00000000000000000003.snapshot"))
    assert [23, 7, 39] == [entry.producer_id for entry in found]
