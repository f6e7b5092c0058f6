"""A staged file: the batches of one task, each with its partition, in append order.

    file  := frame*
    frame := partition int32 | topic length uint16 | batch length uint32 | topic UTF-8 | batch      (big-endian)

A batch is a whole v2 batch at base offset 0 without a producer. The file does not mark its end. Its size and CRC-32C
are in the manifest, so an incomplete file is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.disk.filesystem import File, FileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Buffer, Position, TopicPartition
from topicfs.storage.segment.scan import FILE_WINDOW_BYTES

_FRAME = struct.Struct(">iHI")


class StagedFile(NamedTuple):
    """A staged file's entry in the manifest."""

    name: str
    size: int
    checksum: int


class Frame(NamedTuple):
    partition: TopicPartition
    batch: bytearray


class StagedFileWriter:
    """Writes a staged file, which must not exist yet."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        """Make the file. Raises OSError."""
        self._path = path
        self._files = files
        self._file = files.open(path, create=True)
        self._size = self._checksum = 0

    def append(self, partition: TopicPartition, batch: Buffer) -> None:
        """Add a batch for a partition. Raises OSError, and then adds no part of the batch."""
        topic = partition.topic.encode()
        frame = b"".join((_FRAME.pack(partition.partition, len(topic), len(batch)), topic, batch))
        self._file.append(frame)
        self._size += len(frame)
        self._checksum = crc32c(frame, self._checksum)

    def finish(self) -> StagedFile:
        """Flush the file to disk and close it. Blocks. Raises OSError."""
        self._file.sync()
        self._file.close()
        self._files.sync_directory(self._path.parent)
        return StagedFile(self._path.name, self._size, self._checksum)

    def abandon(self) -> None:
        """Remove the file. Raises OSError."""
        self._file.close()
        self._files.unlink(self._path)


def copy_staged(source: Path, target: Path, files: FileSystem) -> None:
    """Copy a staged file to another directory, and flush the copy to disk. Blocks. Raises OSError."""
    with (
        closing(files.open(source, read_only=True)) as reader,
        closing(files.open(target, create=True)) as writer,
    ):
        writer.truncate(0)
        for position in range(0, reader.size(), FILE_WINDOW_BYTES):
            writer.append(reader.pread(FILE_WINDOW_BYTES, Position(position)))
        writer.sync()


def check_whole(path: Path, files: FileSystem, expected: StagedFile) -> None:
    """Check that the file has the size and the checksum that the manifest gives. Raises CorruptionError, OSError."""
    with closing(files.open(path, read_only=True)) as file:
        size = file.size()
        if size != expected.size:
            raise CorruptionError(
                path, min(size, expected.size), f"{size} bytes, submitted as {expected.size}"
            )
        checksum = 0
        for position in range(0, size, FILE_WINDOW_BYTES):
            checksum = crc32c(file.pread(FILE_WINDOW_BYTES, Position(position)), checksum)
        if checksum != expected.checksum:
            raise CorruptionError(path, 0, f"checksum {checksum:08x}, submitted as {expected.checksum:08x}")


def read_frames(path: Path, files: FileSystem) -> Iterator[Frame]:
    """Yield the frames of a file; only one frame is in memory at a time. Raises CorruptionError, OSError."""
    with closing(files.open(path, read_only=True)) as file:
        size, position = file.size(), 0
        while position < size:
            head = _pread(file, _FRAME.size, position)
            partition, topic_length, batch_length = _FRAME.unpack(head)
            body = _pread(file, topic_length + batch_length, position + _FRAME.size)
            topic = body[:topic_length].decode(errors="replace")
            yield Frame(TopicPartition(topic, partition), bytearray(memoryview(body)[topic_length:]))
            position += len(head) + len(body)


def _pread(file: File, size: int, position: int) -> bytes:
    data = file.pread(size, Position(position))
    if len(data) < size:
        raise CorruptionError(file.path, position, f"a frame of {size} bytes ends after {len(data)}")
    return data
