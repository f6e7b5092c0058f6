"""Tests that a gap copied from a leader survives a kill, and that records flushed after the gap are kept."""

from __future__ import annotations

import pytest

from tests.doubles.flips import flip
from tests.doubles.records import batch, marker, produced, read_records
from tests.doubles.replicated import DISKS, ORDERS, Replicated, with_orders
from tests.replication.replicas.test_lone_copies import went_on_alone
from tests.replication.replicas.test_presence import LINES, filled, logs, remove
from topicfs.replication.replicas.rules.follower import fetch_once
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk.names import RECOVERY_POINTS
from topicfs.storage.errors import CorruptBatchError, CorruptionError, PartitionOfflineError
from topicfs.storage.model import AbortedTransaction, Offset, ProducerId, Timestamp

GAP = "offsets 20 to 29 are missing"
LEFT = LINES[:20] + LINES[30:]


def older_copy(end: int = 15, lost: tuple[int, ...] = (0, 0, 0)) -> Replicated:
    """Make an older copy up to `end`, and a newer copy that went on alone and then lost the segments `lost`."""
    made = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    made.append_each(LINES[:end])
    made.engine.close()
    made.open(DISKS[0], left_out=(DISKS[1],))
    made.append_each(LINES[end:])
    made.engine.close()
    for which in lost:
        remove(made, 1, which)
    return made


def test_the_replica_that_lacks_fewer_records_leads():
    """The replica that lacks fewer records leads. Readers get all records of both copies, even after a restart."""
    made = older_copy(25, (2, 2))
    made.open()
    made.engine.catch_up()
    for _ in range(2):
        assert ((1, 2), 2) == (made.in_sync(), made.leader())
        assert LINES[:25] + LINES[40:] == made.lines()
        made.reopen()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_an_older_copy_that_went_on_after_a_gap_keeps_the_records_after_it(power):
    """If an older copy goes on after a gap, the recovery point after the gap is on disk before the copy is in sync."""
    made = older_copy()
    made.open()
    made.engine.catch_up()
    assert ((1, 2), 2) == (made.in_sync(), made.leader())
    before = made.files(2)
    (made.crash if power else made.kill)()
    assert before == made.files(2)
    assert LINES[:15] + LINES[30:] == made.lines()
    assert "offsets 15 to 29 are missing" in str(made.partition().status().missing)


@pytest.mark.parametrize("batches", [1, 3, 30])
def test_a_follower_that_was_killed_after_a_gap_keeps_the_records_after_it(batches):
    """A follower writes the recovery point before the first batch after the gap, long before it is in sync."""
    made = older_copy()
    made.open()
    leader, follower = (made.engine.controller.logs(ORDERS)[number] for number in (1, 2))
    follower.roles.follow(follower.log_end_offset)
    for _ in range(batches):
        fetch_once(leader, follower, max_bytes=1)
    made.kill()
    assert (1,) == made.in_sync()
    assert 30 + batches == made.engine.controller.logs(ORDERS)[2].log_end_offset


def test_a_follower_whose_recovery_point_cannot_be_written_takes_nothing_after_a_gap():
    """A follower in its leader's epoch appends nothing after a gap until its disk accepts the recovery point."""
    made = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    for number, line in enumerate(LINES):
        if number == 15:
            made.disk(2).fail("pwrite", suffix=".log")
        made.append(line + "\n")
    made.disk(2).heal()
    made.engine.close()
    for _ in range(3):
        remove(made, 1, 0)
    made.open()
    made.disk(2).fail("rename", times=2, suffix=f"{RECOVERY_POINTS}.tmp")
    for _ in range(2):
        made.forget_failures()
        made.engine.catch_up()
        assert (15, (1,)) == (made.engine.controller.logs(ORDERS)[2].log_end_offset, made.in_sync())
    made.bring_back(2)
    assert (1, 2) == made.in_sync()


def test_a_topic_that_is_deleted_meanwhile_gets_no_recovery_point():
    """A deleted topic gets no recovery point, which would mark records of a new topic of its name as flushed."""
    made = older_copy()
    made.open()
    follower = made.engine.controller.logs(ORDERS)[2]
    made.engine.delete_topic("orders")
    follower.checkpoint([follower])
    assert b"orders" not in made.disk(2).read_bytes(DISKS[1] / RECOVERY_POINTS)


