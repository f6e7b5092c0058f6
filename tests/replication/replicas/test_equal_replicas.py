"""Tests that replicas become equal file by file after truncation, power loss and disk failures."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.replicated import ORDERS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from tests.doubles.waiting import wait_until
from topicfs.replication.replicas.fetcher_thread import FetcherThread
from topicfs.replication.replicas.rules.follower import catch_up, match_segments
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.checkpoints.leader_epochs import EpochEntry
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, Timestamp

SMALL = 300
"""Segment size in bytes: three or four batches."""


def assert_equal_files(two: Replicated) -> dict[str, bytes]:
    """Close the engine, and check that both replicas have the same files; return these files."""
    two.engine.close()
    assert two.files(1) == two.files(2)
    return two.files(1)


def logs_of(replica: Replicated, number: int) -> list[str]:
    return sorted(name for name in replica.files(number) if name.endswith(".log"))


def test_differing_index_entries_are_replaced():
    """Differing index entries are replaced even if both indexes have as many entries and the same last entry."""
    two = with_orders(index_interval_bytes=200)
    two.append_each(f"line {number}" for number in range(20))
    logs = two.engine.controller.logs(ORDERS)
    leading, following = logs[1].chain.active, logs[2].chain.active
    entries, times = list(leading.offset_index), list(leading.time_index)
    assert 2 < len(entries)
    between = leading.find_batch(entries[0].offset + 1, leading.size)
    assert between is not None
    following.truncate_indexes()
    following.activate()
    following.offset_index.extend([(between.last_offset, between.position), *entries[1:]])
    following.time_index.extend(times)
    following.count_like(leading)
    match_segments(logs[1], logs[2])
    assert entries == list(following.offset_index)
    two.append("more\n")
    assert_equal_files(two)


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_an_empty_segment_that_only_one_has(number):
    """After a power loss a follower begins an empty segment that only its leader has.

    The follower drops an empty segment that the leader lacks.
    """
    two = with_orders(internal_segment_bytes=10_000)
    two.append("a\n")
    two.partition().sync()
    two.engine.controller.logs(ORDERS)[number].appender.roll()
    two.kill()
    assert 1 == two.leader()
    assert 3 - number == len(logs_of(two, 1))
    assert logs_of(two, 1) == logs_of(two, 2)
    two.append("b\n")
    assert_equal_files(two)


def test_a_follower_rolls_only_when_its_leader_rolls():
    """A follower rolls only when its leader rolls, whatever its own segment.ms, jitter and clock say."""
    two = with_orders(internal_segment_bytes=10_000, segment_ms=60_000)
    append_lines(two.partition(), "a\n", timestamp=two.clock())
    follower = two.engine.controller.logs(ORDERS)[2]
    follower.chain.active.settings = follower.chain.active.settings._replace(jitter_ms=Timestamp(59_999))
    append_lines(two.partition(), "b\n", timestamp=two.clock() + 30_000)
    assert ["00000000000000000000.log"] == logs_of(two, 1) == logs_of(two, 2)


def test_a_replica_whose_segment_lost_whole_batches_does_not_continue_after_the_hole():
    """If a power loss cut a segment exactly after a batch and a later segment exists, the other replica leads."""
    two = with_orders(internal_segment_bytes=SMALL)
    while len(logs_of(two, 1)) < 2:
        two.append(f"line {two.partition().offsets().log_end_offset}\n")
    lines = two.lines()
    log = two.engine.controller.logs(ORDERS)[1]
    sealed = log.chain.segments[0]
    last = log.read(log.log_end_offset - 2, max_bytes=1)
    file = two.disks.open(two.roots[0] / "orders-0" / "00000000000000000000.log")
    file.truncate(sealed.size - len(last.data))
    two.kill()
    assert lines == two.lines()
    two.forget_failures()
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()
    for number in (1, 2):
        found = two.engine.controller.logs(ORDERS)[number].read(0, max_bytes=10_000)
        assert len(found.data) == sealed.size
    assert_equal_files(two)


def test_data_is_written_again_after_a_failed_flush():
    """After a failed fsync the data is written again, because the kernel may have marked the dirty pages as written."""
    two = with_orders(replicas=1, disks=2)
    two.append("a\n")
    place = 1 if two.leader() == 1 else 2
    two.disk(place).fail("sync", suffix=".log")
    long = "b" * 2000  # More than a block, so that the next append does not rewrite it by chance.
    two.append(f"{long}\n")
    with pytest.raises(OSError, match="Input/output error"):
        two.partition().sync()
    two.engine.reopen_partition(*ORDERS)
    two.append("c\n")
    two.partition().sync()
    two.crash(keep=0.0)
    assert ["a", long, "c"] == two.lines()


def recovered(batches: int) -> Replicated:
    """Kill the engine after some appends. The follower has only the first six batches."""
    two = with_orders(internal_segment_bytes=2_000, index_interval_bytes=200)
    for number in range(batches):
        if number == 6:
            break_disk(two.disk(2))
        append_lines(two.partition(), f"line {number}\n", timestamp=1_700_000_000_000 + number)
    assert (1,) == two.in_sync()
    two.disk(2).heal()
    two.kill()
    return two


def test_a_follower_that_was_recovered_within_a_segment_indexes_it_as_its_leader():
    """Segments closed by the leader are equal, even if the follower was recovered inside a segment.

    Recovery adds a last entry to the time index, and appends do not.
    """
    two = recovered(batches=40)
    two.forget_failures()
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()
    assert len(assert_equal_files(two)) > 3


def test_a_follower_that_was_recovered_indexes_the_segment_that_its_leader_has_just_closed():
    """A recovered follower gets its leader's index entries even if the leader's new segment is still empty."""
    two = recovered(batches=12)
    two.engine.controller.logs(ORDERS)[1].appender.roll()
    two.forget_failures()
    two.engine.catch_up()
    assert (1, 2) == two.in_sync()
    assert 2 == len(logs_of(two, 1)) == len(logs_of(two, 2))
    assert_equal_files(two)


def test_a_preferred_leader_that_fails_before_anybody_noticed_is_skipped(two):
    """If the preferred leader's log is offline and no append has noticed this yet, the present leader stays."""
    break_disk(two.disk(1))
    two.append("a\n")
    two.bring_back(1)
    assert ((1, 2), 2) == (two.in_sync(), two.leader())
    two.engine.controller.logs(ORDERS)[1].parts.mark_offline("it fails")
    assert 0 == two.engine.elect_preferred()
    two.append("b\n")
    assert ((2,), 2) == (two.in_sync(), two.leader())


