"""The damage table: each kind of damage to each file of a replica, leader or follower, closed or in use."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.doubles.flips import path_of
from tests.doubles.replicated import ORDERS, with_orders
from topicfs.storage.disk.names import LEADER_EPOCHS, PARTITION_METADATA
from topicfs.storage.model import Position

LINES = [f"line {number} {'x' * 20}" for number in range(40)]
FILES = (
    "first.log",
    "middle.log",
    "active.log",
    "first.index",
    "middle.index",
    "active.index",
    "first.timeindex",
    "middle.timeindex",
    "active.timeindex",
    "active.snapshot",
    LEADER_EPOCHS,
    PARTITION_METADATA,
)


class Damaged:
    """Two replicas with two leader epochs, in segments of about ten batches; one replica's files are damaged."""

    def __init__(self, number: int) -> None:
        self.two = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
        self.number = number
        self.two.append_each(LINES[:30])
        self.stale = self._contents()
        self.two.reopen()
        self.two.append_each(LINES[30:])
        if self.two.leader() != 1:
            self.two.engine.elect_preferred()
        self.two.partition().sync()
        for root in self.two.roots:
            self.two.disks.sync_all(root)
        self.bases = self.two.engine.controller.logs(ORDERS)[1].chain.base_offsets

    def path(self, name: str) -> Path:
        """Return the path of a file that the table names."""
        return path_of(self.two, self.number, name)

    def _contents(self) -> dict[str, bytes]:
        disk, root = self.two.disk(self.number), self.path("x").parent
        found = [one.name for one in disk.list_directory(root) if not one.is_directory]
        return {name: disk.read_bytes(root / name) for name in found}

    def name_of(self, file: str) -> tuple[str, str]:
        """Return the name of the file that `file` describes, and of another file of its kind."""
        which, _, kind = file.partition(".")
        places = {"first": (0, 1), "middle": (2, 1), "active": (-1, -2)}
        if which not in places:
            return (file, PARTITION_METADATA if file == LEADER_EPOCHS else LEADER_EPOCHS)
        if kind == "snapshot":
            newest, other, *_ = sorted((one for one in self._contents() if one.endswith(kind)), reverse=True)
            return newest, other
        one, other = (f"{self.bases[at]:020}.{kind}" for at in places[which])
        return one, other

    def read(self, name: str) -> bytes:
        return self.two.disk(self.number).read_bytes(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        """Write bytes into a file, which may be open."""
        file = self.two.disk(self.number).open(self.path(name), create=True)
        file.truncate(len(data))
        file.pwrite(data, Position(0))
        file.sync()

    def remove(self, name: str) -> None:
        disk, path = self.two.disk(self.number), self.path(name)
        disk.unlink(path)
        disk.sync_directory(path.parent)


def flipped(one: Damaged, name: str, _other: str) -> None:
    data = bytearray(one.read(name))
    data[len(data) // 2] ^= 4
    one.write(name, bytes(data))


def cut(one: Damaged, name: str, _other: str) -> None:
    data = one.read(name)
    one.write(name, data[: len(data) // 2])


def missing(one: Damaged, name: str, _other: str) -> None:
    one.remove(name)


def exchanged(one: Damaged, name: str, other: str) -> None:
    data = one.read(name)
    one.write(name, one.read(other))
    one.write(other, data)


def junk(one: Damaged, name: str, _other: str) -> None:
    one.write(name, one.read(name) + b"junk" * 9)


def stale(one: Damaged, name: str, _other: str) -> None:
    one.write(name, one.stale.get(name, b""))


DAMAGES: tuple[Callable[[Damaged, str, str], None], ...] = (flipped, cut, missing, exchanged, junk, stale)


def logs(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".log")}


@pytest.mark.parametrize("running", [False, True], ids=["at rest", "in use"])
@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize(("file", "damage"), list(product(FILES, DAMAGES)))
def test_it_is_healed(file: str, damage: Callable[[Damaged, str, str], None], number: int, running: bool):
    """All records can be read, and a scrub leaves both replicas in sync and equal, with their original logs.

    An index may have fewer entries, but finds the same records.
    """
    one = Damaged(number)
    two = one.two
    good = two.files(3 - number)
    assert good == two.files(number)
    names = one.name_of(file)
    if not running:
        two.engine.close()
    damage(one, *names)
    if not running:
        two.open()
        two.engine.catch_up()
    assert LINES == two.lines()
    found = two.scrub()
    assert [] == [str(each) for each in found if each.healed_from is None]
    assert (1, 2) == two.in_sync()
    assert [] == [str(each) for each in two.scrub()]
    two.reopen()
    two.engine.catch_up()
    assert (LINES, (1, 2)) == (two.lines(), two.in_sync())
    assert two.files(1) == two.files(2)
    assert logs(good) == logs(two.files(1))
