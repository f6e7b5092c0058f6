"""Tests of lost records in the only in-sync copy: the loss is named, and an older copy gives the records back."""

from __future__ import annotations

import pytest

from tests.doubles.flips import path_of
from tests.doubles.replicated import DISKS, Replicated
from tests.replication.replicas.test_presence import LINES, filled, logs, put, remove, told
from topicfs.storage.disk.names import LEADER_EPOCHS, LOG_START_OFFSETS
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.soundness import torn_segments
from topicfs.storage.model import Offset

MORE = [f"more {number:02} {'x' * 20}" for number in range(25)]


def cut(made: Replicated, number: int, which: int, by: int = 20) -> None:
    """Cut `by` bytes from the end of a replica's segment."""
    path = logs(made, number)[which]
    data = made.disks.read_bytes(path)
    made.disk(number).write_bytes(path, data[:-by])


def missing(made: Replicated) -> str | None:
    return made.partition().status().missing


def reasons(made: Replicated) -> list[str | None]:
    return [one.reason for one in made.partition().status().replicas]


def went_on_alone() -> Replicated:
    """Make an older directory with the first sixty lines, and a newer one that went on alone and closed cleanly."""
    made = filled()
    made.open(DISKS[0], left_out=(DISKS[1],))
    made.append_each(MORE)
    made.engine.close()
    return made


@pytest.mark.parametrize("which", [0, 2, 5], ids=["first", "middle", "sixth"])
@pytest.mark.parametrize("how", [remove, cut])
def test_an_older_copy_gives_back_records_that_the_newer_one_lost(which, how):
    """The older copy keeps its segments, catches up and leads. The damaged newer copy is then copied from it."""
    made = went_on_alone()
    whole = made.files(1)
    older = logs(made, 2)[:-1]
    how(made, 1, which)
    made.open()
    assert missing(made) is not None
    made.engine.catch_up()
    assert set(older) <= set(logs(made, 2))
    assert ((1, 2), None) == (made.in_sync(), missing(made))
    assert [*LINES, *MORE] == made.lines()
    assert whole == made.files(1) == made.files(2)


def test_a_first_segment_that_only_one_directory_had_is_named():
    """If the first segment of a log is missing, each start reports the missing offsets, even after a kill.

    The leader epochs show where the log began.
    """
    made = filled()
    remove(made, 1, 0)
    made.open(DISKS[0], left_out=(DISKS[1],))
    assert told(made, "offsets 0 to 9 are missing: no replica in sync is complete")
    assert str(missing(made)).endswith("offsets 0 to 9 are missing")
    made.append("one\n")
    made.open(DISKS[0], left_out=(DISKS[1],))
    assert str(missing(made)).endswith("offsets 0 to 9 are missing")
    assert [*LINES[10:], "one"] == made.lines()


@pytest.mark.parametrize("seconds", [0, 120], ids=["retired", "removed"])
def test_segments_that_retention_removed_are_not_missing(seconds):
    """Segments that retention removed do not count as missing after a kill.

    The leader epochs are rewritten before the files are deleted.
    """
    made = filled(retention_bytes=3000)
    made.open()
    made.engine.maintenance(made.clock())
    made.wait(301_000)
    made.wait(seconds * 1000)
    assert made.partition().log_start_offset > 0
    for one in (DISKS[:1], DISKS):
        made.open(*one, left_out=tuple(set(DISKS[:2]) - set(one)))
        assert (None, ()) == (missing(made), made.engine.warnings)


def test_offsets_that_all_replicas_in_sync_lack_are_named():
    """If two equal replicas lack the same records, the status names the offsets before a reader meets the gap."""
    made = filled()
    for number in (1, 2):
        remove(made, number, 2)
    made.open()
    assert ((1, 2), 2) == (made.in_sync(), str(missing(made)).count("offsets 20 to 29 are missing"))
    assert told(made, "offsets 20 to 29 are missing: no replica in sync is complete")
    made.reopen()
    assert missing(made) is not None
    made.partition().delete_records(Offset(30))
    assert missing(made) is None


