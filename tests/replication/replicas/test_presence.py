"""Tests that a replica with lost records gets them from another, and until then neither leads nor deletes records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.flips import flip, path_of
from tests.doubles.records import batch
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from topicfs.storage.disk.names import LEADER_EPOCHS, LOG_START_OFFSETS
from topicfs.storage.model import Offset

LINES = [f"line {number:02} {'x' * 20}" for number in range(60)]


def filled(disks: int = 2, **settings: object) -> Replicated:
    """Make replicas of a partition in six segments of ten batches each, and close them cleanly."""
    made = Replicated(
        disks, replicas=disks, internal_segment_bytes=1000, index_interval_bytes=200, **settings
    )
    made.engine.create_topic("orders")
    made.append_each(LINES)
    made.partition().sync()
    made.engine.close()
    return made


@pytest.fixture
def two() -> Replicated:
    return filled()


def logs(two: Replicated, number: int) -> list[Path]:
    root = path_of(two, number, "x").parent
    names = sorted(e.name for e in two.disk(number).list_directory(root) if e.name.endswith(".log"))
    return [root / name for name in names]


def remove(two: Replicated, number: int, which: int) -> None:
    two.disk(number).unlink(logs(two, number)[which])


def put(two: Replicated, number: int, name: str, data: bytes) -> None:
    two.disk(number).write_bytes(path_of(two, number, name), data)


def told(two: Replicated, text: str) -> bool:
    return any(text in line for line in two.engine.warnings)


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "middle", "last"])
def test_a_removed_log_is_copied_again_and_deletes_nothing(two, number, which):
    """If a segment of a replica is missing, even of the leader, the other replica leads and keeps all its files."""
    good = two.files(3 - number)
    remove(two, number, which)
    two.open()
    assert good == two.files(3 - number)
    assert 3 - number == two.leader() or number == 2
    assert LINES == two.lines()
    two.engine.catch_up()
    assert ((1, 2), LINES) == (two.in_sync(), two.lines())
    assert good == two.files(1) == two.files(2)


def test_missing_offsets_are_named_at_each_start(two):
    """While the other directory is left out, each start names the missing offsets before a reader meets them."""
    remove(two, 1, 2)
    for _ in range(2):
        two.open(two.roots[0], left_out=two.roots[1:])
        assert told(two, "offsets 20 to 29 are missing")
        assert LINES[:20] + LINES[30:] == two.lines()
        two.engine.close()


def test_two_replicas_that_lack_different_segments_keep_what_they_have(two):
    """If each of two replicas lacks records, neither is copied. Both serve; the replica that begins earlier leads."""
    remove(two, 1, 0)
    remove(two, 2, 2)
    left = [logs(two, number) for number in (1, 2)]
    two.open()
    two.engine.catch_up()
    assert ((1, 2), 2) == (two.in_sync(), two.leader())
    assert told(two, "offsets 0 to 9 are missing")
    assert told(two, "offsets 20 to 29 are missing")
    assert left == [logs(two, number) for number in (1, 2)]
    assert LINES == two.lines()


def test_of_three_two_that_lack_something_are_copied_from_the_third():
    """If two of three replicas lack segments, both are copied from the third replica, one after the other."""
    three = filled(3)
    good = three.files(3)
    remove(three, 1, 0)
    remove(three, 2, 2)
    three.open()
    assert ((3,), LINES) == (three.in_sync(), three.lines())
    three.engine.catch_up()
    assert (1, 2, 3) == three.in_sync()
    assert good == three.files(1) == three.files(2) == three.files(3)


def test_a_replica_killed_before_the_copying_does_not_join(two):
    """If a kill comes before the copying, the next start finds the loss again before the replica is in sync."""
    good = two.files(2)
    remove(two, 1, 2)
    two.open()
    two.append("more\n")
    two.kill()
    assert (2,) == two.in_sync()
    two.engine.catch_up()
    assert ((1, 2), [*LINES, "more"]) == (two.in_sync(), two.lines())
    assert two.files(1) == two.files(2) != good


def test_a_replica_in_use_that_lost_a_file_is_copied_again_when_its_directory_returns(two):
    """A returning replica is compared with the other replica, because it may have lost files while it was away."""
    two.open()
    remove(two, 1, 2)
    break_disk(two.disk(1))
    two.append("more\n")
    assert (2,) == two.in_sync()
    two.bring_back(1)
    two.forget_failures()
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()
    assert two.files(1) == two.files(2)


def test_a_log_start_that_only_one_directory_has_is_not_the_others(two):
    """The agreed log start is the lowest log start of the in-sync replicas."""
    good = two.files(2)
    path = two.roots[0] / LOG_START_OFFSETS
    two.disk(1).write_bytes(path, b"0\n1\norders 0 60\n")
    two.open()
    assert (LINES, 2) == (two.lines(), two.leader())
    two.engine.catch_up()
    assert ((1, 2), 0) == (two.in_sync(), two.partition().log_start_offset)
    assert good == two.files(1) == two.files(2)


def test_deleted_records_do_not_come_back(two):
    """DeleteRecords returns when the log start is on both disks. Files lost below it do not count as missing."""
    two.open()
    two.partition().delete_records(Offset(25))
    two.engine.keep_log_starts()
    two.kill()
    assert ((1, 2), LINES[25:]) == (two.in_sync(), two.lines())
    assert () == two.engine.warnings


def test_retention_that_was_interrupted_repeats(two):
    """Segments that retention has deleted in only one replica do not count as missing, and are not copied."""
    two.config = two.config.__class__(
        replication_factor=2,
        recovery_threads=1,
        topic_defaults=two.config.topic_defaults.__class__(
            segment_index_bytes=1200, internal_segment_bytes=1000, retention_bytes=3000
        ),
    )
    remove(two, 1, 0)
    two.open()
    assert ((1, 2), ()) == (two.in_sync(), two.engine.warnings)


def test_a_directory_that_was_away_follows_a_deletion(two):
    """A directory that is not in sync follows the deletion of records, because its own log start does not count."""
    two.open(two.roots[0], left_out=two.roots[1:])
    two.append("more\n")
    two.partition().delete_records(Offset(25))
    two.engine.keep_log_starts()
    two.reopen()
    two.engine.catch_up()
    assert ((1, 2), [*LINES[25:], "more"]) == (two.in_sync(), two.lines())
    assert two.partition().log_start_offset == two.engine.controller.logs(ORDERS)[2].log_start_offset


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize(
    "damaged",
    [b"0\n1\n7 0\n", b"\xff\x00\xfe", b"", b"0\n1\n0 30\n", b"0\n2\n0 0\n9 99\n", b"0\n2\n0 0\n3 30\n"],
)
@pytest.mark.parametrize("alone", [False, True])
def test_leader_epochs_that_are_not_those_of_the_batches_are_made_again(two, number, damaged, alone):
    """Leader epochs that contradict the batches are rebuilt before they are used, so that no log is truncated."""
    good = two.files(3 - number)
    put(two, number, LEADER_EPOCHS, damaged)
    if alone:
        two.open(two.roots[number - 1], left_out=(two.roots[2 - number],))
    else:
        two.open()
        assert good == two.files(3 - number)
    two.engine.catch_up()
    assert LINES == two.lines()
    two.append("more\n")
    log = two.engine.controller.logs(ORDERS)[number]
    assert [0, 0] == [log.epochs.epoch_for_offset(Offset(offset)) for offset in (0, 59)]
    if not alone:
        assert (1, 2) == two.in_sync()
        assert two.files(1) == two.files(2)
    assert [] == two.scrub()


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_a_log_that_is_cut_where_an_epoch_begins_is_copied_again(number):
    """A log that was cut in the first batch of its last epoch is copied again, although that epoch cannot be read."""
    two = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    for place, line in enumerate(LINES[:30]):
        if place == 9:
            two.reopen()
        two.append(line + "\n")
    two.engine.close()
    good = two.files(3 - number)
    put(two, 3 - number, LEADER_EPOCHS, b"0\n1\n0 0\n")
    path = logs(two, number)[0]
    data = two.disks.read_bytes(path)
    two.disk(number).write_bytes(path, data[:-20])
    two.open()
    assert told(two, "offsets 9 to 9 are missing: it is copied again from another replica")
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()
    assert good == two.files(1) == two.files(2)


def test_a_new_disk_has_no_leader_epochs_either(two):
    """Missing epoch files in both replicas do not mean that the batches have no epochs."""
    put(two, 1, LEADER_EPOCHS, b"")
    two.replace_disk(2)
    two.open(left_out=(two.roots[1],))
    assert 0 == two.engine.controller.logs(ORDERS)[1].epochs.epoch_for_offset(Offset(59))


def test_a_damaged_batch_makes_no_leader_epochs(two):
    """If a batch's leader epoch contradicts the epoch file and all other batches, the batch itself is damaged.

    No checksum covers the leader epoch of a batch.
    """
    put(two, 1, LEADER_EPOCHS, b"0\n1\n0 0\n")
    flip(two, 1, 15, mask=4)
    two.open()
    assert [0, 0] == [log.epochs.entries[0].epoch for log in two.engine.controller.logs(ORDERS).values()]
    assert LINES == two.lines()


def test_a_compacted_log_that_has_fewer_offsets_lacks_nothing():
    """Directories compact separately, so only the log starts of compacted topics are compared."""
    two = with_orders(cleanup_policy=("compact",), internal_segment_bytes=1000)
    for number in range(60):
        two.partition().append(batch(b"value", key=b"%d" % (number % 3), timestamp=1 + number))
    two.engine.close()
    remove(two, 1, 2)
    two.open()
    assert ((1, 2), ()) == (two.in_sync(), two.engine.warnings)
