"""One partition's log: the embedded engine's `storage.engine.Partition`.

Invariants, each changed in one place only:

* `_end` is the log end: everything below it is in the files, whole batches alone. Readers never look beyond it.
* log start <= high watermark <= log end, and recovery point <= log end.
* the last segment of the chain is active; all others are trimmed and never change until they are removed.

Three modules, each a class on top of the one before: `readable` looks, `appending` appends, and here is what takes away
and replaces. One lock guards changes; readers hold none: they take `_end`, then `_chain`, both immutable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from storage.config.topic import TopicConfig
from storage.disk.names import SegmentFileState
from storage.errors import (
    OffsetOutOfRangeError,
    PartitionOfflineError,
    PolicyViolationError,
)
from storage.log.appending import GrowingLog
from storage.log.read import Bound
from storage.log.replay import rebuild_producers
from storage.log.roll import segment_settings
from storage.model import (
    NO_LEADER_EPOCH,
    Offset,
    Timestamp,
)
from storage.segment.chain import Chain, aborted_spans
from storage.segment.segment import Segment
from storage.validation.batches import AppendRules

_LOGGER = logging.getLogger(__name__)


class Log(GrowingLog):
    """See the module's text. Made by `storage.recovery.load.load_log`."""

    def update_config(self, config: TopicConfig) -> None:
        """Work by these settings from now on; what is fixed for a segment takes effect with the next one."""
        with self._lock:
            self._config = config
            self._rules = AppendRules.of(config)

    def delete_records(self, before: Offset) -> Offset:
        if self._config.compacts and not self._config.deletes:
            raise PolicyViolationError(f"{self._partition}: cleanup.policy=compact does not delete by offset")
        with self._lock:
            self._check_writable()
            high_watermark = self.high_watermark
            target = high_watermark if before == -1 else before
            if not 0 <= target <= high_watermark:
                raise OffsetOutOfRangeError(
                    target, self._log_start_offset, high_watermark, str(self._partition)
                )
            self._move_start(target)
            start = self._log_start_offset
        self._listeners.notify()
        return start

    def delete_oldest_segments(self, count: int, reason: str) -> list[str]:
        """Take the first `count` segments out of the log; the names their files had.

        The log start moves first. If none were left, a new segment is rolled first (and an empty one stays).
        The files are renamed `.deleted`, on disk too when this returns, and go in `remove_deleted_files` after
        file.delete.delay.ms.
        """
        began = self._clock()
        with self._lock:
            self._check_writable()
            if count >= len(self._chain.segments):
                if self._chain.active.size:
                    self._roll(self._end.offset, f"all of it goes: {reason}")
                count = len(self._chain.segments) - 1
            if count <= 0:
                return []
            doomed, kept = self._chain.segments[:count], self._chain.segments[count:]
            self._move_start(kept[0].base_offset)
            before = sum(segment.size for segment in self._chain.segments)
            self._chain = Chain.of(kept)
            names = self._retire(doomed)
        # Else they could come back after a power loss, and the log start with them: no checkpoint tells one that the
        # first segment's name tells.
        self._files.sync_directory(self._directory)
        _LOGGER.info(
            "%s: deleted %s: %s; %d -> %d bytes (%d ms)",
            self._partition,
            ", ".join(f"{segment.base_offset:020}" for segment in doomed),
            reason,
            before,
            sum(segment.size for segment in kept),
            self._clock() - began,
        )
        self._listeners.notify()
        return names

    def new_cleaned_segment(self, base_offset: Offset) -> Segment:
        """Make an empty `.cleaned` segment, to be filled and then put into the log by `replace_segments`."""
        return Segment.create(
            self._directory,
            base_offset,
            files=self._files,
            settings=segment_settings(self._config, self._random)._replace(preallocated_bytes=0),
            clock=self._clock,
            state=SegmentFileState.CLEANED,
        )

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> bool:
        """Put the closed and flushed `.cleaned` segment `new` in the place of `old`, neighbours none of which is active.

        A crash at any step leaves the old ones or the new one: its files become `.swap` (from here on recovery
        brings it in), the old ones `.deleted`, then the `.swap` goes. False, with nothing changed, when one of
        `old` has left the log meanwhile.

        OSError: the old ones are still in place, and `new` may be discarded. PartitionOfflineError: they may not all
        be; `new` must stay as it stands, for loading the log again completes what was begun.
        """
        with self._lock:
            self._check_writable()
            segments = self._chain.segments
            if not set(old) <= set(segments[:-1]):
                return False
            self._rename_segment(new, SegmentFileState.SWAP)
            self._files.sync_directory(self._directory)
            try:
                self._put_in_place(old, new)
            except BaseException as error:
                self.mark_offline(f"replacing segments failed: {error}")
                raise PartitionOfflineError(f"{self._partition}: {self._offline}") from error
            self._chain = Chain.of([new, *(s for s in segments if s not in set(old))])
            self._reader.forget()
            self._aborted = aborted_spans(self._chain.segments)
            self._rewrites += 1
        self._listeners.notify()
        return True

    def _put_in_place(self, old: Sequence[Segment], new: Segment) -> None:
        due = Timestamp(self._clock() + self._config.file_delete_delay_ms)
        for segment in old:
            stays = segment.base_offset == new.base_offset
            self._removal.retire(segment, self._directory, due, keep_snapshot=stays)
            if not stays:
                self._producers.removed([segment.base_offset])
        self._rename_segment(new, SegmentFileState.LIVE)
        self._files.sync_directory(self._directory)

    def discard_segment(self, cleaned: Segment) -> None:
        """Delete a `.cleaned` segment that will not be put into the log; some of its files may be `.swap` already."""
        cleaned.close()
        for name in cleaned.file_names():
            stem = name.removesuffix(cleaned.state.value)
            for state in (SegmentFileState.CLEANED, SegmentFileState.SWAP):
                with suppress(FileNotFoundError):
                    self._files.unlink(self._directory / (stem + state.value))

    def _rename_segment(self, segment: Segment, state: SegmentFileState) -> None:
        for name in segment.file_names():
            final = name.removesuffix(segment.state.value) + state.value
            self._files.rename(self._directory / name, self._directory / final)
        segment.renamed(state)

    def remove_deleted_files(self, now: Timestamp) -> list[str]:
        """Unlink what was deleted file.delete.delay.ms before `now` or earlier; the names."""
        with self._lock:
            return self._removal.remove_due(self._directory, now)

    def truncate_to(self, offset: Offset, reason: str = "asked for") -> None:
        """Drop everything from the batch that holds `offset` on; the log then ends at `offset` (kafka-storage.md#truncation)."""
        before, began = self._extent(), self._clock()
        with self._lock:
            self._check_writable()
            self._epochs.truncate_from_end(offset)
            self._noted_epoch = self._latest_epoch()
            if offset < self._chain.base_offsets[0]:
                self._start_over(offset)
            elif offset < self._end.offset:
                self._cut(offset)
        self._tell_truncation(before, began, reason)
        self._listeners.notify()

    def truncate_fully_and_start_at(self, offset: Offset, reason: str = "asked for") -> None:
        """Drop everything; the empty log begins and ends at `offset`."""
        before, began = self._extent(), self._clock()
        with self._lock:
            self._check_writable()
            self._epochs.clear()
            self._noted_epoch = NO_LEADER_EPOCH
            self._start_over(offset)
        self._tell_truncation(before, began, reason)
        self._listeners.notify()

    def _extent(self) -> tuple[Offset, int]:
        """The log end, and the bytes up to there."""
        return self._end.offset, sum(segment.size for segment in self._chain.segments)

    def _tell_truncation(self, before: tuple[Offset, int], began: Timestamp, reason: str) -> None:
        after = self._extent()
        _LOGGER.info(
            "%s: truncated from offset %d to %d: %s; %d -> %d bytes (%d ms)",
            self._partition,
            before[0],
            after[0],
            reason,
            before[1],
            after[1],
            self._clock() - began,
        )

    def _cut(self, offset: Offset) -> None:
        kept = self._chain.floor(offset) + 1
        doomed = self._chain.segments[kept:]
        self._chain = Chain.of(self._chain.segments[:kept])
        self._retire_for_good(doomed)
        active = self._chain.active
        active.truncate_to(offset)
        self._end = Bound(offset, active, active.size)
        self._log_start_offset = min(self._log_start_offset, offset)
        self._after_truncation(offset)
        self._durability.truncate_to(offset)

    def _start_over(self, offset: Offset) -> None:
        self._retire_for_good(self._chain.segments)
        segment = self._create_segment(offset)
        self._chain = Chain.of([segment])
        self._end = Bound(offset, segment, 0)
        self._log_start_offset = offset
        self._after_truncation(offset)
        self._durability.restart_at(offset)

    def _after_truncation(self, offset: Offset) -> None:
        self._reader.forget()
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self._aborted = tuple(span for span in self._aborted if span.last_offset < offset)
        rebuild_producers(
            self._producers,
            self._chain.segments,
            log_start_offset=self._log_start_offset,
            end_offset=offset,
            snapshots_at=self._chain.base_offsets[-2:],
        )
        self._publish_stable()
        if self._high_watermark is not None:
            self._high_watermark = max(self._log_start_offset, min(self._high_watermark, offset))

    def _retire_for_good(self, doomed: Sequence[Segment]) -> None:
        """Retire segments whose offsets will be given again: no crash may bring them back beside the new ones."""
        if doomed:
            self._retire(doomed)
            self._files.sync_directory(self._directory)

    def _retire(self, doomed: Sequence[Segment]) -> list[str]:
        self._reader.forget()
        due = Timestamp(self._clock() + self._config.file_delete_delay_ms)
        self._producers.removed(segment.base_offset for segment in doomed)
        return [name for segment in doomed for name in self._removal.retire(segment, self._directory, due)]

    def _move_start(self, offset: Offset) -> None:
        if offset > self._log_start_offset:
            self._log_start_offset = offset
            self._epochs.truncate_from_start(offset)
            self._producers.start_moved(offset)
            self._aborted = tuple(span for span in self._aborted if span.last_offset >= offset)
            self._publish_stable()

    def rename(self, directory: Path) -> None:
        """Rename the partition's directory; its files are found there from now on."""
        with self._lock:
            self._files.rename(self._directory, directory)
            self._directory = directory
            for segment in self._chain.segments:
                segment.moved(directory)
            self._epochs.moved(directory)
            self._producers.moved(directory)