def test_each_gap_is_named():
    """The status names every gap, not only the first one."""
    made = filled()
    for which in (3, 1):
        for number in (1, 2):
            remove(made, number, which)
    made.open()
    assert str(missing(made)).endswith("offsets 10 to 19 are missing, offsets 30 to 39 are missing")


def test_a_cut_that_all_in_sync_have_is_named():
    """If both replicas are cut at the same place, a read there fails, and the status names the missing offsets."""
    made = filled()
    for number in (1, 2):
        cut(made, number, 2)
    made.open()
    assert ((1, 2), 2) == (made.in_sync(), str(missing(made)).count("offsets 29 to 29 are missing"))
    with pytest.raises(CorruptionError):
        made.lines()


def test_two_copies_that_lack_the_same_are_in_sync_again():
    """If neither copy is complete, neither is copied from the other, and the status names the missing offsets."""
    made = went_on_alone()
    for number in (1, 2):
        remove(made, number, 2)
    made.open()
    made.engine.catch_up()
    assert ((1, 2), 2) == (made.in_sync(), str(missing(made)).count("offsets 20 to 29 are missing"))
    assert [*LINES[:20], *LINES[30:], *MORE] == made.lines()


def test_a_replica_that_is_not_in_sync_says_why():
    """The status of a replica that is not in sync names the reason.

    The reason is the replica's lag, missing bytes, a directory that is not named, or a log that cannot be copied.
    """
    made = went_on_alone()
    made.open()
    assert [None, "25 records behind its leader"] == reasons(made)
    made.reopen(DISKS[0], left_out=(DISKS[1],))
    assert [None, "its directory is not named"] == reasons(made)
    made.reopen()
    made.engine.catch_up()
    assert [None, None] == reasons(made)
    made.engine.close()
    remove(made, 2, 2)
    made.open()
    assert [None, "offsets 20 to 29 are missing"] == reasons(made)


def test_a_replica_that_cannot_be_copied_says_why():
    """The status says why a replica cannot be copied: here the in-sync copy is cut after the end of the other copy."""
    made = went_on_alone()
    cut(made, 1, -2)
    made.open()
    made.engine.catch_up()
    assert (1,) == made.in_sync()
    assert "before its declared size" in str(reasons(made)[1])


def test_a_replica_of_a_failed_disk_says_why():
    """The reason for a replica of a failed disk is the error of the disk."""
    made = filled()
    made.open()
    made.disk(2).fail("pwrite", times=1_000)
    made.append("more\n")
    made.engine.maintenance(made.clock())
    assert (1,) == made.in_sync()
    assert "failed" in str(reasons(made)[1])


def test_a_returning_copy_fills_all_other_replicas():
    """If two of three replicas lost the same records, the returning third replica is copied to both."""
    made = filled(3)
    whole = made.files(3)
    made.open(*DISKS[:2], left_out=DISKS[2:])
    made.engine.close()
    for number in (1, 2):
        remove(made, number, 0)
    made.open(*DISKS[:2], left_out=DISKS[2:])
    made.reopen()
    made.engine.catch_up()
    assert ((1, 2, 3), LINES) == (made.in_sync(), made.lines())
    assert whole == made.files(1) == made.files(2) == made.files(3)


def test_a_newly_filled_disk_names_the_loss():
    """The status of a newly filled disk names offsets that were lost earlier, even without the other directory."""
    made = filled()
    remove(made, 1, 0)
    made.replace_disk(2)
    made.open(left_out=(DISKS[1],))
    made.engine.catch_up()
    made.engine.close()
    made.open(DISKS[1], left_out=(DISKS[0],))
    assert LINES[10:] == made.lines()
    assert "offsets 0 to 9 are missing" in str(missing(made))


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize(
    ("begin", "more"), [(filled, []), (went_on_alone, MORE)], ids=["alike", "older copy"]
)
def test_a_loss_in_both_replicas_is_named_if_leader_epochs_were_damaged(begin, more, number):
    """The status names the loss even if the other directory is lost later, or if one replica is an older copy."""
    made = begin()
    for one in (1, 2):
        remove(made, one, 0)
    put(made, number, LEADER_EPOCHS, b"\xff")
    made.open()
    assert more or ((1, 2), 2) == (made.in_sync(), str(missing(made)).count("offsets 0 to 9 are missing"))
    made.engine.catch_up()
    assert (1, 2) == made.in_sync()
    made.open(DISKS[number - 1], left_out=(DISKS[2 - number],))
    assert [*LINES[10:], *more] == made.lines()
    assert "offsets 0 to 9 are missing" in str(missing(made))


