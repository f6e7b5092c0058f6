"""Changes to a replica's files that are made directly on the replica's disk: the engine does not notice them."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.replicated import ORDERS, Replicated
from topicfs.storage.model import Position, TopicPartition


def path_of(all_of: Replicated, number: int, name: str, partition: TopicPartition = ORDERS) -> Path:
    """Return the path of the file `name` of replica `number`."""
    return all_of.roots[number - 1] / str(partition) / name


def flip(
    all_of: Replicated, number: int, position: int, *, name: str = f"{0:020}.log", mask: int = 1
) -> None:
    """Flip the bits `mask` of one byte in a file of a replica, and sync the file."""
    file = all_of.disk(number).open(path_of(all_of, number, name))
    octet = file.pread(1, Position(position))[0]
    file.pwrite(bytes([octet ^ mask]), Position(position))
    file.sync()


def write(all_of: Replicated, number: int, position: int, data: bytes, *, name: str = f"{0:020}.log") -> None:
    """Overwrite bytes in a file of a replica, and sync the file."""
    file = all_of.disk(number).open(path_of(all_of, number, name))
    file.pwrite(data, Position(position))
    file.sync()
