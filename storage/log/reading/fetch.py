"""Reads by offset: whole batches, in windows of the size that the reader requests (kafka-storage.md#reading-by-offset).

The position is known from an earlier read that ended there, or is looked up in the offset index.
"""

from __future__ import annotations

from struct import Struct

from topicfs.storage.codec.batch import find_end, find_offset, scan
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.disk.native import NativeFile
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.state import Bound, LogState, Places
from topicfs.storage.model import Fetched, FileSpan, Offset, Position
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.scan import ENDS_EARLY, Window, declared_size
from topicfs.storage.segment.segment import Segment

_BASE_OFFSET = Struct(">q")
_MAX_PLACES = 256
"""Largest number of remembered positions. A reader that ended at such a position continues there without a lookup."""

_new = tuple.__new__
"""Makes a named tuple in half the time of a call of its class; every read makes a named tuple."""


def fetch(state: LogState, bound: Bound, offset: Offset, max_bytes: int) -> Fetched:
    """Read whole batches below `bound`, from the batch of `offset` on. Raises CorruptionError, FileNotFoundError."""
    chain, places = state.chain, state.places
    index, position = _start(chain, offset, places)
    last = len(chain.segments) - 1
    if bound.segment is not chain.segments[last]:
        last = chain.floor(bound.segment.base_offset)
    while index <= last:
        segment = chain.segments[index]
        limit = bound.position if index == last else segment.size
        if position is None:
            found = segment.read_batch(offset, limit)
            position = limit
            if found is not None:
                window, batch = found
                if max_bytes <= batch.size_bytes:
                    return _remember(places, _batch_at_hand(segment, window, batch))
                position = window.position + batch.position
        if position < limit:
            return _remember(places, _read_batches(segment, position, limit, max_bytes))
        index += 1
        position = 0
    return empty_fetch(offset, bound.segment)


def find_span(state: LogState, bound: Bound, offset: Offset, max_bytes: int) -> FileSpan | None:
    """Find the range of a file that has the batches for `fetch`.

    None if there are no batches, or if only `fetch` can read them.
    """
    chain, places = state.chain, state.places
    index, position = _start(chain, offset, places)
    last = chain.floor(bound.segment.base_offset)
    while index <= last:
        segment = chain.segments[index]
        limit = bound.position if index == last else segment.size
        if position is None:
            found = segment.read_batch(offset, limit)
            position = limit if found is None else found[0].position + found[1].position
        if position < limit:
            end, next_offset = limit, bound.offset if index == last else chain.base_offsets[index + 1]
            if limit - position > max_bytes:
                end, next_offset = _indexed_end(segment, position + max_bytes, limit)
            log = segment.log
            if end <= position or not isinstance(log, NativeFile) or log.size() < end:
                return None
            remember(places, next_offset, segment.base_offset, end)
            return FileSpan(log.open_file(), Position(position), end - position, next_offset)
        index += 1
        position = 0
    return None


def _indexed_end(segment: Segment, most: int, limit: int) -> tuple[int, Offset]:
    """Return the position and first offset of the last indexed batch that begins at or before the position `most`.

    The position is 0 if there is no such batch.
    """
    entry = segment.offset_index.last_batch_up_to(most)
    if entry is None:
        return 0, segment.base_offset
    header, room = segment.log.pread(HEADER_SIZE, entry.position), limit - entry.position
    if len(header) < HEADER_SIZE or find_offset(header, entry.offset, room):
        return 0, segment.base_offset
    if not find_offset(header, entry.offset + 1, room):  # The entry belongs to another batch.
        return 0, segment.base_offset
    return entry.position, Offset(_BASE_OFFSET.unpack_from(header)[0])


def _start(chain: Chain, offset: Offset, places: Places) -> tuple[int, int | None]:
    """Return the index of the segment where the read begins, and the position in it; None: position not known."""
    place = places.get(offset)
    if place is None:
        return chain.floor(offset), None
    base_offset, position = place
    index = chain.floor(base_offset)
    if chain.base_offsets[index] != base_offset:
        return chain.floor(offset), None
    return index, position


def _remember(places: Places, fetched: Fetched) -> Fetched:
    data, position, base_offset, next_offset, _ = fetched
    remember(places, next_offset, base_offset, position + len(data))
    return fetched


def remember(places: Places, offset: Offset, base_offset: Offset, position: int) -> None:
    """Remember that a reader of `offset` begins at `position` in the segment at `base_offset`."""
    if len(places) >= _MAX_PLACES:
        places.clear()
    places[offset] = base_offset, position


def empty_fetch(offset: Offset, segment: Segment) -> Fetched:
    """Return the result of a read that has found no batch yet."""
    return Fetched(
        data=memoryview(b""),
        position=Position(0),
        segment_base_offset=segment.base_offset,
        next_offset=offset,
    )


def _batch_at_hand(segment: Segment, window: Window, batch: BatchHeader) -> Fetched:
    """Return the batch that a search found, from the bytes that the search read."""
    return Fetched(
        data=memoryview(window.data)[batch.position : batch.end_position],
        position=Position(window.position + batch.position),
        segment_base_offset=segment.base_offset,
        next_offset=batch.end_offset,
    )


def _read_batches(segment: Segment, position: int, limit: int, max_bytes: int) -> Fetched:
    """Return whole batches from `position` on; at least one batch."""
    room = limit - position
    data = segment.log.pread(min(max(max_bytes, HEADER_SIZE), room), Position(position))
    end, last_offset = find_end(data)
    if not end and len(data) < room and (size := declared_size(data)) <= room:
        data = segment.log.pread(size, Position(position))
        end, last_offset = find_end(data)
    if not end:
        problem = scan(data, max_batches=1).problem
        cause = problem.cause if problem else ENDS_EARLY
        raise CorruptionError(segment.log.path, position, cause)
    return _new(Fetched, (memoryview(data)[:end], position, segment.base_offset, last_offset + 1, ()))
