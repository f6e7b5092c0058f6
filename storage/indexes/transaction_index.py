"""The transaction index: the aborted transactions whose markers are in a segment.

    slot (34 bytes):  int16 version 0 | int64 producer id | int64 first offset | int64 last offset
                      | int64 last stable offset                                           big-endian

The last offset is that of the abort marker; last offsets ascend strictly. The last stable offset is the log's value
after this abort. Once it reaches the end of a reader's range, later entries do not concern that reader. The file
exists only if it has an entry (kafka-storage.md#transaction-index).
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from topicfs.storage.disk.filesystem import File, FileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, ProducerId

SLOT = Struct(">hqqqq")
VERSION = 0


class AbortedSpan(NamedTuple):
    """An aborted transaction: readers skip records of `producer_id` in [first_offset, last_offset]."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Offset of the abort marker."""
    last_stable_offset: Offset


def encode(span: AbortedSpan) -> bytes:
    return SLOT.pack(VERSION, *span)


def decode(data: bytes, path: Path | str) -> list[AbortedSpan]:
    """Return all entries of a file. Raises CorruptionError for an invalid size or version."""
    whole = len(data) - len(data) % SLOT.size
    if whole != len(data):
        raise CorruptionError(path, whole, f"{len(data) - whole} trailing bytes; an entry has {SLOT.size}")
    spans = []
    for number, (version, producer_id, first, last, stable) in enumerate(SLOT.iter_unpack(data)):
        if version != VERSION:
            raise CorruptionError(path, number * SLOT.size, f"entry version {version} is unknown")
        spans.append(AbortedSpan(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)))
    return spans


class TransactionIndex:
    """A segment's `.txnindex` file. Changed under the log's lock; readers use `spans`, which is replaced as a whole."""

    __slots__ = ("_base_offset", "_file", "_files", "path", "spans")

    def __init__(self, files: FileSystem, path: Path, base_offset: Offset, *, empty: bool = False) -> None:
        """Read the file, unless it is `empty`. On a read-only disk, changes stay in memory. Raises CorruptionError."""
        self._files = files
        self._base_offset = base_offset
        self._file: File | None = None
        self.path = path
        self.spans: list[AbortedSpan] = []
        if empty:
            self.reset()
        elif files.exists(path):
            self.spans = decode(files.read_bytes(path), path)

    def __iter__(self) -> Iterator[AbortedSpan]:
        return iter(self.spans)

    def check(self) -> None:
        """Raise CorruptionError if an entry ends before the segment begins."""
        for number, span in enumerate(self.spans):
            if span.last_offset < self._base_offset:
                raise CorruptionError(
                    self.path,
                    number * SLOT.size,
                    f"last offset {span.last_offset} is below the base offset {self._base_offset}",
                )

    def append(self, span: AbortedSpan) -> None:
        """Add an entry; the first one makes the file. Raises ValueError unless `span` has the highest last offset."""
        if self.spans and span.last_offset <= self.spans[-1].last_offset:
            raise ValueError(
                f"{self.path}: last offset {span.last_offset} is not above {self.spans[-1].last_offset}"
            )
        if not self._files.read_only:
            self._opened(create=True).append(encode(span))
        self.spans = [*self.spans, span]

    def truncate_to(self, offset: Offset) -> None:
        kept = [span for span in self.spans if span.last_offset < offset]
        if len(kept) == len(self.spans):
            return
        if not self._files.read_only:
            self._opened().truncate(len(kept) * SLOT.size)
        self.spans = kept

    def reset(self) -> None:
        self.close()
        if not self._files.read_only and self._files.exists(self.path):
            self._files.unlink(self.path)
        self.spans = []

    def _opened(self, *, create: bool = False) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=create)
        return self._file

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def moved(self, path: Path) -> None:
        self.path = path
        if self._file is not None:
            self._file.moved(path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
