"""Several simulated disks as one file system, and an engine over two of them.

A path belongs to the disk whose root directory contains the path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.doubles.engines import QUIET, append_lines, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.replication import EmbeddedEngine, open_engine
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk.filesystem import DirectoryEntry, DiskSpace, File, FileEnds
from topicfs.storage.manager import Machine
from topicfs.storage.model import Buffer, Timestamp

A, B = Path("/a"), Path("/b")
ALWAYS = 1_000_000
WRITES = ("write_bytes", "pwrite", "rename", "sync", "make_directory", "sync_directory", "unlink")


class SeveralDisks:
    """A storage.disk.filesystem.FileSystem over several disks; each disk can crash, fill up, fail or vanish alone."""

    def __init__(self, disks: Mapping[Path, SimulatedDisk]) -> None:
        self.disks = dict(disks)

    @property
    def read_only(self) -> bool:
        return next(iter(self.disks.values())).read_only

    def read_only_view(self) -> SeveralDisks:
        """Return a view of the same disks that refuses every change."""
        return SeveralDisks({root: disk.read_only_view() for root, disk in self.disks.items()})

    def tree(self) -> dict[str, bytes]:
        """Return every file's content by its path."""
        return {name: data for disk in self.disks.values() for name, data in disk.tree().items()}

    def of(self, path: Path) -> SimulatedDisk:
        """Return the disk that holds `path`."""
        parts = path.parts
        for root, disk in self.disks.items():
            if root.parts == parts[: len(root.parts)]:
                return disk
        raise FileNotFoundError(f"{path}: on none of the disks")

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        return self.of(path).open(path, create=create, read_only=read_only)

    def exists(self, path: Path) -> bool:
        return self.of(path).exists(path)

    def size(self, path: Path) -> int:
        return self.of(path).size(path)

    def list_directory(self, path: Path, *, prefix: str = "") -> list[DirectoryEntry]:
        return self.of(path).list_directory(path, prefix=prefix)

    def make_directory(self, path: Path, *, private: bool = False) -> None:
        self.of(path).make_directory(path, private=private)

    def remove_directory(self, path: Path) -> None:
        self.of(path).remove_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        assert self.of(source) is self.of(target), f"{source} and {target} lie on different disks"
        self.of(source).rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        return self.of(source) is self.of(target) and self.of(source).link(source, target)

    def unlink(self, path: Path) -> None:
        self.of(path).unlink(path)

    def read_bytes(self, path: Path) -> bytes:
        return self.of(path).read_bytes(path)

    def read_ends(self, directory: Path, name: str, length: int) -> FileEnds:
        return self.of(directory).read_ends(directory, name, length)

    def write_bytes(self, path: Path, data: Buffer, *, sync: bool = False) -> None:
        self.of(path).write_bytes(path, data, sync=sync)

    def sync_directory(self, path: Path) -> None:
        # A sync of the directory in which the disks are mounted is passed to each disk.
        above = [disk for root, disk in self.disks.items() if path == root.parent]
        for disk in above or [self.of(path)]:
            disk.sync_directory(path)

    def sync_all(self, path: Path) -> None:
        self.of(path).sync_all(path)

    def modified_time_ms(self, path: Path) -> Timestamp:
        return self.of(path).modified_time_ms(path)

    def set_modified_time(self, path: Path, modified_time: Timestamp) -> None:
        self.of(path).set_modified_time(path, modified_time)

    def space(self, path: Path) -> DiskSpace:
        return self.of(path).space(path)


def opened(
    disks: SeveralDisks, clock: ManualClock | None = None, *directories: Path, config: EngineConfig = QUIET
) -> EmbeddedEngine:
    return open_engine(
        directories or (A, B),
        read_only=disks.read_only,
        config=config,
        machine=Machine(files=disks, clock=clock or ManualClock()),
    )


def places(engine: EmbeddedEngine) -> dict[str, str]:
    """Return the data directory of each partition."""
    return {
        f"{name}-{number}": str(partition.directory.parent)
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def states(engine: EmbeddedEngine) -> dict[str, str]:
    """Return the state of each partition, without the reason for the state."""
    return {
        f"{name}-{number}": partition.status().state.split(":")[0]
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def contents(engine: EmbeddedEngine) -> dict[str, list[str]]:
    return {
        f"{name}-{number}": read_lines(partition)
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def break_disk(disk: SimulatedDisk) -> None:
    """Make every later change fail, as on a disk that the kernel has made read-only."""
    for operation in WRITES:
        disk.fail(operation, times=ALWAYS)


def filled(disks: SeveralDisks, clock: ManualClock | None = None) -> EmbeddedEngine:
    """Open an engine with a topic. Each directory has one of the topic's partitions, with one line."""
    engine = opened(disks, clock)
    engine.create_topic("t", partitions=2, overrides={"max.message.bytes": "7000"})
    for number, partition in engine.topic("t").partitions().items():
        append_lines(partition, f"{number}\n")
    return engine


def topic_files(disks: SeveralDisks) -> list[dict[str, object]]:
    return [json.loads(disks.read_bytes(root / "topicfs.topics")) for root in (A, B)]
