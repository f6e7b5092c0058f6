"""A `storage.engine.Partition` that holds encoded batches in memory, with extra methods for tests.

This class implements only what the protocol requires, in few lines, so that readers of partitions can be tested
without a log on disk. Tests can also damage the partition, delete its oldest segments, and see how much was read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.doubles.records import records
from topicfs.storage.codec.batch import assign_offsets, scan
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import CorruptionError, OffsetOutOfRangeError, SegmentDeletedError
from topicfs.storage.model import (
    NO_TIMESTAMP,
    Appended,
    Fetched,
    Isolation,
    Offset,
    PartitionOffsets,
    PartitionStatus,
    PartitionSummary,
    Position,
    Record,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
)

DIRECTORY = Path("/data")


class MemorySegment:
    """Consecutive batches, with the byte position of each batch."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.data = bytearray()
        self.positions: list[int] = []
        self.base_offsets: list[int] = []
        self.last_offsets: list[int] = []

    def add(self, batch: bytes | bytearray, base_offset: int, last_offset: int) -> None:
        self.positions.append(len(self.data))
        self.base_offsets.append(base_offset)
        self.last_offsets.append(last_offset)
        self.data += batch

    def end_position(self, index: int) -> int:
        return self.positions[index + 1] if index + 1 < len(self.positions) else len(self.data)


