"""Reading a log: its bounds, its segments, and records by offset or time. Thread-safe; few calls take the lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, parse_segment_file
from topicfs.storage.errors import CorruptionError, OffsetOutOfRangeError, SegmentDeletedError
from topicfs.storage.log.life import Life
from topicfs.storage.log.parts import LogParts
from topicfs.storage.log.reading.fetch import empty_fetch, fetch, find_span, remember
from topicfs.storage.log.reading.times import Search, TimeSearch
from topicfs.storage.log.state import LogState
from topicfs.storage.model import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    Fetched,
    FileSpan,
    Isolation,
    Offset,
    PartitionOffsets,
    PartitionStatus,
    PartitionSummary,
    SegmentInfo,
    Timestamp,
    TimestampOffset,
)
from topicfs.storage.segment.chain import Chain, overlapping
from topicfs.storage.segment.scan import ENDS_EARLY
from topicfs.storage.segment.segment import Segment

if TYPE_CHECKING:
    from topicfs.storage.segment.trace import LookupTrace

_Value = TypeVar("_Value")

_SUPERSEDED = Life.SUPERSEDED
_INDEX_SUFFIXES = tuple(kind.value for kind in SegmentFileKind if kind.value.endswith("index"))


class Location(NamedTuple):
    segment_base_offset: Offset
    batch: BatchHeader
    """The batch; its position counts from the start of the segment's `.log`."""


