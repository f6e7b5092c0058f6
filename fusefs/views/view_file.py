"""`<base offset>.view`: the measured renderings of a segment, stored beside its log or in the user's cache.

     0  bytes  magic                     `TFSVIEW` and LF
     8  uint16 version                   1; raised when the format, or the text of any form, changes
    10  uint16 sections                  one per form
    12  int64  base offset               of the segment
    20         sections
               uint8  length, bytes      suffix of the form, UTF-8
               int64  size               bytes of the log that the section covers, from its start
               uint32 first checksum     of the log's first batch, as stored in that batch's header
               int64  last position      of the last batch covered
               uint32 last checksum      of that batch
               int64  end offset         one past the last offset covered
               int64  rendered size      bytes
               uint32 entries            number, at least one
               int64  positions          one per entry, from 0 on
               int64  offsets            one per entry; the rendering begins at the first one
        uint32 checksum                  CRC-32C of everything before it

Integers are big-endian, as in the log. A section is valid for a log that has those two batches at those positions;
the log may have grown since, and the new part is measured. The log's modification time is not compared, because
compaction copies it when it rewrites a log. A file that is invalid or damaged is replaced.

The files only save time: writing one never waits for the disk, a failed write is ignored, and an unreadable file only
means that the segment is measured again.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import sys
import threading
from array import array
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from topicfs.fusefs.views.sparse_index import Excerpt
from topicfs.storage.checkpoints.atomic import TEMPORARY_SUFFIX
from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.codec.binary.frame import checksum_at
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import parse_view_file, view_file
from topicfs.storage.errors import StorageError
from topicfs.storage.model import Offset, Position

MAGIC = b"TFSVIEW\n"
VERSION = 1

_HEADER = struct.Struct(">8sHHq")
_MARK = struct.Struct(">qIqI")
_RENDERING = struct.Struct(">qqI")
_CHECKSUM = struct.Struct(">I")


class ViewFileError(ValueError):
    """The file is damaged or has another version, and must be written again."""


class LogMark(NamedTuple):
    """Identifies the measured part of a log: its size, and two of its batches."""

    size_bytes: int
    first_checksum: int
    last_position: Position
    last_checksum: int


class Section(NamedTuple):
    """One form's rendering of a segment."""

    mark: LogMark
    known: Excerpt


class ViewFile(NamedTuple):
    """The content of a view file."""

    base_offset: Offset
    sections: Mapping[str, Section]
    """Sections by name of rendering: usually the form's suffix."""


def mark_log(log: memoryview, size_bytes: int, last_position: Position) -> LogMark:
    """Return a log's mark: the first batch, and the batch that ends at `size_bytes`. Raises ViewFileError."""
    first, last = checksum_at(log, 0), checksum_at(log, last_position)
    if first is None or last is None or size_bytes > len(log):
        raise ViewFileError(f"the log has no batch at {last_position}, or does not reach to {size_bytes}")
    return LogMark(size_bytes, first, last_position, last)


def fits(mark: LogMark, log: memoryview) -> bool:
    """Return whether a log still begins with the marked bytes."""
    return (
        mark.size_bytes <= len(log)
        and checksum_at(log, 0) == mark.first_checksum
        and checksum_at(log, mark.last_position) == mark.last_checksum
    )


def encode_view_file(content: ViewFile) -> bytes:
    parts = [_HEADER.pack(MAGIC, VERSION, len(content.sections), content.base_offset)]
    for suffix, (mark, known) in sorted(content.sections.items()):
        name = suffix.encode()
        parts += [
            bytes([len(name)]),
            name,
            _MARK.pack(*mark),
            _RENDERING.pack(known.end_offset, known.size, len(known.offsets)),
            _big_endian(known.positions),
            _big_endian(known.offsets),
        ]
    body = b"".join(parts)
    return body + _CHECKSUM.pack(crc32c(body))


def decode_view_file(data: bytes) -> ViewFile:
    """Parse a view file. Raises ViewFileError if it is torn, damaged or of another version."""
    body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if len(data) < _HEADER.size + _CHECKSUM.size or _CHECKSUM.pack(crc32c(body)) != checksum:
        raise ViewFileError("the checksum does not match: torn or damaged")
    magic, version, count, base_offset = _HEADER.unpack_from(body)
    if magic != MAGIC or version != VERSION:
        raise ViewFileError(f"magic {magic!r} version {version}: not this format")
    sections, position = {}, _HEADER.size
    try:
        for _ in range(count):
            suffix, section, position = _decode_section(body, position)
            sections[suffix] = section
    except (struct.error, UnicodeDecodeError) as error:
        raise ViewFileError(f"position {position}: {error}") from error
    if position != len(body):
        raise ViewFileError(f"{len(body) - position} bytes after the last section")
    return ViewFile(Offset(base_offset), sections)


