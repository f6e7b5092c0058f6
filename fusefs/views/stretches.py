"""What a partition's read gives, decoded: runs of readable records, and between them the batches that cannot be read.

A damaged batch costs its own records only. Its neighbours are found by its size, which the log walks by; where the
size is damaged too, by probing for the next offset that the log can read from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fusefs.forms.batches import Decode
from storage.codec.columns import Columns, decode
from storage.codec.headers import HEADER_SIZE, LENGTH_POSITION, LOG_OVERHEAD
from storage.codec.hiding import still_aborted
from storage.disk.names import SegmentFileKind, segment_file
from storage.engine import Partition
from storage.errors import CorruptBatchError, CorruptionError, OffsetOutOfRangeError, SegmentDeletedError
from storage.model import Fetched, Isolation, Offset

_ONE_MORE_BATCH = 2**20


class Damage(NamedTuple):
    """A place whose records cannot be read."""

    offset: Offset
    """Of the first record that is missing, as far as that can be told."""
    error: CorruptionError


Piece: TypeAlias = Columns | Damage


@dataclass(frozen=True, slots=True)
class Stretch:
    """Adjacent batches of one segment, decoded."""

    pieces: list[Piece]
    """In order; empty where the log holds nothing from the offset on."""
    segment_base_offset: Offset
    position: int
    """Of the first batch in the segment's file; positions in the pieces' batches count from there."""
    size_bytes: int
    """Of the batches."""
    next_offset: Offset
    """Where to read on."""
    data: memoryview
    """The batches themselves."""

    def below(self, end_offset: Offset) -> Iterator[Piece]:
        """Give the pieces without the damage at or above an offset: whoever reads up to there is not concerned."""
        return (piece for piece in self.pieces if not isinstance(piece, Damage) or piece.offset < end_offset)


def read_stretch(partition: Partition, offset: Offset, *, max_bytes: int, isolation: Isolation) -> Stretch:
    """Read and decode the batches from the one that holds `offset` on: at least one, where there is one.

    Raises SegmentDeletedError when the offset was removed.
    """
    fetched = fetch(partition, offset, max_bytes=max_bytes, isolation=isolation)
    return (
        fetched if isinstance(fetched, Stretch) else decoded(partition, offset, fetched, isolation=isolation)
    )


def fetch(partition: Partition, offset: Offset, *, max_bytes: int, isolation: Isolation) -> Fetched | Stretch:
    """Read the batches from the one that holds `offset` on; where the file is broken there, a stretch of nothing but damage.

    Raises SegmentDeletedError when the offset was removed.
    """
    try:
        return partition.read(offset, max_bytes=max_bytes, isolation=isolation)
    except OffsetOutOfRangeError as error:
        raise SegmentDeletedError(str(error)) from None
    except CorruptionError as error:
        next_offset = _next_readable(partition, offset, isolation)
        return Stretch([Damage(offset, error)], offset, 0, 0, next_offset, memoryview(b""))


def decoded(
    partition: Partition, offset: Offset, fetched: Fetched, *, isolation: Isolation, decode: Decode = decode
) -> Stretch:
    """Decode what was fetched from an offset on; `decode` is that of the form to render (`fusefs.forms.decoder_of`)."""
    try:
        pieces: list[Piece] = list(decode(fetched.data, aborted=fetched.aborted)) if fetched.data else []
        next_offset = fetched.next_offset
    except CorruptBatchError:
        pieces, next_offset = _decode_around_damage(partition, offset, fetched, isolation, decode=decode)
    data = fetched.data
    return Stretch(pieces, fetched.segment_base_offset, fetched.position, len(data), next_offset, data)


def _decode_around_damage(
    partition: Partition, offset: Offset, fetched: Fetched, isolation: Isolation, *, decode: Decode
) -> tuple[list[Piece], Offset]:
    """Decode run by run, stepping over each batch that fails; and where to read on."""
    pieces: list[Piece] = []
    data, at, next_offset, aborted = fetched.data, 0, offset, fetched.aborted
    while at < len(data):
        try:
            runs = decode(data, at, aborted=aborted)
        except CorruptBatchError as error:
            if error.position > at:
                runs = decode(data, at, error.position, aborted=aborted)
                pieces.extend(runs)
                next_offset = runs[-1].batches[-1].end_offset
                aborted = still_aborted(aborted, (batch for run in runs for batch in run.batches))
            pieces.append(Damage(next_offset, locate_damage(partition, fetched, error)))
            at = _end_of_damaged(data, error.position)
            next_offset = _offset_after_damage(partition, next_offset, fetched, at, isolation)
        else:
            pieces.extend(runs)
            return pieces, fetched.next_offset
    return pieces, next_offset


def locate_damage(partition: Partition, fetched: Fetched, error: CorruptBatchError) -> CorruptionError:
    """Say of a batch that failed in a buffer which file it stands in, and where."""
    name = segment_file(fetched.segment_base_offset, SegmentFileKind.LOG)
    position = fetched.position + error.position
    return CorruptionError(Path(partition.status().directory) / name, position, error.cause)


def _end_of_damaged(data: memoryview, position: int) -> int:
    """Step over a damaged batch by its length field, as the log did; where that cannot be, over all the rest."""
    length = int.from_bytes(
        data[position + LENGTH_POSITION : position + LENGTH_POSITION + 4], "big", signed=True
    )
    end = position + LOG_OVERHEAD + length
    return end if position + HEADER_SIZE <= end <= len(data) else len(data)


def _offset_after_damage(
    partition: Partition, offset: Offset, fetched: Fetched, at: int, isolation: Isolation
) -> Offset:
    """Find the first offset behind a damaged batch, of which only the position `at` where it ends is trusted.

    Its last offset lies under the checksum that failed, so the next batch is asked, and behind the last one of a
    segment the segment's end.
    """
    if at < len(fetched.data):
        return _base_offset(partition, offset, fetched.data, at, isolation)
    try:
        longer = partition.read(offset, max_bytes=len(fetched.data) + _ONE_MORE_BATCH, isolation=isolation)
    except CorruptionError:
        return _next_readable(partition, offset, isolation)
    begins = fetched.position + at - longer.position
    if longer.segment_base_offset == fetched.segment_base_offset and 0 <= begins < len(longer.data):
        return _base_offset(partition, offset, longer.data, begins, isolation)
    return min(_segment_end(partition, offset), partition.offsets().visible_end(isolation))


def _base_offset(
    partition: Partition, offset: Offset, data: memoryview, position: int, isolation: Isolation
) -> Offset:
    """Give the base offset of the batch at a position, kept above `offset` and within the log."""
    base_offset = int.from_bytes(data[position : position + 8], "big", signed=True)
    return Offset(min(max(base_offset, offset + 1), partition.offsets().visible_end(isolation)))


def _segment_end(partition: Partition, offset: Offset) -> Offset:
    for segment in partition.segments():
        if segment.base_offset <= offset < segment.end_offset:
            return segment.end_offset
    return Offset(offset + 1)


def _next_readable(partition: Partition, offset: Offset, isolation: Isolation) -> Offset:
    """Find the first offset behind a break in a file from which the log can read on; the visible end if none.

    Reading enters a segment by its index: offsets before the break's next index entry fail, those after it succeed.
    """
    end_offset = partition.offsets().visible_end(isolation)
    fails, step = offset, 1
    while not _readable(partition, Offset(min(fails + step, end_offset)), isolation):
        fails, step = Offset(fails + step), step * 2
    succeeds = Offset(min(fails + step, end_offset))
    while succeeds - fails > 1:
        middle = Offset((fails + succeeds) // 2)
        if _readable(partition, middle, isolation):
            succeeds = middle
        else:
            fails = middle
    return succeeds


def _readable(partition: Partition, offset: Offset, isolation: Isolation) -> bool:
    if offset >= partition.offsets().visible_end(isolation):
        return True
    try:
        partition.read(offset, max_bytes=1, isolation=isolation)
    except CorruptionError:
        return False
    return True
