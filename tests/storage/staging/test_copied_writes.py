"""Tests that replicated logs have each micro-batch once, even if the disk with its staged files fails."""

from __future__ import annotations

import errno
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest

from tests.doubles.mortal_disk import Killed, every_step
from tests.doubles.replicated import DISKS, ORDERS, Replicated
from tests.doubles.several_disks import SeveralDisks, break_disk
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.staged_writes import lines, stage_batches
from topicfs.storage.disk.names import WriteId, parse_write_file
from topicfs.storage.staging.area import StagingArea

pytestmark = pytest.mark.slow

BATCH = WriteId("b1946ac9-2d3f", 0)
TEXTS = ["a\nb\n", "c\n", "d\ne\n"]


class DyingDisk(SimulatedDisk):
    """A disk on which all calls fail after `steps_left` changes. With `kills` the process is killed as well."""

    steps_left: int | None = None
    kills = False

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        if self.steps_left == 0:
            if self.kills:
                raise Killed(f"{operation} {path}")
            raise OSError(errno.EIO, "Input/output error", str(path))
        if changes and self.steps_left is not None:
            self.steps_left -= 1
        super().happens(operation, path, changes=changes)


class Dying(Replicated):
    def make_disks(self, seed: int = 0) -> None:
        self.disks = SeveralDisks({root: DyingDisk(seed=seed + n) for n, root in enumerate(self.roots)})
        for disk in self.disks.disks.values():
            disk.sync_directory(Path("/"))

    def submit(self, number: int, *tasks: list[str]) -> None:
        """Submit micro-batch `number` with the batches of each task, in one of the directories."""
        area = StagingArea(DISKS[number - 1], self.disks)
        staged = [
            stage_batches(area, BATCH, (lines(*ORDERS, text) for text in texts), task=task)
            for task, texts in enumerate(tasks)
        ]
        if not area.submit(BATCH, staged):
            area.discard(one.name for one in staged)

    def left(self) -> list[str]:
        """Return the names of all files of writes."""
        return [
            entry.name
            for root in self.roots
            for entry in self.disks.list_directory(root)
            if parse_write_file(entry.name)
        ]


def died(number: int, steps: int, *, kills: bool) -> Dying | None:
    """Return replicas whose disk failed during the append, or None if the append was completed first."""
    two = Dying()
    two.engine.create_topic("orders", partitions=1)
    two.submit(1, TEXTS[:2], TEXTS[2:])
    disk = two.disk(number)
    assert isinstance(disk, DyingDisk)
    disk.kills, disk.steps_left = kills, steps
    with suppress(Killed):
        two.engine.commit_staged_writes()
    if disk.steps_left:
        return None
    disk.kills = False
    return two


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("kills", [False, True])
def test_a_repeated_micro_batch_is_there_once_wherever_a_disk_died(number: int, kills: bool) -> None:
    """If one disk fails at any step, the other directory continues the micro-batch from its copy.

    The log has the micro-batch once, even if the repeated micro-batch has other tasks.
    """
    found, steps = set(), 0
    while (two := died(number, steps, kills=kills)) is not None:
        other = 3 - number
        two.open(DISKS[other - 1], left_out=(DISKS[number - 1],))
        found.add(tuple(two.lines()))
        two.submit(other, ["a\n"], ["b\nc\nd\n"], ["e\n"])
        two.engine.commit_staged_writes()
        assert list("abcde") == two.lines(), steps
        two.engine.close()
        two.disk(number).steps_left = None
        two.open()
        two.engine.commit_staged_writes()
        two.engine.catch_up()
        assert (list("abcde"), [1, 2], []) == (two.lines(), sorted(two.in_sync()), two.left()), steps
        steps += 1
    assert kills == ({("a", "b"), ("a", "b", "c")} <= found)


def test_the_owner_that_goes_on_completes_the_micro_batch() -> None:
    """After its disk failed, the owner completes the micro-batch from the copy in the other directory."""
    found, steps = set(), 0
    while (two := died(1, steps, kills=False)) is not None:
        found.add(tuple(two.lines()))
        steps += 1
    assert {(), tuple("abcde")} == found


def test_a_directory_that_cannot_store_a_copy_fails_alone() -> None:
    """If one directory cannot store a copy, the micro-batch is committed in the other directories."""
    two = Replicated()
    two.engine.create_topic("orders", partitions=1)
    Dying.submit(two, 1, TEXTS)  # type: ignore[arg-type]
    break_disk(two.disk(2))
    two.engine.commit_staged_writes()
    assert (list("abcde"), (1,)) == (two.lines(), two.in_sync())
    two.bring_back(2)
    assert (1, 2) == tuple(sorted(two.in_sync()))


def test_a_directory_that_comes_back_does_not_begin_again_what_another_continued() -> None:
    """A returning directory does not restart a micro-batch that another directory has continued."""
    found, first = set(), 0
    while (two := died(1, first, kills=True)) is not None:
        dead = two.disks
        for second in every_step():
            two.disks = deepcopy(dead)
            two.open(DISKS[1], left_out=DISKS[:1])
            disk = two.disk(2)
            assert isinstance(disk, DyingDisk)
            disk.kills, disk.steps_left = True, second
            with suppress(Killed):
                two.engine.commit_staged_writes()
            completed = disk.steps_left != 0
            for number in (1, 2):
                two.disk(number).steps_left = None
            two.open()
            found.add(tuple(two.lines()))
            two.engine.commit_staged_writes()
            two.engine.catch_up()
            assert (list("abcde"), []) == (two.lines(), two.left()), (first, second)
            if completed:
                break
        first += 1
    assert {("a", "b"), ("a", "b", "c")} <= found
