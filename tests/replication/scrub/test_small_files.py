"""Tests that a scrub heals the files next to the segments from the engine's memory or another replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.doubles.flips import flip, path_of
from tests.doubles.records import batch
from tests.doubles.replicated import Replicated, with_orders
from tests.replication.scrub.test_damage_table import DAMAGES, Damaged
from topicfs.replication.replicas.rules.follower import catch_up
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, ProducerId, Timestamp

PRODUCER = ProducerId(7)


@pytest.fixture
def two() -> Replicated:
    """Make two replicas with aborted transactions in several segments."""
    both = with_orders(internal_segment_bytes=600)
    logs = both.engine.controller.logs(both.partition().name)
    for number in range(12):
        _append_aborted(logs[1], number)
        catch_up(logs[1], logs[2], max_bytes=1)
    return both


def _append_aborted(log: Log, number: int) -> None:
    """Append a transaction of one record and its abort marker, as a follower does."""
    end, epoch = log.log_end_offset, log.parts.leader_epoch
    stamp = BatchStamp(producer_id=PRODUCER, producer_epoch=0, base_sequence=number, transactional=True)
    log.appender.append_as_follower(
        batch(b"value %d" % number, stamp=stamp, offset=end, epoch=epoch, timestamp=1 + number)
    )
    marker = encode_marker(
        EndTransactionMarker(ControlType.ABORT, coordinator_epoch=0),
        timestamp=Timestamp(1 + number),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_offset=Offset(end + 1),
        leader_epoch=epoch,
    )
    log.appender.append_as_follower(marker)


def scrub(two: Replicated) -> list[tuple[str, str | None]]:
    """Scrub; return the damaged files, and the source from which each was healed."""
    return [(one.finding.file.name, one.healed_from) for one in two.scrub()]


def named(two: Replicated, number: int, suffix: str) -> dict[str, bytes]:
    root = path_of(two, number, "x").parent
    return {
        entry.name: two.disks.read_bytes(root / entry.name)
        for entry in two.disks.list_directory(root)
        if entry.name.endswith(suffix)
    }


@pytest.mark.parametrize("number", [1, 2])
def test_a_transaction_index_is_restored_from_memory(two, number):
    """Transaction indexes of sealed and active segments are rewritten, and appends to them continue."""
    assert [] == scrub(two)
    good = named(two, number, ".txnindex")
    assert len(good) > 2
    for name in (min(good), max(good)):
        flip(two, number, 9, name=name)
    assert [(min(good), "memory"), (max(good), "memory")] == sorted(scrub(two))
    assert good == named(two, number, ".txnindex")
    assert [] == scrub(two)


@pytest.mark.parametrize("number", [1, 2])
def test_a_snapshot_is_that_of_another_replica(two, number):
    """A snapshot with a wrong checksum is copied from another replica."""
    good = named(two, number, ".snapshot")
    name = max(good)
    flip(two, number, 3, name=name)
    assert [(name, str(two.roots[2 - number]))] == scrub(two)
    assert good == named(two, number, ".snapshot")


def test_a_snapshot_that_is_damaged_everywhere_is_left(two):
    """If a snapshot is damaged in both replicas, a start skips it and uses the snapshot before it."""
    name = max(named(two, 1, ".snapshot"))
    for number in (1, 2):
        flip(two, number, 3, name=name)
    assert [(name, None)] * 2 == scrub(two)


def test_leader_epochs_are_those_of_the_log(two):
    """An epoch file with another epoch or garbage is rewritten from the log."""
    good = named(two, 1, "leader-epoch-checkpoint")
    flip(two, 1, len(good["leader-epoch-checkpoint"]) - 2, name="leader-epoch-checkpoint")
    assert [("leader-epoch-checkpoint", "memory")] == scrub(two)
    assert good == named(two, 1, "leader-epoch-checkpoint")


class DamagedIndexes(Damaged):
    """Replicas with aborted transactions; the transaction indexes of one replica are damaged."""

    def __init__(self, two: Replicated, number: int) -> None:
        self.two, self.number = two, number
        self.stale = {}


@pytest.mark.parametrize("running", [False, True], ids=["at rest", "in use"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("which", [min, max], ids=["sealed", "active"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_transaction_index_is_healed_or_named(
    two: Replicated,
    damage: Callable[[Damaged, str, str], None],
    which: Callable[[Iterable[str]], str],
    number: int,
    running: bool,
):
    """A start or scrub rewrites the index. If each of two indexes lacks entries of the other, both are named."""
    for root in two.roots:
        two.disks.sync_all(root)
    good = named(two, number, ".txnindex")
    name, other = which(good), sorted(good)[1]
    if not running:
        two.engine.close()
    damage(DamagedIndexes(two, number), name, other)
    if not running:
        two.open()
        two.engine.catch_up()
    scrub(two)
    left = scrub(two)
    two.reopen()
    assert (1, 2) == two.in_sync()
    if not running and damage.__name__ in {"flipped", "exchanged"} and left:
        assert [(name, None)] * 2 == [one for one in left if one[0] == name]
        assert {name, other} >= {one[0] for one in left}
        return
    assert ([], good) == (left, named(two, number, ".txnindex"))
