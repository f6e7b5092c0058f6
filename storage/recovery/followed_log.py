"""Follows a log to which another process writes: each look reads only the bytes that were added, into memory.

Loading such a log reads its whole active segment, which may have a GiB. As long as its files only grow, roll or are
removed at the front (`grew_only`), and the last known batch is unchanged, only the bytes after that batch are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState, parse_segment_file, segment_file
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.log.parts import LoadedLog
from topicfs.storage.model import Offset, Position, TopicPartition
from topicfs.storage.recovery.loader import LogLoader
from topicfs.storage.recovery.options import Checkpointed, LoadOptions
from topicfs.storage.recovery.segment_recovery import take_batches
from topicfs.storage.recovery.temporary_files import base_offsets
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.roll import SegmentDirectory, segment_settings
from topicfs.storage.segment.segment import LARGEST_SLOT_BYTES, Segment


class FileStamp(NamedTuple):
    name: str
    inode: int
    size: int
    modified_ns: int


def grew_only(before: Iterable[FileStamp], now: Iterable[FileStamp]) -> bool:
    """Return whether a log's segments only grew, rolled, and were removed at the front since `before`."""
    known, present = _logs(before), {stamp.name: stamp for stamp in _logs(now)}
    left = [stamp for stamp in known if stamp.name in present]
    if (
        not left
        or left != known[-len(left) :]
        or any(name.endswith(SegmentFileState.SWAP.value) for name in present)
    ):
        return False
    *sealed, active = left
    new = present.keys() - {stamp.name for stamp in left}
    return (
        all(present[stamp.name] == stamp for stamp in sealed)
        and present[active.name].inode == active.inode
        and all(name > active.name for name in new)
    )


def _logs(stamps: Iterable[FileStamp]) -> list[FileStamp]:
    """Return the stamps of `.log` files by base offset, including files that a compaction is about to put in place."""
    found = []
    for stamp in stamps:
        file = parse_segment_file(stamp.name)
        states = (SegmentFileState.LIVE, SegmentFileState.SWAP)
        if file is not None and file.kind is SegmentFileKind.LOG and file.state in states:
            found.append(stamp)
    return sorted(found)


class _LastBatch(NamedTuple):
    """The last known batch: its position, and the bytes of its header, which include the checksum."""

    base_offset: Offset
    position: Position
    header: bytes


class FollowedLog:
    """One partition's log on a read-only disk; `log` is its state at the last look."""

    def __init__(
        self, directory: SegmentDirectory, partition: TopicPartition, checkpointed: Checkpointed
    ) -> None:
        """Load the log from the recovery point on. Blocks. Raises CorruptionError, OSError."""
        assert directory.files.read_only, f"{directory.path}: followed where it may be written"
        self._place = directory
        self._config = TopicConfig()
        loader = LogLoader(directory, partition, self._config, LoadOptions(checkpointed=checkpointed))
        self._context = loader.context
        self.log = loader.load(clean=False)
        self._small_files = loader.small_files
        self._last_batch = self._read_last_batch()

    def catch_up(self, log_start_offset: Offset, high_watermark: Offset | None) -> bool:
        """Read what was added to the files. Return False if the log must be loaded again. Blocks. Raises OSError.

        Call this only if `grew_only` is true for the files.
        """
        try:
            if not self._is_as_known():
                return False
            chain, end_offset = self._grow()
        except (CorruptionError, FileNotFoundError):
            return False
        start = Offset(max(log_start_offset, chain.base_offsets[0]))
        if end_offset < start:
            return False
        if high_watermark is not None:
            high_watermark = Offset(max(start, min(high_watermark, end_offset)))
        loaded = LoadedLog(chain, end_offset, start, self.log.recovery_point, high_watermark)
        self.log = Log(
            self._place.path, loaded, self._context, config=self._config, small_files=self._small_files
        )
        self._last_batch = self._read_last_batch()
        return True

    def close(self) -> None:
        """Close the open files, without writing what a clean close writes."""
        for segment in self.log.chain.segments:
            segment.close()

    def _grow(self) -> tuple[Chain, Offset]:
        """Return the segments that exist now, with all batches, and the log end. Raises CorruptionError, OSError."""
        present = self._base_offsets()
        known: list[Segment] = []
        gone: list[Segment] = []
        for segment in self.log.chain.segments:
            (known if segment.base_offset in present else gone).append(segment)
        if not known:
            raise CorruptionError(self._place.path, 0, "none of the known segments is left")
        new = [offset for offset in present if offset > known[-1].base_offset]
        segments = [*known, *map(self._open, new)]
        end_offset = self._extend(known[-1], self.log.log_end_offset, sealed=bool(new))
        for segment in segments[len(known) :]:
            if segment.base_offset < end_offset:
                raise CorruptionError(segment.log.path, 0, f"begins before offset {end_offset}")
            end_offset = self._extend(segment, segment.base_offset, sealed=segment is not segments[-1])
        for segment in gone:
            segment.close()
        return Chain.of(segments), end_offset

    def _extend(self, segment: Segment, end_offset: Offset, *, sealed: bool) -> Offset:
        """Read the batches after the last known one, and return their end. A `sealed` file must have no other bytes."""
        file_bytes = segment.log.size()
        if file_bytes < segment.size:
            raise CorruptionError(segment.log.path, file_bytes, f"the file had {segment.size} bytes before")
        if file_bytes == segment.size:
            return end_offset
        _make_room(segment, file_bytes - segment.size)
        epochs, producers, _ = self._small_files
        taken = take_batches(segment, end_offset, epochs, producers, file_bytes=file_bytes)
        segment.end_rebuild()
        if sealed and taken.cut_bytes:
            raise CorruptionError(segment.log.path, segment.size, taken.cause)
        return taken.end_offset

    def _open(self, base_offset: Offset) -> Segment:
        """Return a segment that was not known yet, without batches; its indexes are made in memory."""
        log = self._place.files.open(self._place.path / segment_file(base_offset, SegmentFileKind.LOG))
        settings = segment_settings(self._config)
        segment = Segment(self._place, base_offset, settings, log=log)
        segment.begin_rebuild()
        return segment

    def _base_offsets(self) -> Sequence[Offset]:
        return base_offsets(entry.name for entry in self._place.files.list_directory(self._place.path))

    # The last known batch.

    def _read_last_batch(self) -> _LastBatch | None:
        """Return the last batch; None if there is no batch."""
        end_offset = self.log.log_end_offset
        for segment in reversed(self.log.chain.segments):
            batch = segment.find_batch(end_offset - 1, segment.size) if segment.size else None
            if batch is not None:
                return _LastBatch(
                    segment.base_offset, batch.position, segment.log.pread(HEADER_SIZE, batch.position)
                )
        return None

    def _is_as_known(self) -> bool:
        if self._last_batch is None:
            return True
        base_offset, position, header = self._last_batch
        for segment in self.log.chain.segments:
            if segment.base_offset == base_offset and base_offset in self._base_offsets():
                return segment.log.pread(HEADER_SIZE, position) == header
        return True


def _make_room(segment: Segment, more_bytes: int) -> None:
    """Enlarge the indexes in memory for twice `more_bytes` of batches: enlarging copies them, so it must be rare."""
    more = more_bytes // max(1, segment.settings.index_interval_bytes) + 2
    for index in (segment.offset_index, segment.time_index):
        slots = index.slots
        if slots.capacity - slots.entries < more:
            slots.resize(2 * (slots.entries + more) * LARGEST_SLOT_BYTES)