class MemoryPartition:
    """A `storage.engine.Partition` in memory, whose segments are lists of encoded batches."""

    def __init__(self, topic: str = "orders", number: int = 0, *, base_offset: int = 0) -> None:
        self._topic = topic
        self._number = number
        self.memory_segments = [MemorySegment(base_offset)]
        self.log_start_offset = base_offset
        self.log_end_offset = base_offset
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.broken_from: set[int] = set()
        """Base offsets of broken batches. A read ends before a broken batch. A read that starts at a broken batch
        raises CorruptionError.
        """
        self.directory: Path | None = DIRECTORY / f"{topic}-{number}"
        self.bytes_read = 0
        self.reads = 0
        self.rewrites = 0
        self.cuts: tuple[Offset, ...] = ()
        self.listeners: list[Callable[[], None]] = []

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def number(self) -> int:
        return self._number

    @property
    def config(self) -> TopicConfig:
        return TopicConfig()

    @property
    def newest_timestamp(self) -> Timestamp:
        return NO_TIMESTAMP

    @property
    def unknown(self) -> str | None:
        return None

    def find_bounds(self) -> None:
        pass

    def offsets(self) -> PartitionOffsets:
        high_watermark = self.log_end_offset if self.high_watermark is None else self.high_watermark
        stable = high_watermark if self.last_stable_offset is None else self.last_stable_offset
        return PartitionOffsets(
            Offset(self.log_start_offset),
            Offset(stable),
            Offset(high_watermark),
            Offset(self.log_end_offset),
            recovery_point=Offset(self.log_start_offset),
            leader_epoch=0,
        )

    def visible_end(self, isolation: Isolation) -> Offset:
        return self.offsets().visible_end(isolation)

    def summary(self) -> PartitionSummary:
        bounds = self.offsets()
        return PartitionSummary(
            bounds.log_start_offset,
            bounds.last_stable_offset,
            bounds.log_end_offset,
            log_bytes=None,
            offline=False,
        )

    def status(self) -> PartitionStatus:
        return PartitionStatus(
            offsets=self.offsets(),
            offline=None,
            segments=len(self.memory_segments),
            log_bytes=sum(len(segment.data) for segment in self.memory_segments),
            index_bytes=0,
            first_timestamp=NO_TIMESTAMP,
            last_timestamp=NO_TIMESTAMP,
        )

    def check_in_sync(self) -> None:
        pass

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> Appended:
        first = self.log_end_offset
        for header in scan(batches):
            batch = batches[header.position : header.end_position]
            last = self.log_end_offset + header.last_offset - header.base_offset
            assign_offsets(batch, 0, base_offset=self.log_end_offset, leader_epoch=0)
            self.memory_segments[-1].add(batch, self.log_end_offset, last)
            self.log_end_offset = last + 1
        for listener in self.listeners:
            listener()
        return Appended(
            Offset(first), Offset(self.log_end_offset - 1), NO_TIMESTAMP, Offset(self.log_start_offset)
        )

    def add(self, *values: bytes | None, key: bytes | None = None, time: int = 1000) -> None:
        """Append one batch of `values`."""
        self.append(encode(records(values, key=key, timestamp=range(time, time + len(values)))))

    def add_marker(self, *, time: int = 0) -> None:
        """Append a control batch, which takes one offset and is never shown to readers."""
        marker = [Record(Offset(0), Timestamp(time), b"\0\0\0\1", b"\0\0\0\0\0\0")]
        self.append(encode(marker, BatchStamp(transactional=True, control=True)))

    def add_compacted(self, kept: Sequence[Record], *, last_offset: int) -> None:
        """Append a batch that compaction reduced to the records `kept`; it ends at `last_offset`."""
        batch = encode(kept, base_offset=self.log_end_offset, last_offset=last_offset)
        self.memory_segments[-1].add(batch, self.log_end_offset, last_offset)
        self.log_end_offset = last_offset + 1

    def skip_offsets(self, count: int) -> None:
        """Leave a gap of `count` offsets, as compaction does when it removes whole batches."""
        self.log_end_offset += count

    def roll(self) -> None:
        self.memory_segments.append(MemorySegment(self.log_end_offset))

    def delete_oldest_segments(self, count: int) -> None:
        del self.memory_segments[: min(count, len(self.memory_segments) - 1)]
        self.log_start_offset = max(self.log_start_offset, self.memory_segments[0].base_offset)

    def lose(self, offset: int) -> None:
        """Truncate the log to the base offset of a batch, as happens after an unclean leader election."""
        segment, index = self._find(offset)
        assert segment is self.memory_segments[-1]
        del segment.data[segment.positions[index] :]
        for column in (segment.positions, segment.base_offsets, segment.last_offsets):
            del column[index:]
        self.log_end_offset = offset
        self.cuts, self.rewrites = (*self.cuts, Offset(offset)), self.rewrites + 1
        for listener in self.listeners:
            listener()

    def damage(self, offset: int, *, at: int = -1) -> None:
        """Flip a bit in byte `at` of the batch that contains `offset`; by default, in the batch's last byte."""
        segment, index = self._find(offset)
        end = segment.end_position(index)
        position = end + at if at < 0 else segment.positions[index] + at
        segment.data[position] ^= 0x10

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        visible_end = self.visible_end(isolation)
        found = self._find_next(offset)
        if offset >= visible_end or found is None:
            return Fetched(memoryview(b""), Position(0), Offset(0), offset)
        segment, first = found
        if segment.base_offsets[first] in self.broken_from:
            raise CorruptionError(self.directory or Path(), segment.positions[first], "no batch begins here")
        last = bisect_right(segment.positions, segment.positions[first] + max_bytes) - 1
        if segment.end_position(last) > segment.positions[first] + max_bytes:
            last -= 1
        last = max(min(last, bisect_left(segment.base_offsets, visible_end) - 1), first)
        for index in range(first, last + 1) if self.broken_from else ():
            if segment.base_offsets[index] in self.broken_from:
                last = index - 1
                break
        with memoryview(segment.data) as view:
            data = bytes(view[segment.positions[first] : segment.end_position(last)])
        self.bytes_read += len(data)
        self.reads += 1
        return Fetched(
            memoryview(data),
            Position(segment.positions[first]),
            Offset(segment.base_offset),
            Offset(segment.last_offsets[last] + 1),
        )

    def available_end(self, offset: Offset) -> Offset:
        return self.log_end_offset

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        del max_bytes
        visible_end = self.visible_end(isolation)
        for segment in self.memory_segments:
            for columns in decode(bytes(segment.data), control=True):
                for record in columns:
                    if record.timestamp >= timestamp and self.log_start_offset <= record.offset < visible_end:
                        return TimestampOffset(record.timestamp, record.offset)
        return None

    def record_at(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        return self.offset_for_timestamp(timestamp, isolation=isolation, max_bytes=max_bytes)

    def segments(self) -> Sequence[SegmentInfo]:
        ends = [segment.base_offset for segment in self.memory_segments[1:]] + [self.log_end_offset]
        return [
            SegmentInfo(
                Offset(segment.base_offset),
                Offset(end),
                len(segment.data),
                NO_TIMESTAMP,
                active=segment is self.memory_segments[-1],
                files=(f"{segment.base_offset:020d}.log",),
            )
            for segment, end in zip(self.memory_segments, ends, strict=True)
        ]

    def segment_of(self, name: str) -> SegmentInfo | None:
        return next((segment for segment in self.segments() if name in segment.files), None)

    def open_segment_file(self, name: str) -> memoryview:
        for segment in self.memory_segments:
            if name == f"{segment.base_offset:020d}.log":
                return memoryview(bytes(segment.data))
        raise SegmentDeletedError(name)

    def delete_records(self, before: Offset) -> Offset:
        self.log_start_offset = max(self.log_start_offset, before)
        return Offset(self.log_start_offset)

    def sync(self) -> None:
        """Do nothing: there are no files to flush."""

    def listen(self, listener: Callable[[], None]) -> Cancel:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener) if listener in self.listeners else None

    def _find(self, offset: int) -> tuple[MemorySegment, int]:
        found = self._find_next(offset)
        assert found is not None
        return found

    def _find_next(self, offset: int) -> tuple[MemorySegment, int] | None:
        """Return the segment and index of the first batch whose last offset is at or above `offset`."""
        start = max(bisect_right([segment.base_offset for segment in self.memory_segments], offset) - 1, 0)
        for segment in self.memory_segments[start:]:
            index = bisect_left(segment.last_offsets, offset)
            if index < len(segment.positions):
                return segment, index
        return None
