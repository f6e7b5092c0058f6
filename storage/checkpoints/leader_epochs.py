"""Leader epochs: the offset at which each leader epoch of a log begins.

    leader-epoch-checkpoint:  0 / number of entries / `epoch startOffset` on each line

Entries ascend strictly in epoch and in start offset. The rules are pure functions over tuples of entries;
`LeaderEpochs` holds the present tuple and its file (kafka-storage.md#leader-epochs).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.table import decode_table, encode_table, field_number
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import LEADER_EPOCHS
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset


class EpochEntry(NamedTuple):
    """A leader epoch: the epoch of the batches from `start_offset` up to the start of the next entry."""

    epoch: int
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The end of a leader epoch; `end_offset` is exclusive."""

    epoch: int
    end_offset: Offset


Entries = tuple[EpochEntry, ...]


def assign(entries: Entries, entry: EpochEntry) -> Entries:
    """Return `entries` with `entry` at the end. Raises ValueError for negative numbers.

    Entries whose epoch or start offset is not below that of `entry` are dropped. If `entry` only repeats the latest
    epoch, `entries` does not change.
    """
    if entry.epoch < 0 or entry.start_offset < 0:
        raise ValueError(f"leader epoch {entry.epoch} at offset {entry.start_offset}: must not be negative")
    if entries and entry.epoch == entries[-1].epoch and entry.start_offset >= entries[-1].start_offset:
        return entries
    kept = len(entries)
    while kept and (
        entries[kept - 1].epoch >= entry.epoch or entries[kept - 1].start_offset >= entry.start_offset
    ):
        kept -= 1
    return (*entries[:kept], entry)


def truncate_from_end(entries: Entries, end_offset: Offset) -> Entries:
    """Drop the epochs that start at or after `end_offset`, a log's new end."""
    return tuple(entry for entry in entries if entry.start_offset < end_offset)


def truncate_from_start(entries: Entries, start_offset: Offset) -> Entries:
    """Drop the epochs that end at or before `start_offset`, a log's new start.

    The epoch that contains `start_offset` then begins at `start_offset`.
    """
    passed = bisect_right(entries, start_offset, key=attrgetter("start_offset"))
    if not passed:
        return entries
    return (EpochEntry(entries[passed - 1].epoch, start_offset), *entries[passed:])


def end_offset_for(entries: Entries, epoch: int, log_end_offset: Offset) -> EpochEnd | None:
    """Return the largest known epoch not above `epoch`, with its end; None if `epoch` is above the latest.

    If `epoch` is below the first entry, return `epoch` itself with the first entry's start as its end.
    """
    above = bisect_right(entries, epoch, key=attrgetter("epoch"))
    if above == len(entries):
        latest = bool(entries) and entries[-1].epoch == epoch
        return EpochEnd(epoch, log_end_offset) if latest else None
    floor_epoch = entries[above - 1].epoch if above else epoch
    return EpochEnd(floor_epoch, entries[above].start_offset)


def epoch_for_offset(entries: Entries, offset: Offset) -> int | None:
    """Return the epoch that wrote `offset`; None if `offset` is before the first entry."""
    passed = bisect_right(entries, offset, key=attrgetter("start_offset"))
    return entries[passed - 1].epoch if passed else None


def encode_epochs(entries: Entries) -> bytes:
    return encode_table([f"{epoch} {offset}" for epoch, offset in entries])


def decode_epochs(data: bytes, *, file: Path) -> Entries:
    """Parse the file's bytes. Raises CorruptionError."""
    entries: Entries = ()
    for epoch, start_offset in decode_table(data, width=2, file=file):
        entry = EpochEntry(field_number(epoch, file=file), Offset(field_number(start_offset, file=file)))
        if entry.epoch < 0 or entry.start_offset < 0:
            raise CorruptionError(file, 0, f"epoch {entry.epoch} at offset {entry.start_offset} is negative")
        entries = assign(entries, entry)
    return entries


class LeaderEpochs:
    """A partition's leader epochs, in memory and in a file. Any thread may read; changes need the log's lock.

    `assign` flushes a new epoch. A truncation reaches the disk with the next `assign` or `flush`; if a crash comes
    first, recovery truncates the epochs again.
    """

    def __init__(self, path: Path, files: FileSystem, entries: Entries = ()) -> None:
        self._path = path
        self._files = files
        self.entries = entries
        self.dirty = False
        """True if memory is newer than the file."""
        self._writing = Lock()

    @classmethod
    def open(cls, directory: Path, files: FileSystem) -> LeaderEpochs:
        """Read a partition's leader epochs; make a missing file if possible. Raises CorruptionError, OSError."""
        path = directory / LEADER_EPOCHS
        if files.exists(path):
            return cls(path, files, decode_epochs(files.read_bytes(path), file=path))
        if not files.read_only:
            files.write_bytes(path, b"")
        return cls(path, files)

    @property
    def latest(self) -> EpochEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        return self.entries[0] if self.entries else None

    def assign(self, epoch: int, start_offset: Offset) -> bool:
        """Add `epoch`, which begins at `start_offset`; return whether it was new. A new epoch is on disk on return."""
        entries = assign(self.entries, EpochEntry(epoch, start_offset))
        if entries is self.entries:
            return False
        self.replace(entries)
        self.flush()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: Offset) -> EpochEnd | None:
        return end_offset_for(self.entries, epoch, log_end_offset)

    def epoch_for_offset(self, offset: Offset) -> int | None:
        return epoch_for_offset(self.entries, offset)

    def truncate_from_end(self, end_offset: Offset) -> None:
        self.replace(truncate_from_end(self.entries, end_offset))

    def truncate_from_start(self, start_offset: Offset) -> None:
        self.replace(truncate_from_start(self.entries, start_offset))

    def replace(self, entries: Entries) -> None:
        if entries != self.entries:
            self.entries = entries
            self.dirty = True

    def flush(self) -> None:
        """Write the file if memory is newer and the disk is writable. Blocks. Raises OSError."""
        if self._files.read_only:
            return
        with self._writing:
            if not self.dirty:
                return
            # Set first: a change during the write sets `dirty` again.
            self.dirty = False
            try:
                write_atomically(self._files, self._path, encode_epochs(self.entries))
            except OSError:
                self.dirty = True
                raise

    def moved(self, directory: Path) -> None:
        self._path = directory / LEADER_EPOCHS