def test_the_number_of_replicas_is_changed_without_a_directory_that_is_left_out(three):
    """A replica in a left-out directory is no longer assigned, and is deleted when the directory is named again."""
    three.append("a\n")
    three.reopen(*three.roots[:2], left_out=three.roots[2:])
    three.engine.set_replicas("orders", 2)
    assert (1, 2) == three.in_sync() == three.partition().state.assigned
    three.reopen()
    assert ["a"] == three.lines()
    assert not three.disks.exists(three.roots[2] / "orders-0")


@pytest.mark.parametrize("bytes_in_line", [10, 700])
def test_replicated_bytes_equal_fetched_bytes(bytes_in_line: int):
    """Replicating the leader's bytes has the same result as fetching them.

    This holds for small and large batches, and over rolls and epochs.
    """
    two = with_orders(internal_segment_bytes=9_000, index_interval_bytes=300)
    lines = [f"{number} {'x' * bytes_in_line}" for number in range(120)]
    for number, line in enumerate(lines):
        two.append(f"{line}\n")
        if number == 60:
            break_disk(two.disk(1))
        if number == 70:
            two.bring_back(1)
            two.engine.elect_preferred()
    assert (1, 2) == two.in_sync()
    assert lines == two.lines()
    assert any(data for name, data in assert_equal_files(two).items() if name.endswith(".index"))


def test_a_thread_that_is_just_being_started_can_be_stopped(two):
    """An engine can be closed cleanly while a returning directory's thread is being started."""
    break_disk(two.disk(2))
    two.append("a\n")
    for _ in range(100):
        fetcher = FetcherThread(
            two.engine._replica_dirs[2],
            two.engine._partitions,
            two.engine.controller,
            rate=lambda: 1 << 30,
            warn=print,
        )
        wanting = Thread(target=fetcher.want)
        wanting.start()
        fetcher.stop()
        wanting.join()
        fetcher.stop()


def test_a_replica_that_is_elected_unclean_gets_nothing_more_from_the_one_that_led(two, monkeypatch):
    """An unclean election may choose a replica that is still copying from the former leader.

    The replica finishes the step that has begun, and copies nothing more from the former leader.
    """
    two.append("a\n")
    break_disk(two.disk(2))
    two.append("b\nc\n")
    two.disk(2).heal()
    for _ in range(2):
        two.retry()
    leader, fetcher = two.partition().leader, two.engine._catching_up[ReplicaId(2)]
    assert leader is not None
    read = leader.log.read_as_follower

    def elect() -> None:
        two.engine.elect_unclean(ORDERS, "/b")
        two.append("x\n")

    elects = Thread(target=elect)

    def read_and_elect(*arguments: Any, **named: Any) -> Any:
        fetched = read(*arguments, **named)
        if elects.ident is None:
            elects.start()
            wait_until(lambda: fetcher._holders or not elects.is_alive(), "the election waits, or is over")
        return fetched

    monkeypatch.setattr(leader.log, "read_as_follower", read_and_elect)
    two.engine.catch_up()
    elects.join()
    two.engine.catch_up()
    assert ["a", "b", "c", "x"] == two.lines()
    assert ((1, 2), 2) == (two.in_sync(), two.leader())
    assert_equal_files(two)


def test_batches_that_contradict_the_epoch_file_are_not_copied_in_a_loop(two):
    """If a leader's epoch file contradicts its batches, the batches are not copied and truncated in an endless loop."""
    two.append("a\n")
    two.reopen()
    two.append("b\n")
    logs = two.engine.controller.logs(ORDERS)
    logs[1].epochs.replace((EpochEntry(0, Offset(0)), EpochEntry(9, Offset(2))))
    logs[2].replacer.truncate_to(Offset(1))
    with pytest.raises(CorruptionError, match="not those of the batches"):
        catch_up(logs[1], logs[2], max_bytes=1000)
