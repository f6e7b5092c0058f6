"""The data directories with their logs and damage, and a disk that can fail or simulate the kill of a process."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.soak.crossings.disk import MortalDirectory
from topicfs.storage.checkpoints.leader_epochs import decode_epochs
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.codec.columns import decode
from topicfs.storage.disk import lock, names
from topicfs.storage.disk.filesystem import Clock, DirectoryEntry
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import StorageError
from topicfs.storage.model import TopicPartition

PLAIN = (TopicPartition("plain", 0), TopicPartition("plain", 1))
RETAINED = TopicPartition("retained", 0)
"""The partition whose oldest records retention deletes."""
PARTITIONS = (*PLAIN, RETAINED)
HEADER_BYTES = 12
"""Size of the base offset and length at the start of each batch."""
CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
    names.CLEAN_SHUTDOWN,
)
FLUSHED = {names.RECOVERY_POINTS, names.CLEAN_SHUTDOWN}
"""Files that record what was flushed."""
SMALL_FILES = (names.REPLICAS, names.META_PROPERTIES, names.TOPIC_SETTINGS, *CHECKPOINTS)
PARTITION_FILES = (names.LEADER_EPOCHS, names.PARTITION_METADATA)


class FailingDirectory(MortalDirectory):
    """The real disk, on which the process is "killed" and directories fail."""

    def __init__(self, clock: Clock, chance: Random) -> None:
        super().__init__(clock, chance)
        self.broken: set[Path] = set()
        """Data directories whose disk fails at every call."""
        self.changes = 0

    def dies(self, operation: str, path: Path) -> bool:
        self.check(path)
        self.changes += 1
        return super().dies(operation, path)

    def check(self, path: Path) -> None:
        """Raise OSError if a path is on a failing disk."""
        if any(one == path or one in path.parents for one in self.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def list_directory(self, path: Path, *, prefix: str = "") -> list[DirectoryEntry]:
        self.check(path)
        return super().list_directory(path, prefix=prefix)

    def read_bytes(self, path: Path) -> bytes:
        self.check(path)
        return super().read_bytes(path)


@dataclass(eq=False)
class TestedDirectory:
    """A data directory that the test damages, takes away and brings back."""

    path: Path
    damaged: dict[Path, bytes] = field(default_factory=dict)
    """The original content of damaged files by path, until the directory serves again."""
    torn: bool = False
    """True after a segment was damaged. Then the log start, and files that record what was flushed, stay undamaged."""
    forgot: set[str] = field(default_factory=set)
    """Partitions whose leader epochs were damaged, which may have been the only record of the log start."""

    @property
    def away(self) -> Path:
        """The directory's path while its disk is away."""
        return self.path.with_name(f"{self.path.name}-away")

    def take_away(self) -> None:
        """Take the disk away."""
        if self.path.exists() and not self.away.exists():
            self.path.rename(self.away)

    def bring_back(self) -> bool:
        """Bring the disk back, or delete it if a new disk has replaced it; return whether it was replaced."""
        # The other directories may know the new disk, if the process was killed just before it renamed this
        # file.
        replaced = self.away.exists() and any(self.path.glob(f"{names.REPLICAS}*"))
        if replaced:
            self.damaged.clear()
            shutil.rmtree(self.away)
        elif self.away.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            self.away.rename(self.path)
        return replaced

    def replace_disk(self) -> None:
        """Replace the disk by an empty one, if there is a disk: a start that was killed early may have left none."""
        if self.path.exists():
            shutil.rmtree(self.path)
        self.damaged.clear()

    def release_lock(self) -> None:
        """Release the lock of a killed process, as the kernel does."""
        path = self.path / names.LOCK
        for number in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{number}").split(" (deleted)")[0] == str(path):
                    found = os.fstat(int(number))
                    lock._held.pop(lock._Identity(found.st_dev, found.st_ino), None)
                    os.close(int(number))
            except OSError:
                continue

    # Damage.

    def damage_small_file(self, chance: Random) -> str | None:
        """Damage a small file of the directory or of one of its partitions; return what was done."""
        files = [self.path / name for name in SMALL_FILES]
        for partition in sorted(self.path.glob("*-[0-9]")):
            files += [partition / name for name in PARTITION_FILES]
        present = [file for file in files if file.is_file() and file not in self.damaged]
        present = [
            file for file in present if not (self.torn and file.name in {*FLUSHED, names.LEADER_EPOCHS})
        ]
        if not present:
            return None
        # All directories have these files; choose them as often as all other files together.
        agreed = [file for file in present if file.name in SMALL_FILES[:3]]
        file = chance.choice(agreed if agreed and chance.random() < 0.5 else present)
        kind = chance.choice(sorted(DAMAGES))
        self.damaged[file] = file.read_bytes()
        if file.name == names.LEADER_EPOCHS:
            self.forgot.add(file.parent.name)
        DAMAGES[kind](file)
        return f"{self.path.name}: {kind} {file.relative_to(self.path)}"

    def damage_segment(self, chance: Random) -> str | None:
        """Cut or delete the log of a flushed, closed segment that has batches; return what was done.

        Unflushed segments are left alone: a start would drop all records after the cut, as after a power failure.
        """
        if {*FLUSHED, names.LEADER_EPOCHS} & {file.name for file in self.damaged}:
            return None
        clean = (self.path / names.CLEAN_SHUTDOWN).exists()
        points = read_offsets(NativeFileSystem(read_only=True), self.path / names.RECOVERY_POINTS)
        logs = [
            file
            for name in PARTITIONS
            for file, after in pairwise(sorted((self.path / names.partition_directory(name)).glob("*.log")))
            if (clean or int(after.stem) <= points.get(name, 0)) and file.stat().st_size
        ]
        if not logs:
            return None
        file, self.torn = chance.choice(logs), True
        if chance.random() < 0.5:
            file.unlink()
            return f"{self.path.name}: removed {file.relative_to(self.path)}"
        size = chance.randrange(file.stat().st_size)
        os.truncate(file, size)
        return f"{self.path.name}: cut {file.relative_to(self.path)} to {size}"

    def serves(self) -> None:
        """Forget the original content of damaged files, because other directories may rely on the damaged content now.

        The files with topic ids are still repaired, because a topic id never changes.
        """
        self.damaged = {
            file: content
            for file, content in self.damaged.items()
            if file.name == names.PARTITION_METADATA and (not file.is_file() or content != file.read_bytes())
        }

    def repair(self) -> list[str]:
        """Restore the damaged files; return their names."""
        repaired: list[str] = []
        if self.away.exists():
            return repaired
        for file, content in self.damaged.items():
            if file.parent.exists():
                _remove(file)
                file.write_bytes(content)
                repaired.append(f"{self.path.name}: {file.name}")
        self.damaged.clear()
        return repaired


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


