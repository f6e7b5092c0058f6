"""Copies one partition's files into another data directory: completely, or not at all.

    1  <topic>-<p>.<hex>-delete/     the files are copied here and flushed
    2  …-offset-checkpoint           the partition gets its lines
    3  <topic>-<p>/                  what was there (nothing but an empty log) is renamed to another …-delete
    4  <topic>-<p>/                  the copy is renamed, and the directory above it is flushed

If a broker or this engine starts between the steps, it removes `-delete` directories. Therefore an interrupted copy
is never taken for a partition (kafka-storage.md#names).

Leader epochs are lowered if the new leader's epoch is lower. A broker that has led a partition in epoch 3 must not
find batches of epoch 7, because consumers remember the highest epoch they saw and would consider the broker's answers
outdated. The epoch of a batch is outside its checksum and can be changed in place (kafka-storage.md#batch-header,
kafka-storage.md#moving-partitions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from topicfs.storage.checkpoints.leader_epochs import Entries, EpochEntry, decode_epochs, encode_epochs
from topicfs.storage.checkpoints.offset_checkpoint import Lines, write_lines
from topicfs.storage.checkpoints.partition_metadata import write_topic_id
from topicfs.storage.codec.binary.fields import CURRENT_MAGIC, LEADER_EPOCH_POSITION
from topicfs.storage.codec.headers import Batches
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError, StorageError
from topicfs.storage.model import Position, TopicPartition
from topicfs.storage.segment.scan import windows

_EPOCH = Struct(">i")


def lower_epochs(entries: Entries, highest: int) -> Entries:
    """Return `entries` limited to epoch `highest`. Of several entries that become equal, the first is kept."""
    lowered: list[EpochEntry] = []
    for entry in entries:
        epoch = min(entry.epoch, highest)
        if not lowered or lowered[-1].epoch < epoch:
            lowered.append(EpochEntry(epoch, entry.start_offset))
    return tuple(lowered)


def lower_batches(data: bytes, batches: Batches, highest: int) -> bytes | bytearray:
    """Return the leading whole batches of `data`, with leader epochs limited to `highest`."""
    high = [
        batch.position for batch in batches if batch.magic == CURRENT_MAGIC and batch.leader_epoch > highest
    ]
    if not high:
        return data[: batches.stop]
    lowered = bytearray(data[: batches.stop])
    for position in high:
        _EPOCH.pack_into(lowered, position + LEADER_EPOCH_POSITION, highest)
    return lowered


COPY_BYTES = 4 << 20

_INDEXES = (names.SegmentFileKind.OFFSET_INDEX, names.SegmentFileKind.TIME_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCopy:
    partition: TopicPartition
    source: Path
    """The source directory. It is only read."""
    target: Path
    """The final directory, in a locked data directory."""
    topic_id: str
    highest_epoch: int | None = None
    """Limit for the leader epochs of batches; None if they stay unchanged."""
    link: bool = False
    """True: hard-link the logs of closed segments, if the file system can."""
    recovered: bool = True
    """True if the source was closed cleanly. If not, the indexes of its last segment are not copied, but rebuilt."""
    lines: Lines = field(default_factory=dict)
    """The partition's lines for the target's checkpoint files. A partition that is already in place keeps its lines."""


def is_in_place(files: FileSystem, copy: PartitionCopy) -> bool:
    """Return whether the partition is in place already.

    Raises OSError, CorruptionError, and StorageError if the target has other records.
    """
    if not files.exists(copy.target):
        return False
    if same_logs(files, copy):
        return True
    if holds_records(files, copy.target):
        raise StorageError(
            f"{copy.target}: has other records; nothing is overwritten, "
            f"so delete that topic first or choose another directory"
        )
    return False


def copy_partition(files: FileSystem, copy: PartitionCopy) -> bool:
    """Put the partition in place and flush it (blocking). Return False if it was in place before.

    Raises the errors of `is_in_place`.
    """
    if is_in_place(files, copy):
        return False
    staged = copy.target.with_name(names.marked_directory(copy.partition, names.DirectoryMark.DELETE))
    try:
        _stage(files, copy, staged)
        # Write the lines before the partition is in place: a program that starts in between must not find
        # records without a log start.
        write_lines(files, copy.target.parent, copy.partition, copy.lines)
    except (OSError, StorageError):
        with suppress(OSError):
            _remove(files, staged)
        raise
    _put_in_place(files, staged, copy)
    return True


def same_logs(files: FileSystem, copy: PartitionCopy) -> bool:
    """Return whether the target's logs are complete copies of the source's logs, in which epochs may be lowered.

    If no epochs are lowered, the target's last log is also accepted if it ends where the source has a damaged batch.
    """
    wanted, present = (
        [name for name in _live_names(files, directory) if name.endswith(names.SegmentFileKind.LOG.value)]
        for directory in (copy.source, copy.target)
    )
    if not present or wanted[: len(present)] != present:
        return not wanted and not present
    pairs = [(copy.source / name, copy.target / name) for name in present]
    *closed, (source, target) = pairs
    if not all(_equal(files, *pair, copy.highest_epoch) for pair in closed):
        return False
    if wanted == present and _equal(files, source, target, copy.highest_epoch):
        return True
    return copy.highest_epoch is None and _is_cut(files, source, target)


def _is_cut(files: FileSystem, source: Path, target: Path) -> bool:
    """Return whether recovery has cut `target`: it then has the bytes of `source` up to the first unreadable batch."""
    size, end = files.size(target), files.size(source)
    if size >= end:
        return False
    reader = files.open(source, read_only=True)
    readable = 0
    for window in windows(reader, 0, end, window_bytes=COPY_BYTES, check_crc=True):
        readable = window.position + window.batches.stop
    reader.close()
    return size == readable and _equal(files, source, target, None, size)


def holds_records(files: FileSystem, directory: Path) -> bool:
    return any(
        files.size(directory / name)
        for name in _live_names(files, directory)
        if name.endswith(names.SegmentFileKind.LOG.value)
    )


def first_base_offset(files: FileSystem, directory: Path) -> int:
    return min((file.base_offset for file in _segment_files(_live_names(files, directory))), default=0)


def _live_names(files: FileSystem, directory: Path) -> list[str]:
    """Return the names of a partition's live files, and of files with which recovery ends an interrupted compaction."""
    found = []
    for entry in files.list_directory(directory):
        parsed = None if entry.is_directory else names.parse_segment_file(entry.name)
        if parsed is not None and parsed.state is not names.SegmentFileState.DELETED:
            found.append(entry.name)
    return found