def _decode_section(body: bytes, position: int) -> tuple[str, Section, int]:
    """Parse the section at a position; return the form's suffix, the section, and the section's end."""
    if position >= len(body):
        raise ViewFileError("fewer sections than the header says")
    name_end = position + 1 + body[position]
    suffix = body[position + 1 : name_end].decode()
    size_bytes, first_checksum, last_position, last_checksum = _MARK.unpack_from(body, name_end)
    at = name_end + _MARK.size
    end_offset, size, entries = _RENDERING.unpack_from(body, at)
    at += _RENDERING.size
    end = at + 16 * entries
    if not entries or end > len(body):
        raise ViewFileError(f"{entries} entries in {len(body) - at} bytes")
    mark = LogMark(size_bytes, first_checksum, Position(last_position), last_checksum)
    middle = at + 8 * entries
    known = Excerpt(_native(body[at:middle]), _native(body[middle:end]), size, Offset(end_offset))
    return suffix, Section(mark, known), end


def _big_endian(numbers: array[int]) -> bytes:
    swapped = array("q", numbers)
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped.tobytes()


def _native(data: bytes) -> array[int]:
    numbers = array("q", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


_LOGGER = logging.getLogger(__name__)


class ViewStore:
    """The view files of a partition, in the partition's directory. A broker ignores files with this suffix."""

    def __init__(self, directory: Path, files: FileSystem, *, make_directory: bool = False) -> None:
        self.directory = directory
        self._files = files
        # Never create a partition's own directory: a deleted topic must stay deleted.
        self._makes_directory = make_directory
        self._lock = threading.Lock()

    @classmethod
    def in_user_cache(cls, log: Path, files: FileSystem, *, cache: Path | None = None) -> ViewStore:
        """Return a store in the user's cache folder (or `cache`).

        Each data directory and each partition has a folder of its own there.
        """
        import hashlib

        from platformdirs import user_cache_path

        data_directory = hashlib.sha256(str(log.parent).encode()).hexdigest()[:16]
        root = user_cache_path("topicfs") if cache is None else cache
        return cls(root / "views" / data_directory / log.name, files, make_directory=True)

    def load(self, base_offset: Offset, suffix: str, log: memoryview) -> Excerpt | None:
        """Return the saved positions of a form's rendering of a segment; None if none of them are valid for `log`."""
        content = self._read(base_offset)
        section = content.sections.get(suffix) if content else None
        return section.known if section and fits(section.mark, log) else None

    def save(self, base_offset: Offset, suffix: str, section: Section, log: memoryview) -> None:
        """Save a form's rendering of a segment, and keep the renderings of other forms that are still valid."""
        with self._lock:
            content = self._read(base_offset)
            others = content.sections if content else {}
            kept = {name: other for name, other in others.items() if fits(other.mark, log)}
            try:
                self._write(ViewFile(base_offset, {**kept, suffix: section}))
            except (OSError, StorageError) as error:
                _LOGGER.info("%s: not saved: %s", self.directory / view_file(base_offset), error)

    def remove_stale(self, segments: Collection[Offset]) -> None:
        """Remove the files of deleted segments, and half-written files."""
        with self._lock:
            try:
                names = [entry.name for entry in self._files.list_directory(self.directory)]
            except OSError:
                return
            for name in names:
                base_offset = parse_view_file(name)
                stale = base_offset not in segments or name.endswith(TEMPORARY_SUFFIX)
                if base_offset is not None and stale:
                    with contextlib.suppress(OSError, StorageError):
                        self._files.unlink(self.directory / name)

    def _read(self, base_offset: Offset) -> ViewFile | None:
        try:
            content = decode_view_file(self._files.read_bytes(self.directory / view_file(base_offset)))
        except (OSError, StorageError, ViewFileError):
            return None
        return content if content.base_offset == base_offset else None

    def _write(self, content: ViewFile) -> None:
        """Replace the file by a rename. After a crash, the file may be old, or torn; then the checksum is wrong."""
        path = self.directory / view_file(content.base_offset)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        if self._makes_directory:
            self._make_directory(self.directory)
        self._files.write_bytes(temporary, encode_view_file(content))
        self._files.rename(temporary, path)

    def _make_directory(self, directory: Path) -> None:
        if not self._files.exists(directory):
            self._make_directory(directory.parent)
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(directory)