def test_gaps_are_kept_if_the_recovery_points_were_lost_while_it_was_closed():
    """If the recovery points were lost while the engine was closed, they are on disk again before the start ends."""
    made = filled()
    for number in (1, 2):
        remove(made, number, 2)
        made.disk(number).unlink(DISKS[number - 1] / RECOVERY_POINTS)
    made.open()
    made.kill()
    assert LEFT == made.lines()


def test_a_new_disk_filled_from_a_log_with_a_gap_keeps_the_records_after_it():
    """The new disk keeps the records after the gap, even if it is opened alone after a kill."""
    made = filled()
    remove(made, 1, 2)
    made.replace_disk(2)
    made.open(left_out=(DISKS[1],))
    made.engine.catch_up()
    made.open(DISKS[1], left_out=(DISKS[0],))
    assert LEFT == made.lines()
    assert GAP in str(made.partition().status().missing)


def test_a_moved_copy_of_a_log_with_a_gap_keeps_the_records_after_it():
    """The recovery point of a moved copy is on disk before the move takes effect."""
    made = with_orders(3, replicas=1, internal_segment_bytes=1000, index_interval_bytes=200)
    made.append_each(LINES)
    made.engine.close()
    remove(made, 1, 2)
    made.open()
    made.engine.move_replica(ORDERS, "/b")
    made.engine.catch_up()
    assert ({2: "live"}, 5) == (made.names(), len(logs(made, 2)))
    made.kill()
    assert LEFT == made.lines()


def test_a_replica_that_lost_its_end_is_no_source_for_one_that_goes_further():
    """If one replica lost its end and the other replica lost its start, each keeps the records that it has.

    A power loss cut the end of the first replica.
    """
    made = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    made.append_each(LINES[:15])
    made.partition().sync()
    made.append_each(LINES[15:])
    made.engine.controller.logs(ORDERS)[2].sync()
    for number in (1, 2):
        made.disk(number).crash(keep=0)
    for _ in range(3):
        remove(made, 2, 0)
    made.open()
    assert (1, (1, 2)) == (made.leader(), made.in_sync())
    assert LINES[:15] + LINES[30:] == made.lines()
    made.open(DISKS[0], left_out=(DISKS[1],))
    assert LINES[:15] + LINES[30:] == made.lines()


def test_missing_offsets_are_named_while_the_log_is_offline():
    """The missing offsets are named while the leader is offline and after it returns."""
    made = went_on_alone()
    remove(made, 1, 2)
    made.open()
    made.disk(1).fail("pwrite", suffix=".log")
    made.disk(1).fail("truncate", suffix=".log")
    with pytest.raises(PartitionOfflineError):
        made.append("one\n")
    assert GAP in str(made.partition().status().missing)
    made.disk(1).heal()
    made.engine.catch_up()
    assert (1, 2) == made.in_sync()
    assert GAP in str(made.partition().status().missing)


def test_a_deleted_segment_after_the_log_start_explains_no_loss():
    """Offsets count as missing even if a `.deleted` segment above the log start contained some of them.

    Such a segment was truncated, or its leader lacked it.
    """
    made = filled()
    for _ in range(3):
        remove(made, 1, 0)
    made.disk(1).write_bytes(logs(made, 1)[0].with_name(f"{20:020}.log.deleted"), b"")
    made.open(DISKS[0], left_out=(DISKS[1],))
    assert "offsets 0 to 29 are missing" in str(made.partition().status().missing)


@pytest.mark.parametrize("read_only", [False, True], ids=["served", "read only"])
@pytest.mark.parametrize("others", [1, 2], ids=["two", "three"])
@pytest.mark.parametrize("lost", [(0, 0), (1, 2)], ids=["its start", "a segment before, and one behind"])
def test_records_in_a_gap_of_the_leader_are_read_from_a_follower(read_only, others, lost):
    """At a gap of the leader a reader continues at the lowest offset that any in-sync replica has."""
    made = filled(1 + others)
    for number in (1, 3)[:others]:
        for which in (1, 1):
            remove(made, number, which)
    for which in lost:
        remove(made, 2, which)
    made.open(read_only=read_only)
    assert (1, tuple(range(1, 2 + others))) == (made.leader(), made.in_sync())
    assert LINES[:10] + LINES[20:] == made.lines()
    assert [*range(10), *range(20, 60)] == [
        record.offset for record in read_records(made.partition(), 0, max_bytes=1)
    ]


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_a_batch_whose_offset_is_damaged_fills_no_gap(number):
    """A batch with an offset below its segment's base offset is damaged, and is read from another replica."""
    made = filled()
    for holder in (1, 1, 2, 2):
        remove(made, holder, 1)
    flip(made, number, 7, name=logs(made, number)[1].name, mask=8)  # Offset 30 becomes 22.
    made.open()
    assert (1, (1, 2)) == (made.leader(), made.in_sync())
    for max_bytes in (1, 1 << 20):
        records = read_records(made.partition(), 0, max_bytes=max_bytes)
        assert [*range(10), *range(30, 60)] == [record.offset for record in records]


