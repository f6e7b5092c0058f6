"""Repairs a batch's header after a single flipped bit that no checksum covers.

A batch's checksum does not cover its base offset, length, leader epoch and magic. A broker's recovery ignores the
base offset and accepts any magic above 1, so it keeps a batch with such a bit and all batches after it. Here offsets
always ascend, so a batch that does not fit would end the log. Therefore a batch whose checksum is right gets the only
value that fits its neighbors:

    magic          2, because the checksum is that of format v2
    length         the one that is one bit away and makes the checksum right
    base offset    the end of the batch before, if the next batch begins just after this one; else, as after a
                   compaction, the only offset between the two neighbors that is one bit away

The next batch may be the first batch of the next segment. At the end of the log, where there is no next batch, a base
offset becomes the end of the batch before only if that is one bit away and the stored base offset is impossible. A
larger base offset within the segment's range may be right.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC_POSITION,
)
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.disk.filesystem import File
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from topicfs.storage.model import Offset, Position
from topicfs.storage.segment.scan import windows

_OFFSET = Struct(">q")
_LENGTH = Struct(">i")
_LARGEST = 2**63 - 1
_ALL_BITS = 2**32 - 1


class HeadersRepairedError(Exception):
    """A segment's file was repaired, so that loading has to begin again."""


class Repair(NamedTuple):
    """A field that was corrected in the file."""

    position: int
    field: str
    found: int
    written: int

    def __str__(self) -> str:
        return f"position {self.position}: {self.field} {self.found} does not fit; its neighbors and checksum require {self.written}"


class _Bounds(NamedTuple):
    start_offset: Offset
    next_base: Offset | None
    last_possible: int
    """The largest offset that the segment's indexes can store."""
    certain: bool
    """True if all batches before this one are known to have right offsets."""


def repair_headers(log: File, base_offset: Offset, next_base: Offset | None) -> list[Repair]:
    """Repair header fields if their right value is certain. `next_base`: next segment's start. Blocks. Raises OSError."""
    return [*_repair_shapes(log), *_repair_offsets(log, base_offset, next_base)]


def _repair_shapes(log: File) -> Iterator[Repair]:
    """Correct the length and magic of each batch, and the sign of its base offset, so that the batch can be read."""
    end, position = log.size(), 0
    while position < end:
        for window in windows(log, position, end, check_crc=True):
            position = window.position + window.batches.stop
        header = log.pread(HEADER_SIZE, Position(position))
        if len(header) < HEADER_SIZE:
            return
        length = _LENGTH.unpack_from(header, LENGTH_POSITION)[0]
        if not _is_sound(log, position, end, length):
            # Zeros after the batches of a preallocated file are not a batch. Searching a length for them
            # would read much in vain.
            true = (
                _true_length(log, position, end, length) if header[MAGIC_POSITION] == CURRENT_MAGIC else None
            )
            if true is None:
                return
            log.pwrite(_LENGTH.pack(true), Position(position + LENGTH_POSITION))
            yield Repair(position, "length", length, true)
            continue
        found, base_offset = header[MAGIC_POSITION], _OFFSET.unpack_from(header)[0]
        if found != CURRENT_MAGIC:
            log.pwrite(bytes([CURRENT_MAGIC]), Position(position + MAGIC_POSITION))
            yield Repair(position, "magic", found, CURRENT_MAGIC)
        if base_offset < 0:
            log.pwrite(_OFFSET.pack(base_offset & _LARGEST), Position(position))
            yield Repair(position, "base offset", base_offset, base_offset & _LARGEST)
        if found == CURRENT_MAGIC and base_offset >= 0:
            return


def _repair_offsets(log: File, base_offset: Offset, next_base: Offset | None) -> Iterator[Repair]:
    last_possible, end_offset, certain = base_offset + MAX_RELATIVE_OFFSET, base_offset, True
    for batch, following in _with_following(log, next_base):
        bounds = _Bounds(end_offset, following, last_possible, certain)
        base = batch.base_offset if _fits(batch, bounds) else _true_base(batch, bounds)
        if base is None:
            if batch.base_offset < end_offset:
                return
            # The wrong base offset may be that of the next batch.
            base = batch.base_offset
            certain = certain and base == end_offset
        elif base != batch.base_offset:
            log.pwrite(_OFFSET.pack(base), batch.position)
            yield Repair(batch.position, "base offset", batch.base_offset, base)
        end_offset = Offset(base + batch.last_offset - batch.base_offset + 1)


def _with_following(log: File, next_base: Offset | None) -> Iterator[tuple[BatchHeader, Offset | None]]:
    """Yield each batch with the next one's base offset; None if an old format does not store it."""
    before: BatchHeader | None = None
    for window in windows(log, 0, log.size(), check_crc=True):
        for batch in window.batches:
            if before is not None:
                yield before, batch.base_offset if batch.magic == CURRENT_MAGIC else None
            before = batch._replace(position=Position(window.position + batch.position))
    if before is not None:
        yield before, next_base


def _fits(batch: BatchHeader, bounds: _Bounds) -> bool:
    if batch.magic != CURRENT_MAGIC:
        return True
    before_next = bounds.next_base is None or batch.last_offset < bounds.next_base
    return (
        bounds.start_offset <= batch.base_offset and before_next and batch.last_offset <= bounds.last_possible
    )


def _true_base(batch: BatchHeader, bounds: _Bounds) -> Offset | None:
    """Return the base offset as it was written; None if that is not certain."""
    start_offset, next_base, last_possible, certain = bounds
    if next_base is None:
        # The last batch of the log: compaction never reached it, so it began where the batch before it ended.
        is_near = (batch.base_offset ^ start_offset).bit_count() == 1
        return start_offset if certain and is_near else None
    # If the next batch is out of range too, the segment has to be split.
    if next_base > last_possible + 1:
        return None
    last_base = next_base - (batch.last_offset - batch.base_offset + 1)
    if start_offset == last_base:
        return start_offset
    near = [batch.base_offset ^ (1 << bit) for bit in range(63)]
    possible = [base for base in near if start_offset <= base <= last_base]
    return Offset(possible[0]) if len(possible) == 1 else None


def _true_length(log: File, position: int, end: int, length: int) -> int | None:
    """Return the length, one bit away from the stored one, that makes the batch's checksum right; None if none does."""
    near = [_LENGTH.unpack(((length & _ALL_BITS) ^ 1 << bit).to_bytes(4, "big"))[0] for bit in range(32)]
    possible = (one for one in near if one + LOG_OVERHEAD <= MAX_CONTENT_BYTES)
    return next((one for one in possible if _is_sound(log, position, end, one)), None)


def _is_sound(log: File, position: int, end: int, length: int) -> bool:
    """Return whether the bytes at `position` are a valid v2 batch of this length, ignoring magic and base offset."""
    size = LOG_OVERHEAD + length
    if not HEADER_SIZE <= size <= end - position:
        return False
    data = bytearray(log.pread(size, Position(position)))
    _LENGTH.pack_into(data, LENGTH_POSITION, length)
    data[MAGIC_POSITION] = CURRENT_MAGIC
    data[: _OFFSET.size] = bytes(_OFFSET.size)
    found = scan(data, check_crc=True, max_batches=1)
    return len(found) == 1 and found.problem is None
