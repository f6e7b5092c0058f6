"""The part of a log that grows: appends, rolls, flushes and the close.

One lock guards changes. What waits for the disk (fsync) does so outside the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from storage.codec.batch import assign_offsets, assign_plain, set_append_time, set_max_timestamp
from storage.codec.binary.fields import TIMESTAMP_TYPE_MASK
from storage.config.topic import TopicConfig
from storage.disk.names import SegmentFileKind, segment_file
from storage.errors import (
    PartitionGoneError,
    PartitionOfflineError,
    ReadOnlyError,
)
from storage.log.durability import Reach
from storage.log.producers import NOTHING_PENDING, Pending
from storage.log.read import Bound
from storage.log.readable import LogState, ReadableLog, SmallFiles, Surroundings
from storage.log.roll import RollParameters, RollReason, goes_on, roll_reason, segment_settings
from storage.log.room import Room
from storage.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Appended,
    Offset,
    ProducerId,
    Timestamp,
    TimestampType,
)
from storage.producers.append import Origin
from storage.producers.entry import ProducerEntry
from storage.producers.verification import VerificationGuard
from storage.segment.chain import Chain
from storage.segment.segment import Segment
from storage.segment.sparse import Placed, PlacedBatch
from storage.validation.batches import (
    AppendRules,
    Incoming,
    check_as_follower,
    check_as_leader,
    check_times,
    first_offset,
    without,
)
from storage.validation.conversion import conform

_LOGGER = logging.getLogger(__name__)


class GrowingLog(ReadableLog):
    """See the module's text; `storage.log.log.Log` adds what takes away and replaces."""

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
        self._clock = surroundings.clock
        self._random = surroundings.random
        self._removal = small_files.removal
        self._flusher = surroundings.flusher
        self._rules = AppendRules.of(config)
        self._noted_epoch = self._latest_epoch()
        self._closed = False
        self.room = Room()
        """Whether the disk has room for more records; its keeper gives the log the one of its data directory."""

    # Appending.

    def append(
        self,
        batches: bytearray,
        *,
        durable: bool = False,
        encoded_here: bool = False,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """See `storage.engine.Partition.append`; a coordinator's append may bring control batches.

        `guard`: what `begin_verification` gave, where transactions are verified.
        """
        now, rules = self._clock(), self._rules
        if encoded_here and rules.takes_own_as_they_are and len(batches) <= rules.max_segment_bytes:
            appended = self._append_own(batches, now, rules)
            if appended is not None:
                self._appended(durable, appended.last_offset)
                return appended
        incoming: Sequence[Incoming] = check_as_leader(batches, rules, origin)
        if encoded_here and not rules.looks_into_records and rules.codec is None:
            check_times(incoming, rules, now)
        else:
            batches, true = conform(batches, incoming, rules, now)
            incoming = check_as_leader(batches, rules, origin) if true is None else true
        appended = self._append_checked(batches, incoming, now, origin, guard)
        self._appended(durable, appended.last_offset)
        return appended

    def _append_checked(
        self,
        batches: bytearray,
        incoming: Sequence[Incoming],
        now: Timestamp,
        origin: Origin,
        guard: VerificationGuard | None,
    ) -> Appended:
        """Append batches that may come in, but for those that their producers brought before."""
        with self._lock:
            self._check_writable()
            base_offset = self._end.offset
            pending = self._check_producers(batches, incoming, now, origin, guard)
            if pending.repeats:
                batches, incoming = without(batches, incoming, pending.repeats)
            if not incoming:
                return self._answer_repeats(pending)
            self._note_epoch(self._leader_epoch, base_offset)
            self._write(batches, self._stamp(batches, incoming, now), base_offset, now)
            self._finish(pending)
            return Appended(
                base_offset=base_offset,
                last_offset=Offset(self._end.offset - 1),
                append_time=now if self._rules.stamps_append_time else NO_TIMESTAMP,
                log_start_offset=self._log_start_offset,
            )

    def _append_own(self, batches: bytearray, now: Timestamp, rules: AppendRules) -> Appended | None:
        """Append plain batches of this process's codec, for which most rules have nothing to say; None for others."""
        with self._lock:
            self._check_writable()
            base_offset, epoch = self._end.offset, self._leader_epoch
            placed = assign_plain(
                batches,
                base_offset=base_offset,
                leader_epoch=epoch,
                max_batch_bytes=rules.max_message_bytes,
                latest_timestamp=now + rules.after_max_ms,
            )
            if not placed:
                return None
            if epoch != self._noted_epoch:
                self._note_epoch(epoch, base_offset)
            self._write(batches, placed, base_offset, now)
            end_offset = self._end.offset
            self._producers.passed(end_offset)
            if self._first_unstable is not None:
                self._publish_stable()  # The high watermark may have passed a marker; nothing has begun.
        return Appended(base_offset, Offset(end_offset - 1), NO_TIMESTAMP, self._log_start_offset)

    def _appended(self, durable: bool, last_offset: Offset) -> None:
        """Notify those who wait for records, and put on disk what has to be there now."""
        self._listeners.notify()
        # Counted only where the setting asks for it: by default it is as good as never.
        flush_messages = self._config.flush_messages
        if durable or (flush_messages <= last_offset + 1 and self.unflushed_records >= flush_messages):
            self._flush(Offset(last_offset + 1), self._everything)

    def append_as_follower(self, batches: bytearray) -> None:
        """Append what a leader already gave offsets and epochs: they ascend, from the log end on, perhaps with gaps.

        Raises InvalidRecordError, PartitionOfflineError, ReadOnlyError, OSError; nothing is kept then.
        """
        with self._lock:
            self._check_writable()
            incoming = check_as_follower(batches, self._end.offset)
            pending = self._producers.check_as_follower(batches, incoming)
            for batch in incoming:
                self._note_epoch(batch.leader_epoch, Offset(batch.base_offset))
            placed = [PlacedBatch(b.size_bytes, b.last_offset, b.max_timestamp) for b in incoming]
            self._write(batches, placed, first_offset(incoming), self._clock())
            self._finish(pending)
        self._listeners.notify()

    def _stamp(self, batches: bytearray, incoming: Sequence[Incoming], now: Timestamp) -> list[PlacedBatch]:
        """Give the batches their offsets, leader epoch and, where the topic says so, time (kafka-storage.md#offset-assignment)."""
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
        self, batches: bytearray, placed: Sequence[Placed], base_offset: Offset, now: Timestamp
    ) -> None:
        """Roll where it is due, write, and publish the new end."""
        if self.room.kept_back:
            raise self.room.refusal(self._directory)
        active = self._end.segment
        _size, last_offset, max_timestamp = placed[-1]
        if len(placed) > 1:
            max_timestamp = max([timestamp for _size, _offset, timestamp in placed])
        reason = self._roll_reason(active, len(batches), last_offset, max_timestamp, now)
        if reason is not None:
            active = self._roll(max(self._end.offset, base_offset), reason.value)
        try:
            active.append(batches, placed)
        except PartitionOfflineError as error:
            self.mark_offline(str(error))
            raise
        self._end = Bound(Offset(last_offset + 1), active, active.size)

    def _roll_reason(
        self, active: Segment, append_bytes: int, last_offset: int, max_timestamp: int, now: Timestamp
    ) -> RollReason | None:
        rules, first_timestamp, base_offset = self._rules, active.first_timestamp, active.base_offset
        max_wait_ms = rules.max_segment_ms - active.settings.jitter_ms
        if first_timestamp >= 0 and goes_on(
            size_bytes=active.size + append_bytes,
            max_bytes=rules.max_segment_bytes,
            relative_offset=last_offset - base_offset,
            span_ms=max_timestamp - first_timestamp,
            max_wait_ms=max_wait_ms,
            index_full=active.index_full,
        ):
            return None
        return roll_reason(
            RollParameters(
                size_bytes=active.size,
                base_offset=base_offset,
                first_timestamp=first_timestamp,
                created_ms=active.created_ms,
                index_full=active.index_full,
                max_segment_bytes=rules.max_segment_bytes,
                max_wait_ms=max_wait_ms,
                append_bytes=append_bytes,
                append_last_offset=last_offset,
                append_max_timestamp=max_timestamp,
                now=now,
            )
        )

    def _note_epoch(self, epoch: int, start_offset: Offset) -> None:
        if epoch not in (self._noted_epoch, NO_LEADER_EPOCH):
            self._epochs.assign(epoch, start_offset)
            self._noted_epoch = epoch

    def _latest_epoch(self) -> int:
        latest = self._epochs.latest
        return latest.epoch if latest else NO_LEADER_EPOCH

    def _check_producers(
        self,
        batches: bytearray,
        incoming: Sequence[Incoming],
        now: Timestamp,
        origin: Origin,
        guard: VerificationGuard | None,
    ) -> Pending:
        """Check the batches' producers, with the offsets and times that `_stamp` will give them."""
        if not any(batch.producer_id != NO_PRODUCER_ID for batch in incoming):
            return NOTHING_PENDING
        return self._producers.check_as_leader(
            batches,
            incoming,
            origin,
            guard,
            end_offset=self._end.offset,
            append_time=now if self._rules.stamps_append_time else None,
        )

    def _finish(self, pending: Pending) -> None:
        """Remember what was written of its producers."""
        try:
            spans = self._producers.take_in(pending, self._end.offset)
            # Readers first: whatever becomes of the file, they must not take aborted records for committed ones.
            self._aborted = (*self._aborted, *spans)
            for span in spans:
                self._end.segment.add_aborted(span)
        except OSError as error:
            # The batch is in the log and stays; recovery rebuilds the index.
            self.mark_offline(f"writing the transaction index failed: {error}")
            raise
        finally:
            self._publish_stable()

    def _answer_repeats(self, pending: Pending) -> Appended:
        repeats = pending.repeats.values()
        return Appended(
            base_offset=min(repeat.base_offset for repeat in repeats),
            last_offset=max(repeat.last_offset for repeat in repeats),
            append_time=NO_TIMESTAMP,
            log_start_offset=self._log_start_offset,
            duplicate=True,
        )

    def producers(self) -> list[ProducerEntry]:
        """Who wrote here and is remembered; a snapshot."""
        with self._lock:
            return list(self._producers.state)

    def begin_verification(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard | None:
        """Begin to ask a producer's coordinator whether its transaction has this partition.

        The guard goes with the append, once the coordinator has said yes; None: the transaction is open already, nobody
        needs to be asked. Raises ProducerFencedError for an old epoch.
        """
        with self._lock:
            return self._producers.state.begin_verification(
                producer_id, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch
            )

    def remove_expired_producers(self, now: Timestamp) -> None:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        with self._lock:
            self._producers.state.remove_expired(now)

    def roll(self, reason: str = "asked for") -> Offset:
        """Close the active segment and start another at the log end; its base offset.

        An empty active segment starts over in place. `reason` is for the log.
        """
        with self._lock:
            self._check_writable()
            return self._roll(self._end.offset, reason).base_offset

    def _roll(self, base_offset: Offset, reason: str) -> Segment:
        old, began = self._chain.active, self._clock()
        if base_offset == old.base_offset:
            old.reset()
            return old
        try:
            # First: nobody recovers a segment behind which another one begins, or looks for its last index entries.
            old.deactivate()
            segment = self._create_segment(base_offset)
            self._producers.state.end_offset = base_offset
            self._producers.take(base_offset)
        except OSError as error:
            self._undo_roll(old, base_offset, error)
            raise
        self._seal(old, base_offset)
        # Readers take the end before the chain: so the chain must be the first to know a segment.
        self._chain = self._chain.with_active(segment)
        self._end = Bound(self._end.offset, segment, 0)
        self._flusher.hand(self.flush_sealed)
        _LOGGER.info(
            "%s: rolled %020d: %s; %d bytes, next is %020d (%d ms)",
            self._partition,
            old.base_offset,
            reason,
            old.size,
            base_offset,
            self._clock() - began,
        )
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
        chain, end_offset = self._everything()
        if up_to is None:
            self._flush(end_offset, self._everything)
        else:
            target = min(up_to, end_offset)
            self._flush(target, lambda: (chain, target))

    def flush_sealed(self) -> None:
        """Put on disk what rolls closed (blocking), in the background: a failure takes the log offline, and that is told."""
        if self._offline is None and not self._closed:
            chain = self._chain
            end_offset = chain.active.base_offset
            with suppress(OSError, PartitionOfflineError):
                self._flush(end_offset, lambda: (chain, end_offset))

    def _everything(self) -> tuple[Chain, Offset]:
        """The log end, and segments that reach it."""
        end_offset = self._end.offset
        return self._chain, end_offset

    def _flush(self, needed: Offset, reach: Reach) -> None:
        self._check_writable()

        def with_snapshots() -> tuple[Chain, Offset]:
            reached = reach()
            self._producers.sync()
            return reached

        try:
            self._durability.flush(self._directory, with_snapshots, needed, self._clock())
        except OSError as error:
            if self._offline is None:  # A topic may be deleted in the middle of it: that has its own report.
                self.mark_offline(f"flushing failed: {error}")
            raise

    def sync(self) -> None:
        self.flush()

    def mark_offline(self, reason: str) -> None:
        """Take no more writes until it is loaded again; reads go on. The first reason stays."""
        self.retire(reason)
        _LOGGER.error("%s: offline: %s", self._partition, reason)

    def retire(self, reason: str, *, gone: bool = False) -> None:
        """Go offline at its keeper's word, who has told why: `mark_offline` without a line in the daemon's log.

        `gone`: for good, for its topic is deleted.
        """
        self._gone = self._gone or gone
        self._offline = self._offline or reason

    def supersede(self) -> None:
        """Told when another log serves in its place: reads end too, for its files may be others by now."""
        self._gone = self._superseded = True

    def wake(self) -> None:
        """Let those who wait for more look again: nothing more will come, or it comes from another log."""
        self._listeners.notify()

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
                self.close_files()

    def close_files(self) -> None:
        """Free every descriptor and mapping: also those that readers made use of after the close."""
        for segment in self._chain.segments:
            segment.close()
        self._removal.close()

    def _close_in_order(self) -> None:
        active = self._chain.active
        active.deactivate()
        self._producers.take(self._end.offset)
        self._producers.sync()
        self._epochs.flush()
        self._durability.flush_all(self._directory, self._chain, self._end.offset, self._clock())

    def _check_writable(self) -> None:
        if self._offline is not None or self._closed:
            kind = PartitionGoneError if self._gone else PartitionOfflineError
            raise kind(f"{self._partition}: {self._offline or 'closed'}")
        if self._files.read_only:
            raise ReadOnlyError(f"{self._partition}: opened read-only")
