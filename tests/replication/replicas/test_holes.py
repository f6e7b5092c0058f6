"""Tests of holes left by a power loss: a segment ends at a batch boundary, or is empty, and a later one exists.

No file is damaged then. If a replica continued after its hole, it would lack records that other replicas have flushed.
"""

from __future__ import annotations

import errno

import pytest

from tests.doubles.records import batch, read_records
from tests.doubles.replicated import ORDERS, Replicated, with_orders

KEYS = 30


def lose(two: Replicated, number: int, *, future: bool = False) -> str:
    """Empty the second segment of a replica, as a power loss may; return the segment's name."""
    root = two.roots[number - 1]
    (place,) = [
        entry.name
        for entry in two.disks.list_directory(root)
        if entry.is_directory
        and entry.name.endswith("-future") == future
        and entry.name.startswith("orders-0")
    ]
    names = sorted(e.name for e in two.disks.list_directory(root / place) if e.name.endswith(".log"))
    assert len(names) > 3
    two.disks.open(root / place / names[1]).truncate(0)
    return names[1]


def test_a_hole_in_a_replica_that_is_being_moved_is_filled():
    """If a replica that is being moved has a hole, the records from the start of the hole on are copied again."""
    two = with_orders(2, replicas=1, internal_segment_bytes=300)
    lines = [f"line {number}" for number in range(KEYS)]
    two.append_each(lines)
    before = two.files(1)
    two.engine.move_replica(ORDERS, "/b")
    name = sorted(name for name in before if name.endswith(".log"))[-2]
    two.disk(2).fail("pwrite", number=errno.ENOSPC, times=1_000, suffix=name)
    two.engine.catch_up()
    lose(two, 2, future=True)
    two.disk(2).heal()
    two.kill()
    two.engine.catch_up()
    assert {2: "live"} == two.names()
    assert lines == two.lines()
    assert before.items() <= two.files(2).items()


def keyed() -> Replicated:
    """Make a compacted topic of a few segments, with two replicas in sync."""
    two = Replicated(2, replicas=2, internal_segment_bytes=300)
    two.engine.create_topic("orders", overrides={"cleanup.policy": "compact"})
    for number in range(KEYS):
        two.partition().append(batch(b"value %d" % number, key=b"key %d" % number))
    return two


def values(two: Replicated) -> list[bytes | None]:
    return [one.value for one in read_records(two.partition())]


@pytest.mark.parametrize("number", [1, 2])
def test_a_hole_in_a_replica_of_a_compacted_topic_is_filled(number: int):
    """In a compacted topic, a hole counts as a loss only if the other replica has records there.

    The replica without a hole leads.
    """
    two = keyed()
    lose(two, number)
    two.kill()
    assert (1, 2) == two.in_sync()
    assert 3 - number == two.leader()
    assert two.files(1) == two.files(2)
    assert [b"value %d" % number for number in range(KEYS)] == values(two)


def test_a_hole_shared_with_the_leader_stays(caplog: pytest.LogCaptureFixture):
    """A hole that leader and follower share is neither truncated nor copied again."""
    two = keyed()
    assert lose(two, 1) == lose(two, 2)
    caplog.set_level("INFO")
    two.kill()
    assert (1, 2) == two.in_sync()
    assert two.files(1) == two.files(2)
    assert 0 < len(values(two)) < KEYS
    assert not [line for line in caplog.messages if "a power loss destroyed" in line]


def test_a_hole_that_compaction_left_in_one_of_them_stays(caplog: pytest.LogCaptureFixture):
    """A hole that compaction left in one replica stays, because records below the cleaner's checkpoint were synced."""
    two = keyed()
    lose(two, 1)
    two.disks.write_bytes(two.roots[0] / "cleaner-offset-checkpoint", b"0\n1\norders 0 25\n")
    caplog.set_level("INFO")
    two.kill()
    assert (1, 2) == two.in_sync()
    assert not [line for line in caplog.messages if "a power loss destroyed" in line]
