"""A gap that a copy has from its leader: it stays what it is after a kill, whatever was flushed before it."""

from __future__ import annotations

import pytest

from tests.doubles.replicated import DISKS, ORDERS, Replicated
from tests.storage.replicas.test_lone_copies import went_on_alone
from tests.storage.replicas.test_presence import LINES, filled, logs, remove
from topicfs.storage.disk.names import RECOVERY_POINTS
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.replicas.rules.follower import fetch_once

GAP = "offsets 20 to 29 are missing"
LEFT = LINES[:20] + LINES[30:]


def new_disk(made: Replicated) -> None:
    made.disks.disks[DISKS[1]] = made.disks.disks[DISKS[1]].__class__(seed=9)
    made.disk(2).sync_directory(DISKS[1].parent)


def older_copy(end: int = 15, lost: tuple[int, ...] = (0, 0, 0)) -> Replicated:
    """The second directory ends there; the first one went on alone, and lost segments, one after the other."""
    made = Replicated(internal_segment_bytes=1000, index_interval_bytes=200)
    made.engine.create_topic("orders")
    for line in LINES[:end]:
        made.append(line + "\n")
    made.engine.close()
    made.open(DISKS[0], left_out=(DISKS[1],))
    for line in LINES[end:]:
        made.append(line + "\n")
    made.engine.close()
    for which in lost:
        remove(made, 1, which)
    return made


def test_of_two_replicas_with_gaps_the_one_leads_that_lacks_less():
    """An older copy has some of what the other one lost: readers get it, also after a restart."""
    made = older_copy(25, (2, 2))
    made.open()
    made.engine.catch_up()
    for _ in range(2):
        assert ((1, 2), 2) == (made.in_sync(), made.leader())
        assert LINES[:25] + LINES[40:] == made.lines()
        made.reopen()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_an_older_copy_that_went_on_behind_a_gap_keeps_what_is_behind_it(power):
    """The recovery point is on disk before it is in sync."""
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
def test_a_follower_that_was_killed_behind_a_gap_keeps_what_is_behind_it(batches):
    """The recovery point is on disk before the first batch behind the gap, long before it is in sync."""
    made = older_copy()
    made.open()
    leader, follower = (made.engine.controller.logs(ORDERS)[number] for number in (1, 2))
    follower.follow(follower.log_end_offset)
    for _ in range(batches):
        fetch_once(leader, follower, max_bytes=1)
    made.kill()
    assert (1,) == made.in_sync()
    assert 30 + batches == made.engine.controller.logs(ORDERS)[2].log_end_offset


def test_a_follower_whose_recovery_point_cannot_be_written_takes_nothing_behind_a_gap():
    """Neither then nor at the next attempt, until its disk takes it; both logs are in one leader epoch."""
    made = Replicated(internal_segment_bytes=1000, index_interval_bytes=200)
    made.engine.create_topic("orders")
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
    """A later topic of that name would be taken for flushed."""
    made = older_copy()
    made.open()
    follower = made.engine.controller.logs(ORDERS)[2]
    made.engine.delete_topic("orders")
    follower.checkpoint([follower])
    assert b"orders" not in made.disk(2).read_bytes(DISKS[1] / RECOVERY_POINTS)


def test_gaps_are_kept_if_the_recovery_points_were_lost_while_it_was_closed():
    """They are on disk again before the start ends."""
    made = filled()
    for number in (1, 2):
        remove(made, number, 2)
        made.disk(number).unlink(DISKS[number - 1] / RECOVERY_POINTS)
    made.open()
    made.kill()
    assert LEFT == made.lines()


def test_a_new_disk_filled_from_a_log_with_a_gap_keeps_what_is_behind_it():
    """Also alone, after the process was killed."""
    made = filled()
    remove(made, 1, 2)
    new_disk(made)
    made.open(left_out=(DISKS[1],))
    made.engine.catch_up()
    made.open(DISKS[1], left_out=(DISKS[0],))
    assert LEFT == made.lines()
    assert GAP in str(made.partition().status().missing)


def test_a_moved_copy_of_a_log_with_a_gap_keeps_what_is_behind_it():
    """The move is agreed on after the recovery point is on disk."""
    made = Replicated(3, replicas=1, internal_segment_bytes=1000, index_interval_bytes=200)
    made.engine.create_topic("orders")
    for line in LINES:
        made.append(line + "\n")
    made.engine.close()
    remove(made, 1, 2)
    made.open()
    made.engine.move_replica(ORDERS, "/b")
    made.engine.catch_up()
    assert ({2: "live"}, 5) == (made.names(), len(logs(made, 2)))
    made.kill()
    assert LEFT == made.lines()


def test_a_replica_that_lost_its_end_is_no_source_for_one_that_goes_further():
    """The end was lost with the power in one, the beginning was damaged in the other: each keeps what only it has."""
    made = Replicated(internal_segment_bytes=1000, index_interval_bytes=200)
    made.engine.create_topic("orders")
    for line in LINES[:15]:
        made.append(line + "\n")
    made.partition().sync()
    for line in LINES[15:]:
        made.append(line + "\n")
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


def test_what_a_log_lacks_is_named_while_it_is_offline():
    """It cannot be compared then; the other one is copied from what can still be read of it."""
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


def test_a_deleted_segment_behind_the_log_start_explains_no_loss():
    """It was cut off, or dropped as the leader had not rolled there, and not deleted from the front."""
    made = filled()
    for _ in range(3):
        remove(made, 1, 0)
    made.disk(1).write_bytes(logs(made, 1)[0].with_name(f"{20:020}.log.deleted"), b"")
    made.open(DISKS[0], left_out=(DISKS[1],))
    assert "offsets 0 to 29 are missing" in str(made.partition().status().missing)
