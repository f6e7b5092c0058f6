"""A file of equal slots, of which the first so many are used.

    | slot 0 | slot 1 | … | slot n-1 | zeros up to the preallocated size |

While a segment is active its index file has its full size, so that it is a mapping that never moves; after a clean start
only from the next entry on, for most logs of many never get one. When the segment becomes inactive the file is trimmed
to what is used. Nothing in the file says how much that is: when a file
is opened every slot counts as used, zeros too; so loading a log looks at an index's end first (kafka-storage.md#index-files).

Slots are written by write(2) and read through the mapping, which shows them at once: a store through the mapping of
a file with holes would end the process when the disk is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from topicfs.storage.disk.filesystem import File
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Position


class SlotFile:
    """`entries` used slots out of `capacity`. Changed under the log's lock, read by any thread."""

    __slots__ = ("_file", "_reserved", "_slot", "_slot_bytes", "capacity", "entries")

    def __init__(self, file: File, slot: Struct, *, new_bytes: int | None = None) -> None:
        """Open `file` with every slot used; or, with `new_bytes`, as a new, empty one preallocated to that."""
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
        """Return one slot's fields, used or not.

        Not through the mapping: an unused slot takes no room yet, and to look at it there on a full disk in memory (tmpfs)
        would end the process.
        """
        data = self._file.pread(self._slot_bytes, Position(slot * self._slot_bytes))
        fields: tuple[int, ...] = self._slot.unpack(data)
        return fields

    def used(self) -> tuple[memoryview, int]:
        """Return the used slots and their number, in agreement; ask again for each lookup.

        Never more than the used ones: the file may be trimmed at any moment, and a page behind its end cannot be
        read. Raises CorruptionError if the file was cut by someone else.
        """
        entries = self.entries
        try:
            return self._file.map(entries * self._slot_bytes), entries
        except ValueError as error:
            raise CorruptionError(self.path, self._file.size(), f"{entries} entries were here") from error

    def append(self, *fields: int) -> None:
        """Use one more slot; there is one, the caller has looked."""
        assert self.entries < self.capacity, f"{self.path}: no slot left of {self.capacity}"
        if self._reserved:
            self.resize(self.capacity * self._slot_bytes)
        self._file.pwrite(self._slot.pack(*fields), Position(self.entries * self._slot_bytes))
        self.entries += 1

    def extend(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Use so many more slots at once; there are as many, the caller has looked."""
        if rows:
            assert self.entries + len(rows) <= self.capacity, f"{self.path}: only {self.capacity} slots"
            data = b"".join([self._slot.pack(*row) for row in rows])
            if self._reserved:
                self.resize(self.capacity * self._slot_bytes)
            self._file.pwrite(data, Position(self.entries * self._slot_bytes))
            self.entries += len(rows)

    def truncate(self, entries: int) -> None:
        """Use only the first `entries` slots from now on."""
        self.entries = min(self.entries, entries)

    def resize(self, size: int) -> None:
        """Resize the file to as many whole slots as `size` bytes hold, but never fewer than are used."""
        target = max(self._whole(size), self.used_bytes)
        if target != self._file.size():
            self._file.truncate(target)
        self.capacity, self._reserved = target // self._slot_bytes, False

    def reserve(self, size: int) -> None:
        """Do what `resize` does, with the next slot that is used: until then the file stays as it is."""
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
