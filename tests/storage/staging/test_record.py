"""Tests of the record of committed micro-batches, which is copied to several directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.mortal_disk import Killed, MortalDisk
from tests.doubles.several_disks import A, B, SeveralDisks, break_disk
from topicfs.storage.disk.names import COMMITTED_WRITES, WriteId
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import ProducerId
from topicfs.storage.staging.manifest import Content
from topicfs.storage.staging.record import CommitRecord, CommittedQuery

QUERY = "b1946ac9-2d3f"


def committed(batch: int) -> CommittedQuery:
    return CommittedQuery(batch, ProducerId(7), batch, Content(50, batch), 1_700_000_000_000)


class Copies:
    """Two disks, each with a copy of the record."""

    def __init__(self) -> None:
        self.disks = SeveralDisks({A: MortalDisk(), B: MortalDisk()})
        for root in (A, B):
            self.disks.make_directory(root)
            self.disks.of(root).sync_directory(Path("/"))
        self.serving = [A, B]
        self.record = CommitRecord(self.disks, lambda: self.serving, self.fail)

    def fail(self, directory: Path, error: OSError) -> None:
        self.serving.remove(directory)

    def note(self, batch: int, query: str = QUERY) -> None:
        self.record.note(WriteId(query, batch), committed(batch), set)

    def batches(self) -> list[int | None]:
        """Return the last micro-batch in each copy."""
        found = (self.record.read_copy(root).get(QUERY) for root in (A, B))
        return [None if one is None else one.batch for one in found]

    def last(self) -> int | None:
        found = self.record.read().get(QUERY)
        return None if found is None else found.batch

    def damage(self, root: Path) -> None:
        self.disks.write_bytes(root / COMMITTED_WRITES, b'{"version": 1, "quer')


@pytest.mark.parametrize("lost", [A, B])
def test_power_loss_keeps_a_noted_micro_batch_in_every_copy(lost: Path) -> None:
    """A recorded micro-batch is synced on each disk, so that either disk may be lost."""
    copies = Copies()
    copies.note(0)
    for disk in copies.disks.disks.values():
        disk.crash(keep=0.0)
    assert [0, 0] == copies.batches()
    copies.serving.remove(lost)
    assert 0 == copies.last()


@pytest.mark.parametrize("broken", [A, B])
def test_a_disk_that_fails_in_between_leaves_the_others_whole(broken: Path) -> None:
    """If one copy cannot be written, its directory is dropped. The micro-batch counts in the other directory."""
    copies = Copies()
    copies.note(0)
    break_disk(copies.disks.of(broken))
    copies.note(1)
    assert broken not in copies.serving
    assert 1 == copies.last()


def test_no_disk_that_takes_a_copy_is_an_error() -> None:
    """If no directory can record a micro-batch, the micro-batch is not committed."""
    copies = Copies()
    copies.note(0)
    for disk in copies.disks.disks.values():
        break_disk(disk)
    with pytest.raises(OSError, match=COMMITTED_WRITES):
        copies.note(1)
    assert (0, [A, B]) == (copies.last(), copies.serving)


def test_a_kill_between_the_copies_leaves_the_newer_one_counting() -> None:
    """After a kill between the writes of two copies the newer copy counts, and replaces the older one."""
    copies = Copies()
    copies.note(0)
    other = copies.disks.of(B)
    assert isinstance(other, MortalDisk)
    with pytest.raises(Killed), other.dying_after(0):
        copies.note(1)
    assert [1, 0] == copies.batches()
    assert 1 == copies.last()
    copies.record.update_copies()
    assert [1, 1] == copies.batches()


def test_an_old_copy_that_comes_back_is_replaced() -> None:
    """If an old copy returns, each query's highest micro-batch counts.

    The old copy is replaced, and no entry of either copy is lost.
    """
    copies = Copies()
    copies.serving = [A]
    copies.record.note(WriteId("elsewhere", 4), committed(4), set)
    copies.note(0)
    copies.record.write_copy(B, copies.record.read_copy(A))
    copies.note(1)
    copies.serving = [A, B]
    copies.record.update_copies([B])
    assert [1, 1] == copies.batches()
    assert copies.record.read_copy(A) == copies.record.read_copy(B)
    assert committed(4) == copies.record.read()["elsewhere"]


@pytest.mark.parametrize("damaged", [A, B])
def test_a_damaged_copy_is_replaced_by_the_whole_one(damaged: Path) -> None:
    """While both directories are available, one valid copy of the record is enough.

    Reading and recording use the valid copy, and the damaged copy is repaired.
    """
    copies = Copies()
    copies.note(0)
    copies.damage(damaged)
    assert 0 == copies.last()
    copies.record.update_copies()
    assert [0, 0] == copies.batches()
    copies.damage(damaged)
    copies.note(1)
    assert [1, 1] == copies.batches()


@pytest.mark.parametrize("other", ["old", "missing"])
def test_an_old_copy_does_not_stand_for_a_damaged_newer_one(other: str) -> None:
    """While one copy is damaged and the other is old or missing, no commit succeeds.

    The damaged copy may be newer. After it is removed, commits succeed again.
    """
    copies = Copies()
    if other == "old":
        copies.note(0)
    copies.serving = [A]
    copies.note(1)
    copies.damage(A)
    copies.serving = [A, B]
    with pytest.raises(CorruptionError, match="not a committed-writes file"):
        copies.record.update_copies([B])
    with pytest.raises(CorruptionError):
        copies.note(2)
    copies.disks.unlink(A / COMMITTED_WRITES)
    copies.record.update_copies([B])
    copies.note(2)
    assert [2, 2] == copies.batches()
