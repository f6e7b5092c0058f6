"""Repairs a damaged copy of a segment with the bytes of another replica's copy.

Truncation, compaction and removal change bytes only while they hold the log's lock. If bytes are invalid while the
scrub holds this lock, the bytes are damaged.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.errors import Finding, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.model import Buffer, Offset, Position
from topicfs.storage.segment.scan import declared_size
from topicfs.storage.segment.segment import Segment

SCRUB_WINDOW_BYTES = 1 << 20

Guard: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Returns a context manager: until it ends, appends to all replicas and changes of their roles wait."""


class CopyMovedError(StorageError):
    """Raised if the segment was compacted, truncated or removed after it was read."""


class Copy(NamedTuple):
    """A segment in one log, up to the log end that was published when the segment was looked up."""

    place: str
    """The data directory of the copy, for display."""
    log: Log
    segment: Segment
    end: int

    @property
    def file(self) -> Path:
        return self.segment.log.path

    @property
    def active(self) -> bool:
        return self.segment is self.log.chain.active

    def read(self, position: int, size: int) -> bytes | None:
        """Return `size` bytes, or fewer at the copy's end; None if the disk cannot read them. Raises other OSErrors."""
        try:
            return self.segment.log.pread(min(size, self.end - position), Position(position))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None

    def window(self, position: int) -> bytes | None:
        """Return bytes from `position` on, including at least one whole batch; None if the disk cannot read them."""
        data = self.read(position, SCRUB_WINDOW_BYTES)
        if data is None or len(data) < SCRUB_WINDOW_BYTES:
            return data
        size = declared_size(data)
        if len(data) + 1 < size <= min(MAX_CONTENT_BYTES, self.end - position):
            return self.read(position, size)
        return data


def copy_at(place: str, log: Log, base_offset: Offset) -> Copy | None:
    """Return a log's copy of the segment that begins at `base_offset`; None if there is none."""
    state = log.parts.state
    segment = state.chain.segments[state.chain.floor(base_offset)]
    if segment.base_offset != base_offset or log.offline_reason is not None:
        return None
    return Copy(place, log, segment, state.end.bytes_of(segment))


def end_of(copy: Copy) -> Offset:
    """Return the exclusive end of the copy's offsets: the next segment's base offset, or the log end."""
    state = copy.log.parts.state
    return state.chain.end_offset(state.chain.floor(copy.segment.base_offset), state.end_offset)


def offset_at(copy: Copy, position: int) -> int | None:
    """Return the base offset of the batch at `position`; at the copy's end, the end offset; None if damaged."""
    state = copy.log.parts.state
    index = state.chain.floor(copy.segment.base_offset)
    segment = state.chain.segments[index]
    size = state.end.bytes_of(segment)
    if segment is not copy.segment or position > size:
        return None
    end = state.chain.end_offset(index, state.end_offset)
    if position == size:
        return end
    try:
        base = int.from_bytes(segment.log.pread(8, Position(position)), "big", signed=True)
    except OSError:
        return None
    return base if copy.segment.base_offset <= base < end else None


def changed_files(copy: Copy) -> list[Finding]:
    """Find files of a segment that another program removed, truncated or extended while the log was open.

    Raises OSError.
    """
    segment, parts = copy.segment, copy.log.parts
    slots = segment.offset_index.slots, segment.time_index.slots
    found = []
    with parts.lock:  # Excludes removal, roll and compaction.
        if segment not in parts.state.chain.segments:
            return []
        for path, size in [(copy.file, copy.end), *((one.path, one.used_bytes) for one in slots)]:
            if not parts.files.exists(path):
                found.append(Finding(path, None, "was removed"))
            elif segment is not parts.state.chain.active and parts.files.size(path) != size:
                found.append(Finding(path, None, f"has {parts.files.size(path)} bytes instead of {size}"))
    return found


def mend(copy: Copy, position: int, sound: Buffer, guard: Guard) -> None:
    """Overwrite a damaged batch by a valid one (blocking). Raises CopyMovedError, PartitionOfflineError, OSError."""
    parts, file = copy.log.parts, copy.segment.log
    with guard(), parts.lock:
        parts.life.check_writable()
        state = parts.state
        if copy.segment not in state.chain.segments or position + len(sound) > state.end.bytes_of(
            copy.segment
        ):
            raise CopyMovedError(f"{copy.file}: changed while it was scrubbed")
        if copy.read(position, len(sound)) == sound:
            raise CopyMovedError(f"{copy.file}: position {position} is sound now")
        file.pwrite(sound, Position(position))
        # Drop cached positions, which were derived from the damaged bytes.
        parts.state = state._replace(places={})
    file.sync()
    if copy.read(position, len(sound)) != sound:
        raise OSError(errno.EIO, "the repaired batch reads back differently", str(copy.file))
