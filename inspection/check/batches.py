"""The check of a log's batches and their records. It does not depend on the program that wrote them.

Checksums, sizes, times and leader epochs must be right. Offsets must ascend from batch to batch, and within each
batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import lt
from pathlib import Path

from topicfs.inspection.check.sound_batches import Expected, end_of_sound
from topicfs.storage.checkpoints.leader_epochs import Entries, epoch_for_offset
from topicfs.storage.codec.binary.fields import CODEC_MASK
from topicfs.storage.codec.columns import Columns, decode, decode_each
from topicfs.storage.codec.headers import Batches, BatchHeader, Codec
from topicfs.storage.errors import CorruptBatchError, Finding, OversizeBatchError
from topicfs.storage.model import NO_TIMESTAMP, Offset, Position, Timestamp, TimestampType


@dataclass(slots=True)
class SegmentFacts:
    """Statistics of a segment's valid batches, updated during the check."""

    log_bytes: int = 0
    """Size of the `.log`, including damaged batches and a torn end."""
    batches: int = 0
    records: int = 0
    first_offset: Offset | None = None
    """The first offset in the segment; None if no batch is valid."""
    last_offset: Offset | None = None
    largest_timestamp: Timestamp = NO_TIMESTAMP
    codecs: set[Codec] = field(default_factory=set)

    def add(self, columns: Columns) -> None:
        """Count adjacent valid batches."""
        batches = columns.batches
        self.batches += len(batches)
        self.records += len(columns)
        first, last = batches[0].base_offset, Offset(max(batches.column("last_offset")))
        self.first_offset = first if self.first_offset is None else min(self.first_offset, first)
        self.last_offset = last if self.last_offset is None else max(self.last_offset, last)
        self.largest_timestamp = Timestamp(max(self.largest_timestamp, *batches.column("max_timestamp")))
        self.codecs.update(
            Codec(number) for number in {one & CODEC_MASK for one in batches.column("attributes")}
        )


MAX_OFFSET_SPAN = 2**31 - 1
"""Maximum distance of an offset from its segment's base offset, to fit the indexes."""
NO_END = Offset(2**63 - 1)


class BatchCheck:
    """Checks one segment's batches, chunk by chunk, and remembers the last valid batch."""

    def __init__(self, file: Path, base_offset: Offset, epochs: Entries) -> None:
        self._file = file
        self._base_offset = base_offset
        self._epochs = epochs
        self.facts = SegmentFacts()
        self.end_offset = base_offset
        """The exclusive end of the offsets of the valid batches found up to now."""
        self.reach = base_offset
        """The exclusive end of all offsets found up to now, including the offsets that damaged batches claim."""
        self._leader_epoch = -1

    def check(self, data: memoryview, batches: Batches) -> Iterator[Finding]:
        """Check the next adjacent batches; `data` is the whole segment."""
        at, end = batches[0].position, Position(batches.stop)
        try:
            for columns in decode_each(data, at, end, control=True):
                yield from self._check_span(columns)
                at = Position(columns.batches.stop)
        except CorruptBatchError:
            # A batch is damaged: check them one by one.
            for number, header in enumerate(batches):
                if header.position >= at:
                    is_last = number + 1 == len(batches)
                    end_offset = header.end_offset if is_last else batches[number + 1].base_offset
                    yield from self._check_one(data, header, end_offset)

    def _check_one(self, data: memoryview, header: BatchHeader, end_offset: Offset) -> Iterator[Finding]:
        try:
            spans = decode(data, header.position, header.end_position, control=True)
        except CorruptBatchError as error:
            self.reach = max(self.reach, header.end_offset)
            if isinstance(error, OversizeBatchError):
                cause = f"its records are not read: {error.cause}"
            else:
                cause = f"{error.cause}; reading can go on at {end_offset}"
            yield Finding(self._file, header.position, cause)
            return
        for columns in spans:
            yield from self._check_span(columns)

    def _check_span(self, columns: Columns) -> Iterator[Finding]:
        """Check adjacent batches whose checksums match. Valid batches are only counted."""
        self.facts.add(columns)
        batches = columns.batches
        number = 0
        while number < len(batches):
            sound = end_of_sound(columns, number, self._expected())
            if sound > number:
                self._pass(batches[sound - 1])
            if sound < len(batches):
                yield from self._check_batch(columns, sound)
            number = sound + 1

    def _expected(self) -> Expected:
        """Return what the next batches must have: ascending offsets, and the present epoch until the next one begins."""
        epoch = epoch_for_offset(self._epochs, self.end_offset)
        agreed = epoch in (None, self._leader_epoch)
        later = (entry.start_offset for entry in self._epochs if entry.start_offset > self.end_offset)
        return Expected(
            start_offset=self.end_offset,
            largest_offset=min(self._base_offset + MAX_OFFSET_SPAN, NO_END),
            leader_epoch=self._leader_epoch,
            epoch_end_offset=min(next(later, NO_END) if agreed else self.end_offset, NO_END),
        )

    def _pass(self, header: BatchHeader) -> None:
        self.end_offset = max(self.end_offset, header.end_offset)
        self.reach = max(self.reach, self.end_offset)

    def _check_batch(self, columns: Columns, number: int) -> Iterator[Finding]:
        header = columns.batches[number]
        first, last = columns.batches[number - 1].record_end if number else 0, header.record_end
        yield from self._check_header(header)
        if not _ascends(columns.offsets[first:last]):
            yield Finding(self._file, header.position, "the offsets of its records do not ascend")
        if first < last and header.timestamp_type is TimestampType.CREATE_TIME:
            latest = max(columns.timestamps[first:last])
            if latest != header.max_timestamp:
                cause = f"max timestamp is {header.max_timestamp}, but its latest record has {latest}"
                yield Finding(self._file, header.position, cause)

    def _check_header(self, header: BatchHeader) -> Iterator[Finding]:
        if header.base_offset < self.end_offset:
            cause = f"base offset {header.base_offset}, but {self.end_offset} or more must follow"
            yield Finding(self._file, header.position, cause)
        if header.last_offset - self._base_offset > MAX_OFFSET_SPAN:
            cause = f"last offset {header.last_offset} is too far above the segment's base offset"
            yield Finding(self._file, header.position, cause)
        self._pass(header)
        if header.leader_epoch >= 0:
            yield from self._check_leader_epoch(header)

    def _check_leader_epoch(self, header: BatchHeader) -> Iterator[Finding]:
        if header.leader_epoch < self._leader_epoch:
            cause = f"leader epoch {header.leader_epoch} after {self._leader_epoch}"
            yield Finding(self._file, header.position, cause)
        self._leader_epoch = header.leader_epoch
        expected = epoch_for_offset(self._epochs, header.base_offset)
        if expected is not None and expected != header.leader_epoch:
            cause = f"leader epoch {header.leader_epoch}, leader-epoch-checkpoint says {expected}"
            yield Finding(self._file, header.position, cause)


def _ascends(offsets: memoryview[int]) -> bool:
    return all(map(lt, offsets, islice(offsets, 1, None)))
