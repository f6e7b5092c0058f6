"""Compares the indexes of a segment with its batches. Bad indexes are copied from another replica, or rebuilt.

New files of a closed segment are renamed into place, so that no reader sees a half-written file.
"""

from __future__ import annotations

from contextlib import closing, suppress

from topicfs.replication.scrub.repair import Copy, CopyMovedError, Guard
from topicfs.storage.codec.headers import Batches
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState, segment_file
from topicfs.storage.errors import Finding
from topicfs.storage.indexes.entries import ChunkColumns, OffsetEntries, TimeEntries
from topicfs.storage.model import NO_TIMESTAMP, Position
from topicfs.storage.segment.roll import SegmentDirectory
from topicfs.storage.segment.scan import windows
from topicfs.storage.segment.segment import Segment

_KINDS = (SegmentFileKind.OFFSET_INDEX, SegmentFileKind.TIME_INDEX)


class IndexCheck:
    def __init__(self, copy: Copy, used: tuple[int, int]) -> None:
        """Read the indexes. `used` has, for each index, the size of its entries at the copy's end."""
        parts = copy.log.parts
        self.findings: list[Finding] = []
        self._latest: int = NO_TIMESTAMP
        self._entries: list[OffsetEntries | TimeEntries] = []
        base_offset = copy.segment.base_offset
        for kind, size in zip(_KINDS, used, strict=True):
            path = parts.directory / segment_file(base_offset, kind, copy.segment.state)
            if not parts.files.exists(path):
                continue
            with closing(
                parts.files.open(path, read_only=True)
            ) as file:  # The active segment's file is mostly preallocated.
                data = file.pread(size, Position(0))
            if kind is SegmentFileKind.OFFSET_INDEX:
                self._entries.append(OffsetEntries(path, data, base_offset))
            else:
                self._entries.append(TimeEntries(path, data, base_offset))
            if len(data) < size:
                self.findings.append(Finding(path, None, f"{len(data)} bytes instead of {size}"))
        for one in self._entries:
            self.findings += one.slots.shape(trimmed=True)
            self.findings += one.ascend()

    def compare(self, batches: Batches, position: int) -> None:
        """Compare the entries with the next adjacent batches, whose positions are relative to `position`."""
        if self.findings or not len(batches):
            return  # One finding is enough: both indexes are replaced.
        columns = ChunkColumns(batches, self._latest, position)
        self._latest = columns.latest_timestamps[-1]
        for one in self._entries:
            self.findings += one.compare(columns)

    def is_sound(self, copy: Copy) -> bool:
        """Return whether all entries are right. Call this after all batches were compared."""
        if not self.findings and copy.end:
            for one in self._entries:
                self.findings += one.finish()
        return not self.findings


def mend_indexes(copy: Copy, source: Copy | None, guard: Guard) -> None:
    """Repair indexes. Raises CopyMovedError, PartitionOfflineError, ReadOnlyError, OSError."""
    if copy.active:
        _mend_active(copy, source, guard)
    else:
        _mend_sealed(copy, source, guard)


def _check_there(copy: Copy) -> None:
    copy.log.parts.life.check_writable()
    if copy.segment not in copy.log.parts.state.chain.segments:
        raise CopyMovedError(f"{copy.file}: changed while it was scrubbed")


def _mend_active(copy: Copy, source: Copy | None, guard: Guard) -> None:
    """Rebuild the index entries of an active segment while appends wait."""
    with guard(), copy.log.parts.lock:
        _check_there(copy)
        segment = copy.segment
        segment.truncate_indexes()
        segment.activate()
        if source is not None and source.segment.size == segment.size:
            segment.offset_index.extend(list(source.segment.offset_index))
            segment.time_index.extend(list(source.segment.time_index))
            segment.count_like(source.segment)
        else:
            _index(segment, segment, segment.size)
        segment.offset_index.slots.sync()
        segment.time_index.slots.sync()


def _index(made: Segment, segment: Segment, end: int) -> None:
    """Add the index entries for a segment's batches."""
    for window in windows(segment.log, 0, end):
        made.index_window(window.batches, len(window.batches), window.position)


def _mend_sealed(copy: Copy, source: Copy | None, guard: Guard) -> None:
    """Write new index files under temporary names, and rename them. Each start removes files with temporary names."""
    parts = copy.log.parts
    base = copy.segment.base_offset
    aside = [parts.directory / segment_file(base, kind, SegmentFileState.CLEANED) for kind in _KINDS]
    try:
        if source is None:
            _make(copy)
        else:
            theirs = source.log.parts
            for path, kind in zip(aside, _KINDS, strict=True):
                data = theirs.files.read_bytes(
                    theirs.directory / segment_file(base, kind, source.segment.state)
                )
                parts.files.write_bytes(path, data, sync=True)
        with guard(), parts.lock:
            _check_there(copy)
            for path, kind in zip(aside, _KINDS, strict=True):
                parts.files.rename(path, parts.directory / segment_file(base, kind))
            copy.segment.forget_indexes()
            parts.state = parts.state._replace(places={})
    except BaseException:
        for path in aside:
            with suppress(OSError):
                parts.files.unlink(path)
        raise
    parts.files.sync_directory(parts.directory)


def _make(copy: Copy) -> None:
    """Build the index files from the batches."""
    parts = copy.log.parts
    made = Segment(
        SegmentDirectory(parts.directory, parts.files, parts.clock),
        copy.segment.base_offset,
        copy.segment.settings,
        log=copy.segment.log,
        state=SegmentFileState.CLEANED,
    )
    made.truncate_indexes()
    _index(made, copy.segment, copy.end)
    if made.largest.timestamp != NO_TIMESTAMP or copy.end:
        made.time_index.append(*made.largest, final=True)
    for index in (made.offset_index, made.time_index):
        index.slots.trim()
        index.slots.sync()
        index.slots.close()