@pytest.mark.parametrize("others", [1, 2], ids=["two", "three"])
@pytest.mark.parametrize("lost", [(0, 0), (1, 1)], ids=["its start", "a gap"])
@pytest.mark.parametrize(("at", "mask"), [(70, 1), (8, 128)], ids=["value", "length"])
def test_a_batch_that_is_damaged_where_others_have_a_gap_is_not_skipped(others, lost, at, mask):
    """A read raises an error at a damaged batch that is in a gap of all other replicas, and returns no later batch."""
    made = filled(1 + others)
    for number in range(2, 2 + others):
        for which in lost:
            remove(made, number, which)
    for _ in range(2):
        remove(made, 1, 3)
    damaged = logs(made, 1)[1].name
    made.open()
    assert (1, tuple(range(1, 2 + others))) == (made.leader(), made.in_sync())
    (_, _, third, *_) = scan(made.disk(1).read_bytes(logs(made, 1)[1]))
    flip(made, 1, third.position + at, name=damaged, mask=mask)
    assert [10, 11] == [
        scan(made.partition().read(Offset(n), max_bytes=1).data)[0].base_offset for n in (10, 11)
    ]
    with pytest.raises((CorruptBatchError, CorruptionError)):
        read_records(made.partition(), 12, max_bytes=1)


def test_an_aborted_record_in_a_gap_of_the_leader_is_not_shown_as_committed():
    """A batch that only a follower has is returned with the aborted transactions in the batch's range."""
    made = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    made.append_each(LINES[:10])
    made.partition().append(produced(b"aborted", txn=True))
    for log in made.engine.controller.logs(ORDERS).values():
        log.appender.append_as_follower(marker(11, commit=False))
    made.append_each(LINES[10:])
    made.engine.close()
    for number, which in ((1, 1), (1, 1), (2, 2), (2, 2)):
        remove(made, number, which)
    made.open()
    assert (1, (1, 2)) == (made.leader(), made.in_sync())
    fetched = made.partition().read(Offset(10), max_bytes=1)
    assert ((AbortedTransaction(ProducerId(7), Offset(10)),), 11) == (fetched.aborted, fetched.next_offset)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_leader_that_lost_an_abort_marker_shows_no_aborted_record_as_committed(read_only):
    """If the leader lost an abort marker, readers learn of the abort from a replica that has the marker."""
    made = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    made.append_each(LINES[:10])
    made.partition().append(produced(b"aborted", txn=True))
    made.append_each(LINES[10:20])
    for log in made.engine.controller.logs(ORDERS).values():
        log.appender.append_as_follower(marker(21, commit=False))
    made.append_each(LINES[20:])
    made.engine.close()
    remove(made, 1, 2)
    remove(made, 2, 3)
    made.open(read_only=read_only)
    assert [(), (10,)] == [
        tuple(span.first_offset for span in log.aborted)
        for log in made.engine.controller.logs(ORDERS).values()
    ]
    fetched = made.partition().read(Offset(10), max_bytes=1)
    assert ((AbortedTransaction(ProducerId(7), Offset(10)),), 11) == (fetched.aborted, fetched.next_offset)
    assert () == made.partition().read(Offset(22), max_bytes=1).aborted


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("lost", [1, 5], ids=["gap", "end"])
def test_a_time_in_a_gap_of_the_leader_finds_the_record_that_a_follower_has(read_only, lost):
    """A lookup by time finds the first record at or after the time, even if only a follower has the record."""
    made = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    for time in range(60):
        made.partition().append(batch(LINES[time].encode(), timestamp=1000 + time))
    made.engine.close()
    remove(made, 1, lost)
    remove(made, 2, 3)
    made.open(read_only=read_only)
    assert [*range(60)] == [record.offset for record in read_records(made.partition(), 0)]
    found = [made.partition().offset_for_timestamp(Timestamp(1000 + time)) for time in range(61)]
    assert [*range(60), None] == [one and one.offset for one in found]
