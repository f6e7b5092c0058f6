"""A file of slots of equal size, of which the first ones are used (kafka-storage.md#index-files).

    | slot 0 | slot 1 | … | slot n-1 | zeros up to the preallocated size |

While its segment is active, the file has its full size, so that its mapping never moves. (After a clean start it gets
this size with the next entry.) When the segment becomes inactive, the file is trimmed. The file does not store how
many slots are used: when it is opened, all slots count as used.

Slots are read through the mapping, but written with write(2): on a full disk, a write through the mapping would kill
the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from topicfs.storage.disk.filesystem import File
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Position


class SlotFile:
    """A file with `entries` used slots out of `capacity`. Changed under the log's lock; any thread may read it."""

    __slots__ = ("_file", "_reserved", "_slot", "_slot_bytes", "capacity", "entries")

    def __init__(self, file: File, slot: Struct, *, new_bytes: int | None = None) -> None:
        """Open `file`, in which all slots count as used. `new_bytes`: make an empty file preallocated to that size."""
        self._file = file
        self._slot = slot
        self._slot_bytes = slot.size
        self._reserved = False
        if new_bytes is not None:
            file.truncate(0)
            file.truncate(self._whole(new_bytes))
        self.capacity = file.size() // slot.size
        self.entries = 0 if new_bytes is not None else self.capacity

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def used_bytes(self) -> int:
        return self.entries * self._slot_bytes

    def file_bytes(self) -> int:
        return self._file.size()

    def read(self, slot: int) -> tuple[int, ...]:
        """Return the fields of any slot.

        They are read from the file, not from the mapping: on a full tmpfs, a hole in the mapping would kill the
        process.
        """
        data = self._file.pread(self._slot_bytes, Position(slot * self._slot_bytes))
        fields: tuple[int, ...] = self._slot.unpack(data)
        return fields

    def used(self) -> tuple[memoryview, int]:
        """Return the used slots and their number, which may change between lookups. Raises CorruptionError."""
        entries = self.entries
        try:
            return self._file.map(entries * self._slot_bytes), entries
        except ValueError as error:
            raise CorruptionError(
                self.path, self._file.size(), f"the file is shorter than its {entries} entries"
            ) from error

    def append(self, *fields: int) -> None:
        """Write `fields` into the next slot. The caller has checked that a slot is free."""
        assert self.entries < self.capacity, f"{self.path}: no slot left of {self.capacity}"
        if self._reserved:
            self.resize(self.capacity * self._slot_bytes)
        self._file.pwrite(self._slot.pack(*fields), Position(self.entries * self._slot_bytes))
        self.entries += 1

    def extend(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Write each row into a further slot. The caller has checked that enough slots are free."""
        if rows:
            assert self.entries + len(rows) <= self.capacity, f"{self.path}: only {self.capacity} slots"
            data = b"".join([self._slot.pack(*row) for row in rows])
            if self._reserved:
                self.resize(self.capacity * self._slot_bytes)
            self._file.pwrite(data, Position(self.entries * self._slot_bytes))
            self.entries += len(rows)

    def truncate(self, entries: int) -> None:
        """Keep only the first `entries` slots in use."""
        self.entries = min(self.entries, entries)

    def resize(self, size: int) -> None:
        """Resize the file to as many whole slots as fit into `size` bytes, but keep the used slots."""
        target = max(self._whole(size), self.used_bytes)
        if target != self._file.size():
            self._file.truncate(target)
        self.capacity, self._reserved = target // self._slot_bytes, False

    def reserve(self, size: int) -> None:
        """Do what `resize` does, but only when the next slot is written; until then the file does not change."""
        self.capacity = max(self._whole(size), self.used_bytes) // self._slot_bytes
        self._reserved = True

    def trim(self) -> None:
        self.resize(self.used_bytes)

    def reset(self, size: int) -> None:
        self.entries = 0
        self._file.truncate(0)
        self.resize(size)

    def sync(self) -> None:
        self._file.sync()

    def moved(self, path: Path) -> None:
        self._file.moved(path)

    def close(self) -> None:
        self._file.close()

    def _whole(self, size: int) -> int:
        return size - size % self._slot_bytes
