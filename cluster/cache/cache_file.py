"""A cache file: adjacent batches, read from any offset. Each read verifies the checksums, so damage is always found."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.codec.aborted_filter import still_aborted
from topicfs.storage.codec.batch import find_end, find_offset, read_header, scan
from topicfs.storage.codec.headers import Batches
from topicfs.storage.disk.plain_files import open_plain
from topicfs.storage.model import AbortedTransaction, Fetched, Isolation, Offset, Position, ProducerId

LOG_SUFFIX = ".log"
ABORTED_SUFFIX = ".aborted"
PLACE_BYTES = 1 << 16
"""Distance in bytes between two batches whose file positions are remembered. To find a record, a read scans at most
this many bytes.
"""
_NEVER = Offset(2**63 - 1)


class DamagedError(Exception):
    """Raised if the content of a file is not what was written."""


class FetchedBatches(NamedTuple):
    """Batches from an offset on, as fetched from the leader of `leader_epoch`."""

    offset: Offset
    next_offset: Offset
    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    isolation: Isolation | None
    """The isolation level of the reader that fetched the batches; None if both levels see the same batches."""
    leader_epoch: int

    def part(self, offset: Offset, max_bytes: int) -> Fetched:
        """Return the batch that contains `offset`, and the batches after it, up to `max_bytes` in total.

        If no batch contains `offset`, return no batches.
        """
        data = self.data
        position = find_offset(data, offset, len(data))
        if position == len(data):
            return Fetched(data[:0], Position(0), Offset(0), max(offset, self.next_offset))
        size, last_offset = find_end(data[position : position + max_bytes])
        first = read_header(data, position)
        if not size:
            size, last_offset = first.size_bytes, first.last_offset
        aborted = self.aborted
        if aborted and position:
            aborted = still_aborted(aborted, scan(data, 0, position))
        end = position + size
        # Brokers do not report a batch's position in its segment; its base offset identifies it instead.
        place = Position(first.base_offset)
        after = Offset(max(first.last_offset, last_offset) + 1)
        return Fetched(data[position:end], place, Offset(0), after, aborted)


class CacheFile:
    """Batches from `base_offset` up to `next_offset`. Only the method `window` may be called by several threads."""

    def __init__(self, path: Path, base_offset: Offset) -> None:
        """Open or create the file `path` without using its content, which `load` checks. Raises OSError."""
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        """Size of the valid batches in bytes."""
        self.leader_epoch = -1
        """Leader epoch of the last batch."""
        self.transactional = False
        """True if some batch belongs to a transaction."""
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self._offsets: list[Offset] = []
        self._positions: list[int] = []
        """File positions of remembered batches. Their base offsets are in `_offsets`."""
        self._aborted: list[AbortedTransaction] = []
        self._markers: dict[ProducerId, list[Offset]] = defaultdict(list)
        """The offsets of each producer's commit and abort markers."""

    @classmethod
    def load(cls, path: Path) -> CacheFile:
        """Open an existing file, and cut off an incomplete end. Raises OSError, DamagedError."""
        cache_file = cls(path, Offset(int(path.name.removesuffix(LOG_SUFFIX))))
        try:
            cache_file._aborted = _read_aborted(path.with_suffix(ABORTED_SUFFIX))
            size = os.fstat(cache_file._descriptor).st_size
            data = os.pread(cache_file._descriptor, size, 0)
            batches = scan(data)
            cache_file._note(batches, 0)
            os.ftruncate(cache_file._descriptor, cache_file.size)
        except BaseException:
            cache_file.close()
            raise
        return cache_file

    def append(self, data: memoryview, next_offset: Offset, aborted: Iterable[AbortedTransaction]) -> None:
        """Append the next batches, and store which transactions in them were aborted. Raises OSError, DamagedError."""
        new = [one for one in aborted if one not in self._aborted]
        if new:
            # Store this list first: without it, the aborted transactions would seem to be committed.
            with self.path.with_suffix(ABORTED_SUFFIX).open("a") as file:
                file.writelines(f"{one.producer_id} {one.first_offset}\n" for one in new)
            self._aborted += new
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], self.size + written)
        self._note(scan(data), self.size)
        if self.next_offset > next_offset:
            raise DamagedError(
                f"{self.path}: the batches end at offset {self.next_offset}, expected {next_offset}"
            )
        self.next_offset = next_offset

    def window(
        self, offset: Offset, max_bytes: int, isolation: Isolation, leader_epoch: int
    ) -> FetchedBatches:
        """Return the batch that contains `offset`, and about `max_bytes` of the following batches.

        Batches before the one with `offset` may be returned too. Raises OSError, DamagedError.
        """
        index = max(bisect_right(self._offsets, offset) - 1, 0)
        start = self._positions[index]
        holder_end = self._positions[index + 1] if index + 1 < len(self._positions) else self.size
        size = min(max(holder_end, start + PLACE_BYTES + max_bytes), self.size) - start
        data = os.pread(self._descriptor, size, start)
        batches = scan(data, check_crc=True)
        if batches.stop + start < holder_end or not len(batches) or batches[0].base_offset < self.base_offset:
            raise DamagedError(
                f"{self.path}: position {start + batches.stop}: {batches.problem or 'cut off'}"
            )
        first, last = batches[0].base_offset, batches[-1].last_offset
        after = self.next_offset if start + batches.stop == self.size else Offset(last + 1)
        if not first <= offset < after and index:
            raise DamagedError(f"{self.path}: position {start}: offset {offset} is missing")
        aborted: tuple[AbortedTransaction, ...] = ()
        if isolation is Isolation.READ_COMMITTED and self._aborted:
            aborted = tuple(
                one for one in self._aborted if one.first_offset <= last and self._end_of(one) >= first
            )
        return FetchedBatches(
            offset, after, memoryview(data)[: batches.stop], aborted, isolation, leader_epoch
        )

    def flush(self) -> None:
        """Sync the list of aborted transactions to disk. Raises OSError."""
        if self._aborted:
            sync(self.path.with_suffix(ABORTED_SUFFIX))
            sync(self.path.parent)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Delete the file and its list of aborted transactions. Readers that have them open can continue."""
        for path in (self.path, self.path.with_suffix(ABORTED_SUFFIX)):
            with suppress(OSError):
                path.unlink()

    def _note(self, batches: Batches, position: int) -> None:
        """Index batches that begin at file position `position`."""
        for one in batches:
            if one.base_offset < self.next_offset and self.size:
                raise DamagedError(
                    f"{self.path}: offset {one.base_offset} comes after {self.next_offset - 1}"
                )
            at = position + one.position
            if not self._positions or at - self._positions[-1] >= PLACE_BYTES:
                self._offsets.append(one.base_offset)
                self._positions.append(at)
            if one.is_control:
                self._markers[one.producer_id].append(one.last_offset)
            self.transactional = self.transactional or one.is_transactional
            self.leader_epoch = one.leader_epoch
            self.next_offset = Offset(one.last_offset + 1)
            self.size = at + one.size_bytes

    def _end_of(self, one: AbortedTransaction) -> Offset:
        markers = self._markers.get(one.producer_id, [])
        index = bisect_right(markers, one.first_offset)
        return markers[index] if index < len(markers) else _NEVER


def sync(path: Path) -> None:
    """Sync a file or directory to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def part_below(data: memoryview, end: Offset) -> memoryview:
    """Return the batches of `data` whose base offset is below `end`."""
    size, last_offset = find_end(data)
    if last_offset < end:
        return data[:size]
    below = [one for one in scan(data) if one.base_offset < end]
    return data[: below[-1].end_position] if below else data[:0]


def _read_aborted(path: Path) -> list[AbortedTransaction]:
    """Read a cache file's list of aborted transactions; empty if it does not exist. Raises DamagedError."""
    if not path.exists():
        return []
    try:
        lines = [line.split(" ") for line in path.read_text().splitlines()]
        return [AbortedTransaction(ProducerId(int(pid)), Offset(int(first))) for pid, first in lines]
    except ValueError as error:
        raise DamagedError(f"{path}: {error}") from None
