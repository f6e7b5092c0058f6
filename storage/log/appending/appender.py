"""Appends to a log, rolls it and flushes it. A single lock guards changes; fsync runs outside the lock."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from topicfs.storage.codec.batch import assign_offsets, assign_plain, set_append_time, set_max_timestamp
from topicfs.storage.codec.binary.fields import TIMESTAMP_TYPE_MASK
from topicfs.storage.codec.records import compress_batches
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.errors import InvalidRecordError, PartitionOfflineError
from topicfs.storage.log.appending.small_appends import write_small
from topicfs.storage.log.flush import FlushTarget
from topicfs.storage.log.life import Life, Role
from topicfs.storage.log.parts import LogParts
from topicfs.storage.log.producers import NOTHING_PENDING, Pending
from topicfs.storage.log.state import LogState
from topicfs.storage.model import (
    MAX_OFFSET,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Appended,
    Buffer,
    Offset,
    Timestamp,
    TimestampType,
    later,
)
from topicfs.storage.producers.append import Origin, VerificationGuard
from topicfs.storage.segment.chain import Chain
from topicfs.storage.segment.roll import RollReason, roll_reason, stays_active
from topicfs.storage.segment.segment import Segment
from topicfs.storage.segment.sparse import Placed, PlacedBatch
from topicfs.storage.validation.batches import (
    AppendRules,
    Incoming,
    check_as_follower,
    check_as_leader,
    check_times,
    drop_batches,
    first_offset,
    for_accepted,
)
from topicfs.storage.validation.conversion import convert

_LOGGER = logging.getLogger(__name__)

_new = tuple.__new__

LEADER_ROLL_REASONS = frozenset({RollReason.SIZE, RollReason.TIME})
"""Reasons for which only a leader rolls. A follower rolls where its leader did, so that their files are equal."""


class LogAppender:
    """Appends to a log, rolls it and flushes it."""

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def append(
        self,
        batches: bytearray,
        *,
        durable: bool = False,
        encoded_here: bool = False,
        accepted: bool = False,
        origin: Origin = Origin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append batches like `storage.engine.Partition.append`; a coordinator's append may contain control batches.

        `accepted`: the limits of the topic's settings do not apply. `guard`: the return value of
        `begin_verification`; without a guard, a batch may begin a transaction unverified.
        """
        now, rules = self._parts.clock(), self._parts.rules
        if accepted:
            rules = for_accepted(rules)
        if encoded_here and rules.accepts_own_batches:
            own = _compressed(batches, rules) if rules.codec else batches
            if own is not None and len(own) <= rules.max_segment_bytes:
                appended = self._append_own(own, now, rules)
                if appended is not None:
                    self._appended(durable, appended.last_offset)
                    return appended
        incoming: Sequence[Incoming] = check_as_leader(batches, rules, origin)
        if encoded_here and not rules.reads_records and rules.codec is None:
            check_times(incoming, rules, now)
        else:
            batches, true = convert(batches, incoming, rules, now)
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
        """Append batches that passed their checks, leaving out batches that their producers appended before."""
        parts = self._parts
        with parts.lock:
            parts.check_leads()
            base_offset = parts.state.end_offset
            pending = self._check_producers(batches, incoming, now, origin, guard)
            if pending.repeats:
                batches, incoming = drop_batches(batches, incoming, pending.repeats)
            if not incoming:
                return self._answer_repeats(pending)
            self._note_epoch(parts.leader_epoch, base_offset)
            state = self._write(batches, self._stamp(batches, incoming, now), base_offset, now)
            self._publish(state, pending)
            parts.counts.note_append(len(incoming), state.end_offset - base_offset, len(batches))
            return Appended(
                base_offset=base_offset,
                last_offset=Offset(state.end_offset - 1),
                append_time=now if parts.rules.stamps_append_time else NO_TIMESTAMP,
                log_start_offset=state.start_offset,
            )

    def _append_own(self, batches: bytearray, now: Timestamp, rules: AppendRules) -> Appended | None:
        """Append plain batches that this process encoded; return None if `_append_checked` has to append them."""
        parts = self._parts
        with parts.lock:
            if not parts.life.takes_appends:
                parts.check_leads()
            before = parts.state
            base_offset, active = before.end_offset, before.chain.segments[-1]
            placed = write_small(parts, batches, now, rules)
            if placed is not None:
                state = before.extended(Offset(placed[0] + 1), active.size, before.replicated)
            else:
                written = self._write_own(batches, now, rules)
                if written is None:
                    return None
                state = written
            end_offset = state.end_offset
            parts.producers.state.end_offset = end_offset
            # The high watermark may have moved past the end of a transaction; no transaction begins here.
            parts.state = state if state.first_unstable is None else parts.with_first_unstable(state)
        return _new(Appended, (base_offset, end_offset - 1, NO_TIMESTAMP, state.start_offset, False))

    def _write_own(self, batches: bytearray, now: Timestamp, rules: AppendRules) -> LogState | None:
        parts = self._parts
        base_offset, epoch = parts.state.end_offset, parts.leader_epoch
        placed = assign_plain(
            batches,
            base_offset=base_offset,
            leader_epoch=epoch,
            max_batch_bytes=rules.max_message_bytes,
            latest_timestamp=later(now, rules.after_max_ms),
        )
        if not placed:
            return None
        if epoch != parts.noted_epoch:
            self._note_epoch(epoch, base_offset)
        state = self._write(batches, placed, base_offset, now)
        parts.counts.note_append(len(placed), state.end_offset - base_offset, len(batches))
        active = state.chain.segments[-1]
        if (
            len(batches) < active.settings.index_interval_bytes
        ):  # After a larger append, the next one needs an index entry anyway.
            active.look_ahead(rules.max_segment_bytes, rules.max_segment_ms, placed[-1][1])
        return state

    def _appended(self, durable: bool, last_offset: Offset) -> None:
        """Notify the listeners; flush if `durable` is set or flush.messages requires it."""
        parts = self._parts
        parts.listeners.notify()
        # Count messages only if flush.messages is set: its default means never.
        flush_messages = parts.config.flush_messages
        if durable or (flush_messages <= last_offset + 1 and parts.unflushed_records >= flush_messages):
            self._flush(Offset(last_offset + 1), self._everything)

    def append_as_follower(self, batches: Buffer) -> None:
        """Append a leader's batches, all or none. Offsets may have gaps. Raises InvalidRecordError, OSError."""
        parts = self._parts
        with parts.lock:
            parts.life.check_writable()
            incoming = check_as_follower(batches, parts.state.end_offset)
            pending = parts.producers.check_as_follower(batches, incoming)
            placed = [PlacedBatch(b.size_bytes, b.last_offset, b.max_timestamp) for b in incoming]
            epochs, noted_epoch = parts.epochs.entries, parts.noted_epoch
            try:
                for batch in incoming:
                    self._note_epoch(batch.leader_epoch, Offset(batch.base_offset))
                state = self._write(batches, placed, first_offset(incoming), parts.clock())
            except BaseException:
                # Otherwise a retry would begin the first batch's epoch at the log end, although older records
                # have this epoch.
                parts.epochs.replace(epochs)
                parts.noted_epoch = noted_epoch
                raise
            self._publish(state, pending)
            active = state.chain.segments[-1]
            if (
                len(batches) < active.settings.index_interval_bytes
            ):  # After a larger append, the next one needs an index entry anyway.
                active.look_ahead(parts.rules.max_segment_bytes, parts.rules.max_segment_ms, placed[-1][1])
        parts.listeners.notify()

    def follow_epoch(self, epoch: int, start_offset: Offset) -> None:
        """Note a leader's epoch in which no record was written yet; it is on disk on return. Raises OSError."""
        with self._parts.lock:
            self._parts.life.check_writable()
            self._note_epoch(epoch, start_offset)

    def _stamp(self, batches: bytearray, incoming: Sequence[Incoming], now: Timestamp) -> list[PlacedBatch]:
        """Write offsets, leader epoch and, if set, append time into batches (kafka-storage.md#offset-assignment)."""
        parts = self._parts
        offset: int = parts.state.end_offset
        _check_last(offset + sum(batch.records for batch in incoming) - 1)
        placed = []
        for batch in incoming:
            max_timestamp = batch.max_timestamp
            if parts.rules.stamps_append_time:
                set_append_time(batches, batch.position, now)
                max_timestamp = now
            elif batch.attributes & TIMESTAMP_TYPE_MASK:
                set_max_timestamp(batches, batch.position, max_timestamp, TimestampType.CREATE_TIME)
            assign_offsets(batches, batch.position, base_offset=offset, leader_epoch=parts.leader_epoch)
            offset += batch.records
            placed.append(PlacedBatch(batch.size_bytes, offset - 1, max_timestamp))
        return placed

    def _write(
        self, batches: Buffer, placed: Sequence[Placed], base_offset: Offset, now: Timestamp
    ) -> LogState:
        """Write batches, after a roll if one is due; return the state to publish, with the new end."""
        parts = self._parts
        if parts.append_gate.closed:
            raise parts.append_gate.refusal(parts.directory)
        active = parts.state.chain.segments[-1]
        _size, last_offset, max_timestamp = placed[-1]
        _check_last(last_offset)
        if len(placed) > 1:
            max_timestamp = max([timestamp for _size, _offset, timestamp in placed])
        reason = self._roll_reason(active, len(batches), last_offset, max_timestamp, now)
        if reason is not None and (parts.life.role is not Role.FOLLOWER or reason not in LEADER_ROLL_REASONS):
            active = self._roll(max(parts.state.end_offset, base_offset), reason.value)
        try:
            active.append(batches, placed)
        except PartitionOfflineError as error:
            parts.mark_offline(str(error))
            raise
        state = parts.state
        return state.extended(Offset(last_offset + 1), active.size, state.replicated)

    def _roll_reason(
        self, active: Segment, append_bytes: int, last_offset: int, max_timestamp: int, now: Timestamp
    ) -> RollReason | None:
        rules, first_timestamp = self._parts.rules, active.first_timestamp
        if first_timestamp >= 0 and stays_active(
            size_bytes=active.size + append_bytes,
            max_bytes=rules.max_segment_bytes,
            relative_offset=last_offset - active.base_offset,
            span_ms=max_timestamp - first_timestamp,
            max_wait_ms=rules.max_segment_ms - active.settings.jitter_ms,
            index_full=active.index_full,
        ):
            return None
        return roll_reason(self._parts.roll_parameters(append_bytes, last_offset, max_timestamp, now))

    def _note_epoch(self, epoch: int, start_offset: Offset) -> None:
        if epoch not in (self._parts.noted_epoch, NO_LEADER_EPOCH):
            self._parts.epochs.assign(epoch, start_offset)
            self._parts.noted_epoch = epoch

    def _check_producers(
        self,
        batches: bytearray,
        incoming: Sequence[Incoming],
        now: Timestamp,
        origin: Origin,
        guard: VerificationGuard | None,
    ) -> Pending:
        """Check the producers of the batches, with the offsets and times that `_stamp` will write."""
        if not any(batch.producer_id != NO_PRODUCER_ID for batch in incoming):
            return NOTHING_PENDING
        return self._parts.producers.check_as_leader(
            batches,
            incoming,
            origin,
            guard,
            end_offset=self._parts.state.end_offset,
            append_time=now if self._parts.rules.stamps_append_time else None,
        )

    def _publish(self, state: LogState, pending: Pending) -> None:
        """Publish the state after a write, and note how the write changed the producers' transactions."""
        parts = self._parts
        spans = parts.producers.apply(pending, state.end_offset)
        if spans:
            state = state._replace(aborted=(*state.aborted, *spans))
        # Publish first: even if writing the index fails, readers must not take aborted records for committed
        # records.
        parts.state = parts.with_first_unstable(state)
        try:
            for span in spans:
                state.chain.active.add_aborted(span)
        except OSError as error:
            # The batch stays in the log, and recovery rebuilds the index.
            parts.mark_offline(f"writing the transaction index failed: {error}")
            raise

    def _answer_repeats(self, pending: Pending) -> Appended:
        repeats = pending.repeats.values()
        return Appended(
            base_offset=min(repeat.base_offset for repeat in repeats),
            last_offset=max(repeat.last_offset for repeat in repeats),
            append_time=NO_TIMESTAMP,
            log_start_offset=self._parts.state.start_offset,
            duplicate=True,
        )

    def remove_expired_producers(self, now: Timestamp) -> None:
        """Forget producers that have appended nothing for producer.id.expiration.ms."""
        with self._parts.lock:
            self._parts.producers.state.remove_expired(now)

    def roll(self, reason: str = "asked for", *, base_offset: Offset | None = None) -> Offset:
        """Begin a segment at `base_offset` (None: the log end). Return the base offset.

        If the active segment is empty, move this segment to `base_offset` instead.
        """
        with self._parts.lock:
            self._parts.life.check_writable()
            end_offset = self._parts.state.end_offset
            return self._roll(max(end_offset, base_offset or end_offset), reason).base_offset

    def roll_due(self, now: Timestamp) -> RollReason | None:
        """Return why a record written now, however small, would roll the log; None if it would not."""
        state = self._parts.state
        if not state.chain.active.size:
            return None
        return roll_reason(self._parts.roll_parameters(0, state.end_offset, now, now))

    def roll_if_due(self, now: Timestamp) -> None:
        """Roll the log if its active segment is older than the topic's settings allow. Raises OSError."""
        reason = self.roll_due(now)
        if reason is not None:
            self.roll(reason.value)

    def roll_locked(self, reason: str) -> None:
        """Begin a segment at the log end. The caller holds the log's lock."""
        self._roll(self._parts.state.end_offset, reason)

    def _roll(self, base_offset: Offset, reason: str) -> Segment:
        parts = self._parts
        old, began = parts.state.chain.active, parts.clock()
        if base_offset == old.base_offset:
            parts.as_closed = None
            old.reset()
            return old
        try:
            # Complete the old segment first: recovery skips a segment that another segment follows, and its
            # indexes would lack their last entries.
            old.deactivate()
            segment = parts.create_segment(base_offset)
            parts.producers.state.end_offset = base_offset
            parts.producers.take(base_offset)
        except OSError as error:
            self._undo_roll(old, base_offset, error)
            raise
        try:
            parts.progress.sealed(old, base_offset)
        except OSError as error:
            parts.mark_offline(f"flushing failed: {error}")
            raise
        parts.state = parts.state.rolled(segment)
        parts.counts.engine.rolls += 1
        parts.flusher.submit(self.flush_sealed)
        _LOGGER.info(
            "%s: rolled %020d: %s; %d bytes, next is %020d (%d ms)",
            parts.partition,
            old.base_offset,
            reason,
            old.size,
            base_offset,
            parts.clock() - began,
        )
        return segment

    def _undo_roll(self, old: Segment, base_offset: Offset, cause: OSError) -> None:
        """Make `old` active again, and delete the new segment from disk: after a crash it would hide records."""
        parts = self._parts
        parts.producers.state.end_offset = parts.state.end_offset
        try:
            path = parts.directory / segment_file(base_offset, SegmentFileKind.LOG)
            if parts.files.exists(path):
                parts.files.unlink(path)
                parts.files.sync_directory(parts.directory)
            old.activate()
        except OSError as error:
            parts.mark_offline(f"a roll failed ({cause}) and could not be undone: {error}")

    # Flushing.

    def flush(self, up_to: Offset | None = None) -> None:
        """Flush everything below `up_to` (None: everything). Blocks. Raises OSError, which takes the log offline."""
        if self._parts.files.read_only:
            return
        chain, end_offset = self._everything()
        if up_to is None:
            self._flush(end_offset, self._everything)
        else:
            target = min(up_to, end_offset)
            self._flush(target, lambda: (chain, target))

    def flush_if_due(self, now: Timestamp) -> None:
        """Flush the log if flush.ms requires it. A failed flush also takes the log offline."""
        parts = self._parts
        # If the last flush is in the future, the clock was set back: flush now.
        if parts.unflushed_records and not 0 <= now - parts.progress.last_flush_ms < parts.config.flush_ms:
            self.flush()

    def flush_sealed(self) -> None:
        """Flush the segments that were closed by rolls, in the background. An error is logged; the log goes offline."""
        if self._parts.life.now is Life.SERVING:
            chain = self._parts.state.chain
            end_offset = chain.active.base_offset
            with suppress(OSError, PartitionOfflineError):
                self._flush(end_offset, lambda: (chain, end_offset))

    def _everything(self) -> tuple[Chain, Offset]:
        """Return all segments, and the log end; once they are flushed, everything below the log end is on disk."""
        state = self._parts.state
        return state.chain, state.end_offset

    def _flush(self, needed: Offset, target: FlushTarget) -> None:
        parts = self._parts
        parts.life.check_writable()

        def with_snapshots() -> tuple[Chain, Offset]:
            reached = target()
            parts.producers.sync()
            return reached

        try:
            parts.progress.flush(parts.directory, with_snapshots, needed, parts.clock())
        except OSError as error:
            if parts.life.reason is None:  # Otherwise the topic was deleted during the flush.
                parts.mark_offline(f"flushing failed: {error}")
            raise


def _compressed(batches: bytearray, rules: AppendRules) -> bytearray | None:
    """Return the batches compressed by the topic's codec, without the log's lock; None if they need all checks."""
    assert rules.codec is not None
    return compress_batches(
        batches, rules.codec, level=rules.compression_level, max_batch_bytes=rules.max_message_bytes
    )


def _check_last(offset: int) -> None:
    if offset > MAX_OFFSET:
        raise InvalidRecordError(
            f"the append reaches offset {offset}, above the largest, {MAX_OFFSET}; use another topic"
        )