class LogReader:
    """Reads a log by its published state; changes that are published during a call are seen by the next call."""

    def __init__(self, parts: LogParts, hidden: str | None) -> None:
        self.parts = parts
        """Shared with the objects that change the log."""
        self.hidden = hidden
        """Why readers of a read-only log do not see all batches of its files; None if they see all of them."""
        self._times = TimeSearch()

    def offsets(self) -> PartitionOffsets:
        state = self.parts.state
        return PartitionOffsets(
            log_start_offset=state.start_offset,
            last_stable_offset=state.last_stable_offset,
            high_watermark=state.high_watermark,
            log_end_offset=state.end_offset,
            recovery_point=min(self.parts.progress.recovery_point, state.end_offset),
            leader_epoch=self.parts.leader_epoch,
        )

    def visible_end(self, isolation: Isolation) -> Offset:
        return self.parts.state.visible_end(isolation)

    def summary(self) -> PartitionSummary:
        state = self.parts.state
        return PartitionSummary(
            start_offset=state.start_offset,
            stable_end=state.last_stable_offset,
            end_offset=state.end_offset,
            log_bytes=state.log_bytes(),
            offline=self.parts.life.reason is not None,
        )

    def status(self) -> PartitionStatus:
        parts, state = self.parts, self.parts.state
        cleaning = parts.describe_cleaning()
        return PartitionStatus(
            offsets=self.offsets(),
            offline=parts.life.reason,
            segments=len(state.chain.segments),
            log_bytes=state.log_bytes(),
            index_bytes=self._or_default(
                lambda state: _index_bytes(state.chain, parts.directory, parts.files), 0
            ),
            first_timestamp=self._or_default(lambda state: _first_timestamp(state.chain), NO_TIMESTAMP),
            last_timestamp=self.newest_timestamp,
            first_dirty_offset=cleaning and cleaning.first_dirty_offset,
            cleanable_ratio=cleaning and cleaning.cleanable_ratio,
            last_flush=parts.progress.last_flush_ms,
            hidden=self.hidden,
        )

    @property
    def newest_timestamp(self) -> Timestamp:
        """The largest timestamp of all records; -1 if no record has one, or if the disk cannot be read."""
        return self._or_default(
            lambda state: max((one.largest.timestamp for one in state.chain.segments), default=NO_TIMESTAMP),
            NO_TIMESTAMP,
        )

    def segments(self) -> Sequence[SegmentInfo]:
        return self._with_segments(
            lambda state: tuple(_describe_segment(state, index) for index in range(len(state.chain.segments)))
        )

    def segment_of(self, name: str) -> SegmentInfo | None:
        def look(state: LogState) -> SegmentInfo | None:
            segment = _segment_with_file(name, state.chain)
            if segment is None:
                return None
            return _describe_segment(state, state.chain.floor(segment.base_offset))

        return self._with_segments(look)

    def open_segment_file(self, name: str) -> memoryview:
        return self._with_segments(lambda state: self._map_segment_file(state, name))

    def _map_segment_file(self, state: LogState, name: str) -> memoryview:
        path = self.parts.directory / name
        segment = _segment_with_file(name, state.chain)
        if segment is None:
            raise SegmentDeletedError(f"{path}: not a segment's file, or already removed")
        file = self.parts.files.open(path, read_only=True)
        try:
            is_log = name.endswith(SegmentFileKind.LOG.value)
            return file.map(state.end.bytes_of(segment) if is_log else file.size())
        except ValueError:
            raise CorruptionError(path, file.size(), ENDS_EARLY) from None
        finally:
            file.close()

    # Reading.

    def read(
        self, offset: Offset, *, max_bytes: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> Fetched:
        parts = self.parts
        while True:
            if parts.life.now is _SUPERSEDED:
                self._check_serves()
            state = parts.state
            try:
                fetched = self._read(state, offset, max_bytes, isolation)
            except FileNotFoundError as error:
                self._wait_for_change(state.chain, error)
            except CorruptionError:
                if self._is_whole(state):
                    raise
            else:
                if parts.state.places is state.places:  # This is the usual case.
                    size, reads = len(fetched.data), parts.counts.reads
                    reads.size_bytes += size
                    return fetched

    def read_as_follower(self, offset: Offset, *, max_bytes: int) -> Fetched:
        """Read up to the log end, beyond what readers see. Raises the errors of `read` and SegmentDeletedError."""

        def look(state: LogState) -> Fetched:
            if not state.start_offset <= offset <= state.end_offset:
                raise self._out_of_range(state, offset)
            if offset == state.end_offset:
                return empty_fetch(offset, state.chain.active)
            return fetch(state, state.end, offset, max_bytes)

        return self._with_segments(look)

    def find_span(self, offset: Offset, *, max_bytes: int, isolation: Isolation) -> FileSpan | None:
        """Return the range of a file that has the batches for `read`.

        None if there are no batches, or if only `read` can read them.
        """

        def look(state: LogState) -> FileSpan | None:
            if not state.start_offset <= offset <= state.end_offset:
                raise self._out_of_range(state, offset)
            bound = state.bound(isolation)
            span = find_span(state, bound, offset, max_bytes) if offset < bound.offset else None
            if span is None or not state.aborted or isolation is not Isolation.READ_COMMITTED:
                return span
            return span._replace(aborted=overlapping(state.aborted, offset, span.next_offset))

        return self._with_segments(look)

    def _is_whole(self, state: LogState) -> bool:
        """Return whether no segment of `state` was removed, replaced or cut; otherwise reads may return garbage."""
        return self.parts.state.places is state.places

    def _check_serves(self) -> None:
        """Raise SegmentDeletedError if another log serves the files now: it may rename, cut or rewrite them."""
        if self.parts.life.now is _SUPERSEDED:
            raise SegmentDeletedError(
                f"{self.parts.partition}: the partition was reopened; open the file again"
            )

    def _read(self, state: LogState, offset: Offset, max_bytes: int, isolation: Isolation) -> Fetched:
        if not state.start_offset <= offset <= state.end_offset:
            raise self._out_of_range(state, offset)
        bound = state.bound(isolation)
        if offset >= bound.offset:
            return empty_fetch(offset, state.chain.active)
        fetched = fetch(state, bound, offset, max_bytes)
        if state.aborted and isolation is Isolation.READ_COMMITTED:
            return fetched._replace(aborted=overlapping(state.aborted, offset, fetched.next_offset))
        return fetched

    def _out_of_range(self, state: LogState, offset: Offset) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(offset, state.start_offset, state.end_offset, str(self.parts.partition))

    def offset_for_timestamp(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        trace: LookupTrace | None = None,
        max_bytes: int | None = None,
    ) -> TimestampOffset | None:
        found = self.record_at(timestamp, isolation=isolation, trace=trace, max_bytes=max_bytes)
        return found.time_and_offset if isinstance(found, FoundRecord) else found

    def record_at(
        self,
        timestamp: Timestamp,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        trace: LookupTrace | None = None,
        max_bytes: int | None = None,
    ) -> FoundRecord | TimestampOffset | None:

        def look(state: LogState) -> FoundRecord | TimestampOffset | None:
            search = Search(timestamp, state.start_offset, trace, max_bytes)
            found = self._times.find(state.chain, state.bound(isolation), search)
            if found is None:
                return None
            # A caller that looks up a time usually reads from the found record next.
            remember(state.places, found.offset, found.segment_base_offset, found.batch_position)
            if state.aborted and isolation is Isolation.READ_COMMITTED:
                hidden = overlapping(state.aborted, found.offset, Offset(found.offset + 1))
                return found.time_and_offset if hidden else found
            return found

        return self._with_segments(look)

    def earliest(self) -> TimestampOffset:
        """Return the log start, with its leader epoch if the epoch is known (ListOffsets -2)."""
        start = self.parts.state.start_offset
        epoch = self.parts.epochs.epoch_for_offset(start)
        return TimestampOffset(NO_TIMESTAMP, start, NO_LEADER_EPOCH if epoch is None else epoch)

    def latest(self) -> TimestampOffset:
        """Return the log end, not the high watermark, with the latest epoch (ListOffsets -1)."""
        return TimestampOffset(NO_TIMESTAMP, self.parts.state.end_offset, self.parts.latest_epoch())

    def largest_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp; None if the log is empty (ListOffsets -3)."""

        def look(state: LogState) -> FoundRecord | None:
            return self._times.find_largest(state.chain, state.bound(Isolation.READ_UNCOMMITTED))

        def look_between_appends(_: LogState) -> FoundRecord | None:
            with self.parts.lock:
                return look(self.parts.state)

        # The active segment may already have a larger timestamp, from a batch after the end of `state`.
        found = self._with_segments(look) or self._with_segments(look_between_appends)
        return None if found is None else found.time_and_offset

    def locate(self, offset: Offset, trace: LookupTrace | None = None) -> Location | None:
        """Return the batch that contains `offset`; if `offset` is in a gap, return the next batch.

        Raises OffsetOutOfRangeError, CorruptionError, SegmentDeletedError.
        """
        return self._with_segments(lambda state: self._locate(state, offset, trace))

    def _locate(self, state: LogState, offset: Offset, trace: LookupTrace | None) -> Location | None:
        if not state.start_offset <= offset < state.end_offset:
            raise self._out_of_range(state, offset)
        chain, end = state.chain, state.end
        for segment in chain.segments[chain.floor(offset) :]:
            if trace:
                trace.search_segments(offset, chain.base_offsets, segment.base_offset)
            batch = segment.find_batch(offset, end.bytes_of(segment), trace)
            if batch is not None:
                return Location(segment.base_offset, batch)
        return None

    def _with_segments(self, look: Callable[[LogState], _Value]) -> _Value:
        """Return `look(state)`; repeat it if segments changed. Raises SegmentDeletedError if a file is gone."""
        while True:
            if self.parts.life.now is _SUPERSEDED:
                self._check_serves()
            state = self.parts.state
            try:
                found = look(state)
            except FileNotFoundError as error:
                self._wait_for_change(state.chain, error)
            except CorruptionError:
                if self._is_whole(state):
                    raise
            else:
                if self.parts.state.places is state.places:
                    return found

    def _wait_for_change(self, chain: Chain, error: FileNotFoundError) -> None:
        """Wait until a thread that renames files publishes the names. Raises SegmentDeletedError if no thread does."""
        with self.parts.lock:
            changed = self.parts.state.chain is not chain
        if not changed:
            raise SegmentDeletedError(
                f"{error.filename or self.parts.directory}: removed while it was read"
            ) from error

    def _or_default(self, ask: Callable[[LogState], _Value], otherwise: _Value) -> _Value:
        """Return `ask(state)`, or `otherwise` if reading fails.

        The status is often read because the disk has failed.
        """
        try:
            return self._with_segments(ask)
        except (OSError, SegmentDeletedError):
            return otherwise


def _describe_segment(state: LogState, index: int) -> SegmentInfo:
    chain, segment = state.chain, state.chain.segments[index]
    return SegmentInfo(
        base_offset=segment.base_offset,
        end_offset=chain.end_offset(index, state.end_offset),
        size_bytes=state.end.bytes_of(segment),
        largest_timestamp=segment.largest_timestamp,
        active=segment is chain.active,
        files=segment.file_names(),
    )


def _index_bytes(chain: Chain, directory: Path, files: FileSystem) -> int:
    """Return the size of all index files as `ls` shows it, including preallocated space of the active segment."""
    return sum(
        files.size(path)
        for segment in chain.segments
        for path in _index_files(directory, segment.file_names())
    )


@lru_cache(maxsize=128)
def _index_files(directory: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the paths of a segment's index files; cached, because making a path takes longer than a system call."""
    return tuple(directory / name for name in names if name.endswith(_INDEX_SUFFIXES))


def _first_timestamp(chain: Chain) -> Timestamp:
    """Return the timestamp of the first batch; -1 if there is no batch."""
    return next((segment.first_timestamp for segment in chain.segments if segment.size), NO_TIMESTAMP)


def _segment_with_file(name: str, chain: Chain) -> Segment | None:
    """Return the segment that has a file called `name`."""
    parsed = parse_segment_file(name)
    if parsed is None:
        return None
    segment = chain.segments[chain.floor(parsed.base_offset)]
    return segment if name in segment.file_names() else None