def _segment_files(file_names: Iterable[str]) -> list[names.SegmentFileName]:
    return [file for file in map(names.parse_segment_file, file_names) if file is not None]


def _stage(files: FileSystem, copy: PartitionCopy, staged: Path) -> None:
    """Copy everything into a directory that a broker or engine would remove when it starts."""
    files.make_directory(staged)
    wanted = _live_names(files, copy.source)
    # Decide by the logs: a cleanly closed log has a snapshot after its last segment as well.
    logs = [name for name in wanted if name.endswith(names.SegmentFileKind.LOG.value)]
    last = max((file.base_offset for file in _segment_files(logs)), default=0)
    for name in wanted:
        [file] = _segment_files([name])
        active = file.base_offset == last
        if active and not copy.recovered and file.kind in _INDEXES:
            continue
        _copy_file(files, copy, name, staged, sealed=not active)
    _copy_epochs(files, copy, staged)
    # Copy this last, because copying it flushes the names of all files.
    write_topic_id(files, staged, copy.topic_id)


def _copy_file(files: FileSystem, copy: PartitionCopy, name: str, staged: Path, *, sealed: bool) -> None:
    source, target = copy.source / name, staged / name
    is_log = name.endswith(names.SegmentFileKind.LOG.value)
    # Indexes and snapshots are never linked: they are small, and recovery rewrites them in place.
    if copy.link and is_log and sealed and copy.highest_epoch is None and files.link(source, target):
        return
    _copy(files, source, target, copy.highest_epoch if is_log else None)


def _copy(files: FileSystem, source: Path, target: Path, highest_epoch: int | None) -> None:
    """Copy a file with its modification time, which serves as the time of records without timestamps."""
    writer = files.open(target, create=True)
    for data in _content(files, source, highest_epoch):
        writer.append(data)
    writer.sync()
    writer.close()
    files.set_modified_time(target, files.modified_time_ms(source))


def _equal(
    files: FileSystem, source: Path, target: Path, highest_epoch: int | None, size: int | None = None
) -> bool:
    """Return whether `target` equals a copy of `source`, or of its first `size` bytes."""
    if (files.size(source) if size is None else size) != files.size(target):
        return False
    reader = files.open(target, read_only=True)
    position = 0
    equal = True
    for data in _content(files, source, highest_epoch, size):
        equal = equal and data == reader.pread(len(data), Position(position))
        position += len(data)
    reader.close()
    return equal


def _content(
    files: FileSystem, path: Path, highest_epoch: int | None, size: int | None = None
) -> Iterator[bytes | bytearray]:
    """Yield the content, or the first `size` bytes, in pieces. If epochs are lowered, the pieces are whole batches."""
    reader = files.open(path, read_only=True)
    size = reader.size() if size is None else size
    if highest_epoch is None:
        for position in range(0, size, COPY_BYTES):
            yield reader.pread(min(COPY_BYTES, size - position), Position(position))
    else:
        for window in windows(reader, 0, size, window_bytes=COPY_BYTES):
            if window.problem is not None:
                place = window.position + window.batches.stop
                raise CorruptionError(path, place, window.problem.cause)
            yield lower_batches(window.data, window.batches, highest_epoch)
    reader.close()


def _copy_epochs(files: FileSystem, copy: PartitionCopy, staged: Path) -> None:
    path = copy.source / names.LEADER_EPOCHS
    if not files.exists(path):
        return
    entries = decode_epochs(files.read_bytes(path), file=path)
    if copy.highest_epoch is not None:
        entries = lower_epochs(entries, copy.highest_epoch)
    files.write_bytes(staged / names.LEADER_EPOCHS, encode_epochs(entries), sync=True)


def _put_in_place(files: FileSystem, staged: Path, copy: PartitionCopy) -> None:
    replaced = None
    if files.exists(copy.target):
        replaced = copy.target.with_name(names.marked_directory(copy.partition, names.DirectoryMark.DELETE))
        files.rename(copy.target, replaced)
    files.rename(staged, copy.target)
    files.sync_directory(copy.target.parent)
    if replaced is not None:
        _remove(files, replaced)


def _remove(files: FileSystem, directory: Path) -> None:
    for entry in files.list_directory(directory):
        files.unlink(directory / entry.name)
    files.remove_directory(directory)
