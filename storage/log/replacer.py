"""Deletion, replacement and truncation of a log's segments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from topicfs.storage.disk.names import SegmentFileState
from topicfs.storage.errors import OffsetOutOfRangeError, PartitionOfflineError, PolicyViolationError
from topicfs.storage.log.appending.appender import LogAppender
from topicfs.storage.log.parts import LogParts
from topicfs.storage.log.producers import rebuild_producers
from topicfs.storage.log.state import Bound
from topicfs.storage.model import NO_LEADER_EPOCH, Offset, Timestamp
from topicfs.storage.segment.chain import Chain, aborted_spans
from topicfs.storage.segment.roll import SegmentDirectory, segment_settings
from topicfs.storage.segment.segment import Segment

_LOGGER = logging.getLogger(__name__)


class LogReplacer:
    """Removes a log's segments, replaces them, and truncates the log."""

    def __init__(self, parts: LogParts, appender: LogAppender) -> None:
        self._parts = parts
        self._appender = appender

    def delete_records(self, before: Offset) -> Offset:
        parts = self._parts
        if parts.config.compacts and not parts.config.deletes:
            raise PolicyViolationError(f"{parts.partition}: cleanup.policy=compact does not delete by offset")
        with parts.lock:
            parts.life.check_writable()
            high_watermark = parts.state.high_watermark
            target = high_watermark if before == -1 else before
            if not 0 <= target <= high_watermark:
                raise OffsetOutOfRangeError(
                    target, parts.state.start_offset, high_watermark, str(parts.partition)
                )
            self._move_start(target)
            start = parts.state.start_offset
        parts.listeners.notify()
        return start

    def follow_start(self, offset: Offset) -> None:
        """Move the log start up to `offset`, the leader's log start, and delete the segments below it.

        Raises PartitionOfflineError, ReadOnlyError, OSError.
        """
        parts = self._parts
        with parts.lock:
            parts.life.check_writable()
            self._move_start(min(offset, parts.state.high_watermark))
            start = parts.state.start_offset
            below = sum(base_offset <= start for base_offset in parts.state.chain.base_offsets[1:])
        parts.listeners.notify()
        if below:
            self.delete_oldest_segments(below, "below the leader's log start")
            # Otherwise, after a kill, the removed segments would look as if they were lost
            # (`storage.log.soundness`).
            with suppress(OSError):
                parts.epochs.flush()

    def delete_oldest_segments(self, count: int, reason: str) -> list[str]:
        """Move the log start past the first `count` segments and remove them; return the names that their files had.

        If no segment would be left, a roll adds one first. On return the files are `.deleted` on disk, until
        `remove_deleted_files` unlinks them. Raises OSError: segments that were not renamed stay for the next call.
        """
        parts, began = self._parts, self._parts.clock()
        with parts.lock:
            parts.life.check_writable()
            if count >= len(parts.state.chain.segments):
                if parts.state.end_position:
                    self._appender.roll_locked(f"all segments deleted: {reason}")
                count = len(parts.state.chain.segments) - 1
            if count <= 0:
                return []
            segments, before = parts.state.chain.segments, parts.state.log_bytes()
            deleted, kept = segments[:count], segments[count:]
            self._move_start(kept[0].base_offset)
            parts.state = parts.state.with_segments(Chain.of(kept))
            try:
                names = self._retire(deleted)
            except OSError:
                # Keep these segments in the chain: otherwise no pass would remove them, and they would come
                # back at the next start.
                kept = tuple(segment for segment in segments if not segment.removed)
                parts.state = parts.state.with_segments(Chain.of(kept))
                raise
        # Otherwise the segments and the old log start could come back after a power loss: checkpoints leave
        # out a log start that equals the first segment's base offset.
        parts.files.sync_directory(parts.directory)
        _LOGGER.info(
            "%s: deleted %s: %s; %d -> %d bytes (%d ms)",
            parts.partition,
            ", ".join(f"{segment.base_offset:020}" for segment in deleted),
            reason,
            before,
            sum(segment.size for segment in kept),
            parts.clock() - began,
        )
        parts.listeners.notify()
        return names

    def new_cleaned_segment(self, base_offset: Offset) -> Segment:
        """Make an empty `.cleaned` segment, to be filled and then passed to `replace_segments`."""
        parts = self._parts
        directory = SegmentDirectory(parts.directory, parts.files, parts.clock)
        settings = segment_settings(parts.config)._replace(preallocated_bytes=0)
        return Segment.create(directory, base_offset, settings, SegmentFileState.CLEANED)

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace `old`, adjacent inactive segments, by `new`, a closed and flushed `.cleaned` segment.

        Return False if a segment of `old` is gone. First the new files become `.swap`, which recovery would complete;
        then the old files become `.deleted`; then the new files lose `.swap`. Raises OSError: the old segments are
        still in place, so discard `new`. Raises PartitionOfflineError: the next load completes the replacement.
        """
        parts = self._parts
        with parts.lock:
            parts.life.check_writable()
            segments = parts.state.chain.segments
            if not set(old) <= set(segments[:-1]):
                return False
            # This reads indexes, so it comes before any rename: after an error here the old segments are
            # still in place.
            chain = Chain.of([new, *(s for s in segments if s not in set(old))])
            aborted = aborted_spans(chain.segments, parts.state.start_offset)
            self._rename_segment(new, SegmentFileState.SWAP)
            parts.files.sync_directory(parts.directory)
            try:
                self._put_in_place(old, new)
            except BaseException as error:
                parts.mark_offline(f"replacing segments failed: {error}")
                raise PartitionOfflineError(f"{parts.partition}: {parts.life.reason}") from error
            parts.state = parts.state.with_segments(chain)._replace(aborted=aborted)
            parts.rewrites += 1
        parts.listeners.notify()
        return True

    def _put_in_place(self, old: Sequence[Segment], new: Segment) -> None:
        parts, due = self._parts, self._deletion_due()
        for segment in old:
            stays = segment.base_offset == new.base_offset
            parts.removal.retire(segment, parts.directory, due, keep_snapshot=stays)
            if not stays:
                parts.producers.removed([segment.base_offset])
        self._rename_segment(new, SegmentFileState.LIVE)
        parts.files.sync_directory(parts.directory)

    def discard_segment(self, cleaned: Segment) -> None:
        """Delete a `.cleaned` segment that will not be used. Some of its files may be `.swap` already."""
        cleaned.close()
        for name in cleaned.file_names():
            stem = name.removesuffix(cleaned.state.value)
            for state in (SegmentFileState.CLEANED, SegmentFileState.SWAP):
                with suppress(FileNotFoundError):
                    self._parts.files.unlink(self._parts.directory / (stem + state.value))

    def _rename_segment(self, segment: Segment, state: SegmentFileState) -> None:
        directory = self._parts.directory
        for name in segment.file_names():
            final = name.removesuffix(segment.state.value) + state.value
            self._parts.files.rename(directory / name, directory / final)
        segment.renamed(state)

    def remove_deleted_files(self, now: Timestamp) -> list[str]:
        """Unlink the files that were deleted at least file.delete.delay.ms before `now`; return their names."""
        with self._parts.lock:
            parts = self._parts
            return parts.removal.remove_due(parts.directory, now, parts.config.file_delete_delay_ms)

    def truncate_to(self, offset: Offset, reason: str = "asked for") -> None:
        """Drop the batch with `offset` and all later batches; end the log at `offset` (kafka-storage.md#truncation)."""

        def truncate() -> None:
            parts = self._parts
            parts.epochs.truncate_from_end(offset)
            parts.noted_epoch = parts.latest_epoch()
            if offset < parts.state.chain.base_offsets[0]:
                self._start_over(offset)
            elif offset < parts.state.end_offset:
                self._cut(offset)

        self._truncate(offset, truncate, reason)

    def truncate_fully_and_start_at(self, offset: Offset, reason: str = "asked for") -> None:
        """Drop all batches. The empty log begins and ends at `offset`."""

        def truncate() -> None:
            self._parts.epochs.replace(())
            self._parts.noted_epoch = NO_LEADER_EPOCH
            self._start_over(offset)
            self._parts.epochs.flush()

        self._truncate(offset, truncate, reason)

    def _truncate(self, offset: Offset, truncate: Callable[[], None], reason: str) -> None:
        parts, began = self._parts, self._parts.clock()
        with parts.lock:
            parts.life.check_writable()
            before, bytes_before = parts.state.end_offset, parts.state.log_bytes()
            try:
                truncate()
            except BaseException as error:
                # The truncation is half done: an append would now follow records that the log no longer has.
                parts.mark_offline(f"truncating to offset {offset} failed: {error}")
                raise
            after, bytes_after = parts.state.end_offset, parts.state.log_bytes()
        _LOGGER.info(
            "%s: truncated from offset %d to %d: %s; %d -> %d bytes (%d ms)",
            parts.partition,
            before,
            after,
            reason,
            bytes_before,
            bytes_after,
            parts.clock() - began,
        )
        parts.listeners.notify()

    def drop_empty_segment(self, reason: str = "asked for") -> None:
        """Remove the active segment if it is empty and not the only one. Appends continue in the previous segment."""
        segments = self._parts.state.chain.segments
        if len(segments) > 1 and not segments[-1].size:
            end = self._parts.state.end_offset
            self._truncate(end, lambda: self._cut(end, kept=len(segments) - 1), reason)

    def _cut(self, offset: Offset, *, kept: int | None = None) -> None:
        parts, state = self._parts, self._parts.state
        if kept is None:
            kept = state.chain.floor(offset) + 1
        chain = Chain.of(state.chain.segments[:kept])
        active = chain.active
        batch = active.find_batch(offset, state.end.bytes_of(active))
        position = active.size if batch is None else int(batch.position)
        # Publish first, so that no reader reads beyond the new end of the file.
        parts.state = state.cut_at(Bound(offset, active, position), chain, min(state.start_offset, offset))
        self._retire_for_good(state.chain.segments[kept:])
        active.truncate_to(offset)
        self._rebuild_producers()
        parts.progress.truncate_to(offset)

    def _start_over(self, offset: Offset) -> None:
        parts = self._parts
        self._retire_for_good(parts.state.chain.segments)
        segment = parts.create_segment(offset)
        parts.state = parts.state.cut_at(Bound(offset, segment, 0), Chain.of([segment]), offset)
        self._rebuild_producers()
        parts.progress.restart_at(offset)

    def _rebuild_producers(self) -> None:
        parts, state = self._parts, self._parts.state
        if parts.first_dirty_offset is not None:
            parts.first_dirty_offset = min(parts.first_dirty_offset, state.end_offset)
        rebuild_producers(
            parts.producers,
            state.chain.segments,
            log_start_offset=state.start_offset,
            end_offset=state.end_offset,
            snapshots_at=state.chain.base_offsets[-2:],
        )
        parts.state = parts.with_first_unstable(state.without_aborts_from(state.end_offset))

    def _retire_for_good(self, segments: Sequence[Segment]) -> None:
        """Retire segments whose offsets will be used again. On return, the new file names are on disk.

        The newest segment is retired first, so that a crash leaves no gap.
        """
        if segments:
            self._retire(segments[::-1])
            self._parts.files.sync_directory(self._parts.directory)

    def _retire(self, segments: Sequence[Segment]) -> list[str]:
        parts, due = self._parts, self._deletion_due()
        parts.producers.removed(segment.base_offset for segment in segments)
        return [name for each in segments for name in parts.removal.retire(each, parts.directory, due)]

    def _deletion_due(self) -> Timestamp:
        return Timestamp(self._parts.clock() + self._parts.config.file_delete_delay_ms)

    def _move_start(self, offset: Offset) -> None:
        parts = self._parts
        if offset > parts.state.start_offset:
            parts.epochs.truncate_from_start(offset)
            parts.producers.start_moved(offset)
            parts.state = parts.with_first_unstable(parts.state.started_at(offset))
