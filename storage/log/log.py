"""One partition's log: the embedded engine's `storage.engine.Partition`.

Invariants, each changed in one place only:

* `_end` is the log end: everything below it is in the files, whole batches alone. Readers never look beyond it.
* log start <= high watermark <= log end, and recovery point <= log end.
* the last segment of the chain is active; all others are trimmed and never change until they are removed.

One lock guards changes. Readers (`storage.log.readable`) hold no lock: they take `_end`, then `_chain`, both immutable. What waits for the
disk (fsync) does so outside the lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

from storage.codec.batch import (
    CURRENT_MAGIC,
    TIMESTAMP_TYPE_MASK,
    assign_offsets,
    set_append_time,
    set_max_timestamp,
)
from storage.config.topic import TopicConfig
from storage.disk.names import SegmentFileKind, SegmentFileState, segment_file
from storage.errors import (
    OffsetOutOfRangeError,
    PartitionOfflineError,
    PolicyViolationError,
    ReadOnlyError,
)
from storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from storage.log.aborted import aborted_spans
from storage.log.append import AppendRules, Incoming, check_as_follower, check_as_leader, check_times
from storage.log.chain import Chain
from storage.log.conform import conform
from storage.log.producers import NOTHING_PENDING, Pending
from storage.log.read import Bound
from storage.log.readable import LogState, ReadableLog, SmallFiles, Surroundings
from storage.log.replay import rebuild_producers
from storage.log.roll import RollParameters, draw_jitter, roll_reason
from storage.log.segment import PlacedBatch, Segment, SegmentSettings
from storage.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Appended,
    Offset,
    Timestamp,
    TimestampType,
)
from storage.producers.append import Origin
from storage.producers.entry import ProducerEntry, SequencedBatch

_LOGGER = logging.getLogger(__name__)


class Log(ReadableLog):
    """See the module's text. Made by `storage.recovery.load.load_log`."""

    def __init__(
        self,
        directory: Path,
        state: LogState,
        surroundings: Surroundings,
        *,
        config: TopicConfig,
        small_files: SmallFiles,
    ) -> None:
        super().__init__(directory, state, surroundings, config=config, small_files=small_files)
        self._lock = threading.Lock()
        self._clock = surroundings.clock
        self._random = surroundings.random
        self._removal = small_files.removal
        self._rules = AppendRules.of(config)
        self._noted_epoch = self._latest_epoch()
        self._closed = False

    # Appending.

    def append(
        self,
        batches: bytearray,
        *,
        durable: bool = False,
        encoded_here: bool = False,
        origin: Origin = Origin.CLIENT,
    ) -> Appended:
        """See `storage.engine.Partition.append`; a coordinator's append may bring control batches."""
        now, rules = self._clock(), self._rules
        incoming = check_as_leader(batches, rules, origin)
        if encoded_here and not rules.looks_into_records and rules.codec is None:
            check_times(incoming, rules, now)
        else:
            conformed = conform(batches, incoming, rules, now)
            if conformed is not batches:
                batches, incoming = conformed, check_as_leader(conformed, rules, origin)
        with self._lock:
            self._check_writable()
            repeat = self._producers.duplicate(incoming) if origin is Origin.CLIENT else None
            if repeat is not None:
                return self._answer_duplicate(repeat)
            base_offset = self._end.offset
            pending = self._check_producers(batches, incoming, now, origin)
            self._note_epoch(self._leader_epoch, base_offset)
            self._write(batches, self._stamp(batches, incoming, now), base_offset, now)
            self._finish(pending)
            end_offset = self._end.offset
        self._listeners.notify()
        if durable or self.unflushed_records >= self._config.flush_messages:
            self.flush(end_offset)
        return Appended(
            base_offset=base_offset,
            last_offset=Offset(end_offset - 1),
            append_time=now if self._rules.stamps_append_time else NO_TIMESTAMP,
            log_start_offset=self._log_start_offset,
        )

    def append_as_follower(self, batches: bytearray) -> None:
        """Append what a leader already gave offsets and epochs: they ascend, from the log end on, perhaps with gaps.

        Raises InvalidRecordError, PartitionOfflineError, ReadOnlyError, OSError; nothing is kept then.
        """
        with self._lock:
            self._check_writable()
            incoming = check_as_follower(batches, self._end.offset)
            pending = self._producers.check(batches, incoming, Origin.REPLICATION)
            for batch in incoming:
                self._note_epoch(batch.leader_epoch, Offset(batch.base_offset))
            placed = [PlacedBatch(b.size_bytes, b.last_offset, b.max_timestamp) for b in incoming]
            self._write(batches, placed, first_offset(incoming), self._clock())
            self._finish(pending)
        self._listeners.notify()

    def _stamp(self, batches: bytearray, incoming: Sequence[Incoming], now: Timestamp) -> list[PlacedBatch]:
        """Give the batches their offsets, leader epoch and, where the topic says so, time."""
        offset: int = self._end.offset
        placed = []
        for batch in incoming:
            max_timestamp = batch.max_timestamp
            if self._rules.stamps_append_time:
                set_append_time(batches, batch.position, now)
                max_timestamp = now
            elif batch.attributes & TIMESTAMP_TYPE_MASK:
                set_max_timestamp(batches, batch.position, max_timestamp, TimestampType.CREATE_TIME)
            assign_offsets(batches, batch.position, base_offset=offset, leader_epoch=self._leader_epoch)
            offset += batch.records
            placed.append(PlacedBatch(batch.size_bytes, offset - 1, max_timestamp))
        return placed

    def _write(
        self, batches: bytearray, placed: Sequence[PlacedBatch], base_offset: Offset, now: Timestamp
    ) -> None:
        """Roll where it is due, write, and publish the new end."""
        active = self._end.segment
        last_offset = placed[-1].last_offset
        parameters = RollParameters(
            size_bytes=active.size,
            base_offset=active.base_offset,
            first_timestamp=active.first_timestamp,
            created_ms=active.created_ms,
            index_full=active.index_full,
            max_segment_bytes=self._rules.max_segment_bytes,
            max_wait_ms=self._rules.max_segment_ms - active.settings.jitter_ms,
            append_bytes=len(batches),
            append_last_offset=last_offset,
            append_max_timestamp=max([batch.max_timestamp for batch in placed]),
            now=now,
        )
        if roll_reason(parameters) is not None:
            active = self._roll(max(self._end.offset, base_offset))
        try:
            active.append(batches, placed)
        except PartitionOfflineError as error:
            self.mark_offline(str(error))
            raise
        self._end = Bound(Offset(last_offset + 1), active, active.size)

    def _note_epoch(self, epoch: int, start_offset: Offset) -> None:
        if epoch not in (self._noted_epoch, NO_LEADER_EPOCH):
            self._epochs.assign(epoch, start_offset)
            self._noted_epoch = epoch

    def _latest_epoch(self) -> int:
        latest = self._epochs.latest
        return latest.epoch if latest else NO_LEADER_EPOCH

    def _check_producers(
        self, batches: bytearray, incoming: Sequence[Incoming], now: Timestamp, origin: Origin
    ) -> Pending:
        """Check the batches' producers, with the offsets and times that `_stamp` will give them."""
        if not any(batch.producer_id != NO_PRODUCER_ID for batch in incoming):
            return NOTHING_PENDING
        offset: int = self._end.offset
        stamped = []
        for batch in incoming:
            last_offset = offset + batch.records - 1
            timestamp = now if self._rules.stamps_append_time else batch.max_timestamp
            stamped.append(
                batch._replace(base_offset=offset, last_offset=last_offset, max_timestamp=timestamp)
            )
            offset = last_offset + 1
        return self._producers.check(batches, stamped, origin)

    def _finish(self, pending: Pending) -> None:
        """Remember what was written of its producers."""
        try:
            for span in self._producers.take_in(pending, self._end.offset):
                self._end.segment.add_aborted(span)
                self._aborted = (*self._aborted, span)
        except OSError as error:
            # The batch is in the log and stays; recovery makes the index anew.
            self.mark_offline(f"writing the transaction index failed: {error}")
            raise
        finally:
            self._publish_stable()

    def _answer_duplicate(self, repeat: SequencedBatch) -> Appended:
        return Appended(
            base_offset=repeat.base_offset,
            last_offset=repeat.last_offset,
            append_time=NO_TIMESTAMP,
            log_start_offset=self._log_start_offset,
            duplicate=True,
        )

    def producers(self) -> list[ProducerEntry]:
        """Who wrote here and is remembered; a snapshot."""
        with self._lock:
            return list(self._producers.state)

    def remove_expired_producers(self, now: Timestamp) -> None:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        with self._lock:
            self._producers.state.remove_expired(now)

    def roll(self) -> Offset:
        """Close the active segment and start another at the log end; its base offset.

        An empty active segment starts over in place.
        """
        with self._lock:
            self._check_writable()
            return self._roll(self._end.offset).base_offset

    def _roll(self, base_offset: Offset) -> Segment:
        old = self._chain.active
        if base_offset == old.base_offset:
            old.reset()
            return old
        try:
            segment = self._create_segment(base_offset)
            self._producers.state.end_offset = base_offset
            self._producers.take(base_offset)
            old.deactivate()
        except OSError as error:
            self._undo_roll(old, base_offset, error)
            raise
        self._seal(old, base_offset)
        # Readers take the end before the chain: so the chain must be the first to know a segment.
        self._chain = self._chain.with_active(segment)
        self._end = Bound(self._end.offset, segment, 0)
        return segment

    def _seal(self, old: Segment, end_offset: Offset) -> None:
        try:
            self._durability.sealed(old, end_offset)
        except OSError as error:
            self.mark_offline(f"flushing failed: {error}")
            raise

    def _undo_roll(self, old: Segment, base_offset: Offset, cause: OSError) -> None:
        """Go on with `old`. A new segment must not stay behind, also not after a crash: it would hide what follows."""
        try:
            path = self._directory / segment_file(base_offset, SegmentFileKind.LOG)
            if self._files.exists(path):
                self._files.unlink(path)
                self._files.sync_directory(self._directory)
            old.activate()
        except OSError as error:
            self.mark_offline(f"a roll failed ({cause}) and could not be undone: {error}")

    def _create_segment(self, base_offset: Offset) -> Segment:
        for kind in SegmentFileKind:
            path = self._directory / segment_file(base_offset, kind)
            if kind is not SegmentFileKind.SNAPSHOT and self._files.exists(path):
                # Left from a roll that did not come to its end.
                self._files.unlink(path)
        return Segment.create(
            self._directory,
            base_offset,
            files=self._files,
            settings=segment_settings(self._config, self._random),
            clock=self._clock,
        )

    # To disk, and away.

    def flush(self, up_to: Offset | None = None) -> None:
        """Everything below `up_to` (None: everything) is on disk when this returns (blocking).

        OSError takes the log offline.
        """
        if self._files.read_only:
            return
        self._check_writable()
        end, chain = self._end, self._chain
        target = end.offset if up_to is None else min(up_to, end.offset)
        try:
            self._producers.sync()
            self._durability.flush(self._directory, chain, target, self._clock())
        except OSError as error:
            self.mark_offline(f"flushing failed: {error}")
            raise

    def sync(self) -> None:
        self.flush()

    def mark_offline(self, reason: str) -> None:
        """Take no more writes until it is loaded anew; reads go on. The first reason stays."""
        self._offline = self._offline or reason
        _LOGGER.error("%s: offline: %s", self._partition, reason)

    def close(self) -> None:
        """Trim, flush and close every file (blocking). Idempotent. OSError: it was not closed in order."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._offline is None and not self._files.read_only:
                    self._close_in_order()
            finally:
                for segment in self._chain.segments:
                    segment.close()

    def _close_in_order(self) -> None:
        active = self._chain.active
        active.deactivate()
        self._producers.take(self._end.offset)
        self._producers.sync()
        self._epochs.flush()
        self._durability.flush_all(self._directory, self._chain, self._end.offset, self._clock())

    # Changing.

    def update_config(self, config: TopicConfig) -> None:
        """Work by these settings from now on; what is fixed for a segment takes effect with the next one."""
        with self._lock:
            self._config = config
            self._rules = AppendRules.of(config)

    def update_high_watermark(self, offset: Offset) -> Offset:
        """Move the high watermark, within [log start, log end]; where it now is. For logs with more replicas."""
        with self._lock:
            self._high_watermark = Offset(max(self._log_start_offset, min(offset, self._end.offset)))
            high_watermark = self._high_watermark
            self._publish_stable()
        self._listeners.notify()
        return high_watermark

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
        The files are renamed `.deleted` and go in `remove_deleted_files` after file.delete.delay.ms.
        """
        with self._lock:
            self._check_writable()
            if count >= len(self._chain.segments):
                if self._chain.active.size:
                    self._roll(self._end.offset)
                count = len(self._chain.segments) - 1
            if count <= 0:
                return []
            doomed, kept = self._chain.segments[:count], self._chain.segments[count:]
            self._move_start(kept[0].base_offset)
            self._chain = Chain.of(kept)
            names = self._retire(doomed)
        _LOGGER.info("%s: removed %s: %s", self._partition, ", ".join(names), reason)
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
        """
        with self._lock:
            self._check_writable()
            segments = self._chain.segments
            if not set(old) <= set(segments[:-1]):
                return False
            self._rename_segment(new, SegmentFileState.SWAP)
            self._files.sync_directory(self._directory)
            due = Timestamp(self._clock() + self._config.file_delete_delay_ms)
            for segment in old:
                stays = segment.base_offset == new.base_offset
                self._removal.retire(segment, self._directory, due, keep_snapshot=stays)
                if not stays:
                    self._producers.removed([segment.base_offset])
            self._rename_segment(new, SegmentFileState.LIVE)
            self._files.sync_directory(self._directory)
            self._reader.forget()
            self._chain = Chain.of([new, *(s for s in segments if s not in set(old))])
            self._aborted = aborted_spans(self._chain.segments)
        self._listeners.notify()
        return True

    def discard_segment(self, cleaned: Segment) -> None:
        """Delete a `.cleaned` segment that will not be put into the log."""
        cleaned.close()
        for name in cleaned.file_names():
            self._files.unlink(self._directory / name)

    def _rename_segment(self, segment: Segment, state: SegmentFileState) -> None:
        for name in segment.file_names():
            final = name.removesuffix(segment.state.value) + state.value
            self._files.rename(self._directory / name, self._directory / final)
        segment.renamed(state)

    def remove_deleted_files(self, now: Timestamp) -> list[str]:
        """Unlink what was deleted file.delete.delay.ms before `now` or earlier; the names."""
        with self._lock:
            return self._removal.remove_due(self._directory, now)

    def truncate_to(self, offset: Offset) -> None:
        """Drop everything from the batch that holds `offset` on; the log then ends at `offset`."""
        with self._lock:
            self._check_writable()
            self._epochs.truncate_from_end(offset)
            self._noted_epoch = self._latest_epoch()
            if offset < self._chain.base_offsets[0]:
                self._start_over(offset)
            elif offset < self._end.offset:
                self._cut(offset)
        self._listeners.notify()

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything; the empty log begins and ends at `offset`."""
        with self._lock:
            self._check_writable()
            self._epochs.clear()
            self._noted_epoch = NO_LEADER_EPOCH
            self._start_over(offset)
        self._listeners.notify()

    def _cut(self, offset: Offset) -> None:
        kept = self._chain.floor(offset) + 1
        doomed = self._chain.segments[kept:]
        self._chain = Chain.of(self._chain.segments[:kept])
        self._retire(doomed)
        active = self._chain.active
        active.truncate_to(offset)
        self._end = Bound(offset, active, active.size)
        self._log_start_offset = min(self._log_start_offset, offset)
        self._after_truncation(offset)
        self._durability.truncate_to(offset)

    def _start_over(self, offset: Offset) -> None:
        doomed = self._chain.segments
        self._retire(doomed)
        segment = self._create_segment(offset)
        self._chain = Chain.of([segment])
        self._end = Bound(offset, segment, 0)
        self._log_start_offset = offset
        self._after_truncation(offset)
        self._durability.restart_at(offset)

    def _after_truncation(self, offset: Offset) -> None:
        self._reader.forget()
        self._aborted = tuple(span for span in self._aborted if span.last_offset < offset)
        rebuild_producers(
            self._producers,
            self._chain.segments,
            log_start_offset=self._log_start_offset,
            end_offset=offset,
        )
        self._publish_stable()
        if self._high_watermark is not None:
            self._high_watermark = max(self._log_start_offset, min(self._high_watermark, offset))

    def _retire(self, doomed: Sequence[Segment]) -> list[str]:
        self._reader.forget()
        due = Timestamp(self._clock() + self._config.file_delete_delay_ms)
        self._producers.removed(segment.base_offset for segment in doomed)
        return [name for segment in doomed for name in self._removal.retire(segment, self._directory, due)]

    def _move_start(self, offset: Offset) -> None:
        if offset > self._log_start_offset:
            self._log_start_offset = offset
            self._epochs.truncate_from_start(offset)
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

    def _check_writable(self) -> None:
        if self._offline is not None or self._closed:
            raise PartitionOfflineError(f"{self._partition}: {self._offline or 'closed'}")
        if self._files.read_only:
            raise ReadOnlyError(f"{self._partition}: opened read-only")


def first_offset(incoming: Sequence[Incoming]) -> Offset:
    """Where an append begins. A compressed batch of an old format tells only its last offset: then as early as fits."""
    first = incoming[0]
    if first.magic < CURRENT_MAGIC:
        return Offset(max(0, first.last_offset - MAX_RELATIVE_OFFSET))
    return Offset(first.base_offset)


def segment_settings(config: TopicConfig, random: Random) -> SegmentSettings:
    """What a segment made under `config` is fixed to."""
    return SegmentSettings(
        index_interval_bytes=config.index_interval_bytes,
        index_bytes=config.segment_index_bytes,
        preallocated_bytes=config.effective_segment_bytes if config.preallocate else 0,
        jitter_ms=draw_jitter(
            segment_jitter_ms=config.segment_jitter_ms, segment_ms=config.segment_ms, random=random
        ),
    )