def _garble(file: Path) -> None:
    file.write_bytes(bytes(range(255, 0, -1)))


def _replaced(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        file.unlink()
        make(file)

    return replace


DAMAGES: dict[str, Callable[[Path], None]] = {
    "emptied": lambda file: os.truncate(file, 0),
    "garbled": _garble,
    "halved": lambda file: os.truncate(file, file.stat().st_size // 2),
    "removed": Path.unlink,
    "FIFO in the place of": _replaced(os.mkfifo),
    "directory in the place of": _replaced(Path.mkdir),
}


Batches = dict[int, bytes]
"""The batches of a log by their base offsets."""
Held = dict[bytes, int]
"""The offset of each record of a log by its value."""


def read_batches(files: Iterable[Path]) -> Batches:
    """Read the valid batches of files without using an engine."""
    found: Batches = {}
    for file in files:
        data, position = file.read_bytes(), 0
        while position + HEADER_BYTES <= len(data):
            end = position + HEADER_BYTES + int.from_bytes(data[position + 8 : position + 12], "big")
            if not position + HEADER_BYTES < end <= len(data):
                break
            batch = data[position:end]
            found[int.from_bytes(batch[:8], "big")] = batch
            position = end
    return found


def held(batches: Batches) -> Held:
    """Return the records of valid batches."""
    found: Held = {}
    for batch in batches.values():
        try:
            for columns in decode(memoryview(batch)):
                found.update({record.value or b"": int(record.offset) for record in columns})
        except StorageError:
            continue
    return found


def batches_in(place: Path, partition: TopicPartition) -> Batches:
    """Read a partition's batches in a data directory."""
    return read_batches(sorted((place / names.partition_directory(partition)).glob("*.log")))


def told_start(place: Path, partition: TopicPartition, start: int) -> int:
    """Return the log start that the leader epochs give; after lost segments it may be lower than `start`."""
    file = place / names.partition_directory(partition) / names.LEADER_EPOCHS
    try:
        entries = decode_epochs(file.read_bytes(), file=file) if file.is_file() else ()
    except StorageError:
        return start
    return min([start, *(entry.start_offset for entry in entries)])