def test_a_replica_that_begins_earlier_learns_no_loss_from_the_other():
    """If the first records of a replica were deleted and not lost, the replica counts as complete.

    The other replica is copied from it.
    """
    made = filled()
    made.open()
    path = path_of(made, 1, LEADER_EPOCHS)
    before = made.disks.read_bytes(path)
    made.partition().delete_records(Offset(5))
    made.engine.close()
    remove(made, 1, 0)
    made.disk(1).write_bytes(path, before)
    made.disk(1).unlink(DISKS[0] / LOG_START_OFFSETS)
    made.open()
    made.engine.catch_up()
    assert ((1, 2), LINES[5:], None) == (made.in_sync(), made.lines(), missing(made))


def test_deleted_segments_explain_no_loss_after_them():
    """A missing segment is reported even if retention has just deleted the segments before it."""
    made = filled(retention_bytes=3000)
    made.open()
    made.wait(301_000)
    made.engine.close()
    start = made.partition().log_start_offset
    assert start > 0
    for number in (1, 2):
        remove(made, number, 0)
    made.open()
    assert f"offsets {start} to {start + 9} are missing" in str(missing(made))


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_a_kill_after_a_deletion_is_no_loss(number):
    """If a kill comes between a deletion and the rewrite of leader epochs, deleted offsets do not count as missing."""
    made = filled(retention_bytes=3000)
    made.open()
    path = path_of(made, number, LEADER_EPOCHS)
    before = made.disks.read_bytes(path)
    made.wait(301_000)
    assert before != made.disks.read_bytes(path)
    made.disk(number).write_bytes(path, before)
    for _ in range(2):
        made.open(DISKS[number - 1], left_out=(DISKS[2 - number],))
        assert (None, ()) == (missing(made), made.engine.warnings)


def test_records_that_a_follower_deleted_are_not_missing():
    """If a follower deletes segments below its leader's log start, they do not count as missing after a kill."""
    made = filled()
    made.open()
    made.wait(301_000)  # Flushes the leader epochs; retention is not due soon.
    made.partition().delete_records(Offset(30))
    made.wait(61_000)
    assert not [
        one for one in made.disks.list_directory(DISKS[1] / "orders-0") if one.name.endswith(".deleted")
    ]
    made.open(DISKS[1], left_out=(DISKS[0],))
    assert (30, None, ()) == (made.partition().log_start_offset, missing(made), made.engine.warnings)


def test_an_index_that_was_cut_in_use_hides_no_batches():
    """If the index of a segment was cut, the end of the segment is looked up in its log."""
    made = filled()
    made.open()
    path = logs(made, 1)[2].with_suffix(".index")
    made.disk(1).write_bytes(path, made.disks.read_bytes(path)[:3])
    for log in made.engine.controller.logs(made.partition().name).values():
        assert () == torn_segments(log)


def test_a_new_disk_filled_from_a_log_with_a_gap_at_its_start_has_the_gap_too():
    """The new copy has the same log start and names the same missing offsets as the old copy."""
    made = filled()
    for number in (1, 2):
        remove(made, number, 1)
    made.open()
    made.partition().delete_records(Offset(10))
    made.engine.keep_log_starts()
    made.engine.close()
    made.replace_disk(2)
    made.open(left_out=(DISKS[1],))
    made.engine.catch_up()
    made.engine.close()
    made.open(DISKS[1], left_out=(DISKS[0],))
    assert (LINES[20:], True) == (made.lines(), "offsets 10 to 19 are missing" in str(missing(made)))
