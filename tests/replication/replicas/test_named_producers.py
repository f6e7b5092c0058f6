"""Tests of named producers over replicas: after any disk fails, a stored line is not appended again."""

from __future__ import annotations

import errno
import io

import pytest

from tests.doubles.line_encoder import FirstPartition
from tests.doubles.replicated import DISKS, Replicated, with_orders
from tests.doubles.several_disks import break_disk
from topicfs.storage.disk.names import PRODUCERS
from topicfs.storage.errors import CorruptionError
from topicfs.storage.idempotence.producer import AppendOutcome, NamedProducer, whole_lines

SOURCE = "file > orders/0@T"


def closed_with_an_old_copy() -> Replicated:
    """Return two closed directories. The second directory missed the last run."""
    two = with_orders()
    run(two, "a\n")
    break_disk(two.disk(2))
    two.engine.maintenance(two.clock())
    run(two, "a\nb\n")
    two.engine.close()
    two.disk(2).heal()
    return two


def run(two: Replicated, text: str) -> AppendOutcome:
    """Append a text as `topicfs append --producer` appends a file."""
    producer = NamedProducer(two.engine.producers, "p", SOURCE, {0: two.partition()})
    return producer.append_file(io.BytesIO(text.encode()), FirstPartition(), whole_lines)


def positions(two: Replicated) -> list[int | None]:
    """Return the position in each directory's copy of the producer's file."""
    found = (two.engine.producers.read_copy(root).get(("p", SOURCE)) for root in two.roots)
    return [None if one is None else one.position for one in found]


@pytest.mark.parametrize("dead", [1, 2])
def test_a_repeated_run_appends_nothing_after_a_disk_died(two: Replicated, dead: int) -> None:
    """Each serving directory stores how much of a producer's input was appended, so no line is appended twice."""
    left = 3 - dead
    run(two, "a\nb\n")
    assert [4, 4] == positions(two)
    break_disk(two.disk(dead))
    two.engine.maintenance(two.clock())
    two.open(DISKS[left - 1], left_out=(DISKS[dead - 1],))
    assert 1 == run(two, "a\nb\nc\n").appended
    assert ["a", "b", "c"] == two.lines()


@pytest.mark.parametrize("how", ["while it serves", "at a start"])
@pytest.mark.parametrize("away", [1, 2])
def test_a_directory_that_returns_has_the_newer_copy(two: Replicated, away: int, how: str) -> None:
    """A returning directory's older copy is replaced: nothing is appended twice if the other directory fails later."""
    other = 3 - away
    run(two, "a\n")
    break_disk(two.disk(away))
    two.engine.maintenance(two.clock())
    run(two, "a\nb\n")
    run(two, "a\nb\nc\n")
    if how == "at a start":
        two.disk(away).heal()
        two.reopen()
        two.engine.catch_up()
    else:
        two.bring_back(away)
    assert [6, 6] == positions(two)
    assert (1, 2) == tuple(sorted(two.in_sync()))
    two.reopen()
    break_disk(two.disk(other))
    two.engine.maintenance(two.clock())
    assert 1 == run(two, "a\nb\nc\nd\n").appended
    assert ["a", "b", "c", "d"] == two.lines()


def test_a_new_disk_gets_a_copy() -> None:
    """A third directory that is added gets the producer's file before any run."""
    three = Replicated(3)
    three.open(*DISKS[:2], left_out=DISKS[2:])
    three.engine.create_topic("orders", partitions=1)
    run(three, "a\n")
    three.engine.close()
    three.open()
    assert [2, 2, 2] == positions(three)


def test_a_directory_whose_copy_cannot_be_written_is_out_of_sync(two: Replicated) -> None:
    """A directory that cannot write the file is out of sync, so it cannot lead later with an old copy."""
    run(two, "a\n")
    two.disk(2).fail("rename", number=errno.EIO, times=1, suffix=f"{PRODUCERS}.tmp")
    run(two, "a\nb\n")
    assert [4, 2] == positions(two)
    assert (1,) == two.in_sync()


def test_a_copy_that_cannot_be_written_at_a_start_costs_only_its_directory() -> None:
    """A directory whose old copy cannot be replaced at a start is out of sync before the first run."""
    two = closed_with_an_old_copy()
    two.disk(2).fail("rename", number=errno.EIO, times=1, suffix=f"{PRODUCERS}.tmp")
    two.open()
    assert 1 == run(two, "a\nb\nc\n").appended
    assert ((1,), ["a", "b", "c"]) == (two.in_sync(), two.lines())


def test_an_old_copy_does_not_stand_for_a_damaged_one() -> None:
    """Nothing is appended until a damaged copy is removed, because it may have a later position than the old copy."""
    two = closed_with_an_old_copy()
    two.disks.write_bytes(DISKS[0] / PRODUCERS, b"\0" * 40)
    two.open()
    with pytest.raises(CorruptionError, match="not a named-producers file"):
        run(two, "a\nb\n")
    assert ["a", "b"] == two.lines()


def test_a_copy_of_before_a_new_producer_id_is_older(two: Replicated) -> None:
    """Because epochs restart at 0 after a new producer id, the number of runs shows which copy is newer."""
    run(two, "a\n")
    for root in DISKS[:2]:
        content = two.disks.read_bytes(root / PRODUCERS)
        two.disks.write_bytes(root / PRODUCERS, content.replace(b'"epoch": 0', b'"epoch": 32767'))
    old = two.disks.read_bytes(DISKS[1] / PRODUCERS)
    newer = run(two, "a\n")
    two.disks.write_bytes(DISKS[1] / PRODUCERS, old)
    two.reopen()
    again = run(two, "a\n")
    assert (newer.producer_id, 0, 1) == (again.producer_id, newer.epoch, again.epoch)
