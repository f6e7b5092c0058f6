"""A log's producers, and their snapshot files beside the segments.

A snapshot is written at every roll and at a clean close. Its name is the offset up to which the snapshot is complete.
It is written in place, so a crash may tear it. Loading then deletes it, takes an older snapshot, and reads the log
after the older snapshot again (kafka-storage.md#producer-snapshots, kafka-storage.md#loaded-producers). On a
read-only disk nothing is written or deleted.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from topicfs.storage.codec.binary.fields import CONTROL_MASK, TRANSACTIONAL_MASK
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.control import ControlType, control_type, read_marker
from topicfs.storage.codec.headers import sequence_plus
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import NO_PRODUCER_ID, Buffer, Offset, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers import snapshot
from topicfs.storage.producers.append import (
    CompletedTransaction,
    DataBatch,
    Origin,
    ProducerAppend,
    VerificationGuard,
)
from topicfs.storage.producers.entry import NO_SEQUENCE, SequencedBatch
from topicfs.storage.producers.state import DEFAULT_EXPIRATION_MS, ProducerState
from topicfs.storage.segment.roll import SegmentDirectory
from topicfs.storage.segment.scan import Window, windows
from topicfs.storage.segment.segment import Segment
from topicfs.storage.validation.batches import Incoming, incoming_of

_LOGGER = logging.getLogger(__name__)

_REPLAY_WINDOW_BYTES = 1 << 20
"""Bytes per read when batches are read again to rebuild the producers."""


class Pending(NamedTuple):
    """Batches that passed all checks. The producers' state changes once the batches are in the log."""

    appends: tuple[ProducerAppend, ...] = ()
    completed: tuple[CompletedTransaction, ...] = ()
    repeats: Mapping[int, SequencedBatch] = MappingProxyType({})
    """The batches that are already in the log, with their offsets, by position in the append's buffer."""


NOTHING_PENDING = Pending()


class LogProducers:
    """The producers of one partition. Guarded by the log's lock."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: SegmentDirectory,
        *,
        snapshots: Iterable[Offset],
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Start without producers; `snapshots` are the offsets of the snapshots in `directory`."""
        self._directory, self._files, self._clock = directory
        self.state = ProducerState(partition, expiration_ms=expiration_ms)
        self._snapshots = set(snapshots)
        self._newest = max(self._snapshots, default=Offset(0))
        """Offset of the newest snapshot; if there is no snapshot, the log start. No snapshot is written at or below
        this offset.
        """
        self._saved = Offset(-1)
        """Offset of the last snapshot that was written from the state in memory; -1 if there is none."""
        self._unsynced: tuple[Offset, ...] = ()

    # Appending.

    def check_as_leader(
        self,
        data: Buffer,
        incoming: Iterable[Incoming],
        origin: Origin,
        guard: VerificationGuard | None,
        *,
        end_offset: Offset,
        append_time: Timestamp | None,
    ) -> Pending:
        """Check batches that a leader will append at `end_offset`, with `append_time` as their time if it is set.

        If a client repeats batches that are already in the log, the repeats get no new offsets.
        """
        check = _Check(self, origin, guard)
        offset: int = end_offset
        for batch in incoming:
            repeat = check.repeat_of(batch) if origin is Origin.CLIENT else None
            if repeat is not None:
                check.repeats[batch.position] = repeat
                continue
            last_offset = offset + batch.records - 1
            timestamp = batch.max_timestamp if append_time is None else append_time
            check.add(
                data, batch._replace(base_offset=offset, last_offset=last_offset, max_timestamp=timestamp)
            )
            offset = last_offset + 1
        return check.pending()

    def check_as_follower(self, data: Buffer, incoming: Iterable[Incoming]) -> Pending:
        """Check batches that have their final offsets, from a leader or from the log itself; no batch is refused."""
        check = _Check(self, Origin.REPLICATION, None)
        for batch in incoming:
            check.add(data, batch)
        return check.pending()

    def apply(self, pending: Pending, end_offset: Offset) -> list[AbortedSpan]:
        """Note that `pending` was appended and the log ends at `end_offset`. Return its transaction index entries."""
        self.state.end_offset = end_offset
        for append in pending.appends:
            self.state.finish(append)
        spans = []
        for done in pending.completed:
            if done.aborted:
                stable = self.state.stable_offset_at(done)
                spans.append(AbortedSpan(done.producer_id, done.first_offset, done.last_offset, stable))
            self.state.complete(done)
        return spans

    # Snapshots.

    def take(self, offset: Offset) -> None:
        """Write a snapshot of the state at `offset`, unless there is a snapshot at `offset` or above."""
        assert self.state.end_offset == offset, f"at {self.state.end_offset}, not {offset}"
        if offset <= self._newest:
            return
        if not self._files.read_only:
            self._files.write_bytes(self._path(offset), snapshot.encode(self.state))
            self._unsynced = (*self._unsynced, offset)
            self._snapshots.add(offset)
        self._newest = self._saved = offset

    def load(self, log_start_offset: Offset) -> Offset:
        """Load the newest valid snapshot, leaving out expired producers; return the snapshot's offset.

        If there is no valid snapshot, return the log start.
        """
        newest = max(self._snapshots, default=Offset(0))
        if newest <= self._saved == self.state.end_offset:
            # The state in memory has more than the snapshot: several recent batches per producer instead of
            # one.
            self.state.remove_expired(self._clock())
            return self._saved
        for offset in sorted(self._snapshots, reverse=True):
            try:
                entries = snapshot.decode(self._files.read_bytes(self._path(offset)))
            except CorruptBatchError as error:
                _LOGGER.warning("%s: %s; using an older snapshot", self._path(offset), error)
                self._delete(offset)
                continue
            self.state.load(entries, end_offset=offset, now=self._clock())
            self._newest = offset
            return offset
        self.state.clear(log_start_offset)
        self._newest = log_start_offset
        return log_start_offset

    def forget_all(self) -> None:
        """Forget every producer. The next `take` then writes a snapshot at any offset."""
        self.state.clear(Offset(0))
        self._newest = Offset(0)

    def start_moved(self, log_start_offset: Offset) -> None:
        """Note that the log start has moved up. If there is no snapshot, none is needed at the new start."""
        self._newest = max(self._snapshots, default=log_start_offset)

    def keep_only(self, segment_base_offsets: Sequence[Offset]) -> None:
        """Delete the snapshots that are not at the base offset of a segment.

        The newest snapshot is kept, too, if it is above all base offsets.
        """
        bases = set(segment_base_offsets)
        strays = sorted(self._snapshots - bases)
        if strays and strays[-1] > max(bases, default=Offset(-1)):
            strays.pop()
        for offset in strays:
            self._delete(offset)

    def truncate_to(self, log_start_offset: Offset, end_offset: Offset) -> None:
        for offset in [each for each in self._snapshots if not log_start_offset < each <= end_offset]:
            self._delete(offset)
        if not log_start_offset < self._saved <= end_offset:
            self._saved = Offset(-1)

    def removed(self, offsets: Iterable[Offset]) -> None:
        """Note that the snapshot files at these offsets were removed with their segments."""
        self._snapshots -= set(offsets)

    @property
    def snapshots(self) -> list[Offset]:
        return sorted(self._snapshots)

    @property
    def unsynced(self) -> bool:
        """True if a written snapshot may not be on disk yet."""
        return bool(self._unsynced)

    def sync(self) -> None:
        """Flush the written snapshots. Blocks. A roll leaves this to a later flush, as appends wait for the roll."""
        unsynced, self._unsynced = self._unsynced, ()
        for offset in unsynced:
            with suppress(FileNotFoundError):
                file = self._files.open(self._path(offset))
                file.sync()
                file.close()

    def moved(self, directory: Path) -> None:
        self._directory = directory

    def _delete(self, offset: Offset) -> None:
        self._snapshots.discard(offset)
        self._newest = max(self._snapshots, default=Offset(0))
        if not self._files.read_only and self._files.exists(self._path(offset)):
            self._files.unlink(self._path(offset))

    def _path(self, offset: Offset) -> Path:
        return self._directory / segment_file(offset, SegmentFileKind.SNAPSHOT)


class _Check:
    """Checks the batches of one append; each is checked as if the batches before it were in the log."""

    def __init__(self, producers: LogProducers, origin: Origin, guard: VerificationGuard | None) -> None:
        self._producers = producers
        self._origin = origin
        self._guard = guard
        self._appends: dict[ProducerId, ProducerAppend] = {}
        self._completed: list[CompletedTransaction] = []
        self.repeats: dict[int, SequencedBatch] = {}

    def repeat_of(self, batch: Incoming) -> SequencedBatch | None:
        """Return the batch, in the log or in this append, that `batch` repeats exactly; None if there is none."""
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        delta = batch.last_offset - batch.base_offset
        return self._of(ProducerId(batch.producer_id)).entry.duplicate_of(
            epoch=batch.producer_epoch,
            first_sequence=batch.base_sequence,
            last_sequence=sequence_plus(batch.base_sequence, delta),
        )

    def add(self, data: Buffer, batch: Incoming) -> None:
        producer_id = ProducerId(batch.producer_id)
        if producer_id == NO_PRODUCER_ID:
            return
        append = self._of(producer_id)
        if not batch.attributes & CONTROL_MASK:
            # The coordinator must have confirmed that a batch may open a transaction, if it was asked.
            asks = self._guard is not None and self._origin is not Origin.REPLICATION
            verifications = self._producers.state.verifications
            verified = not asks or verifications.answered(producer_id, self._guard)
            append.add_data(_data_batch(batch), verified=verified)
        elif (done := _add_marker(append, data, batch)) is not None:
            self._completed.append(done)

    def pending(self) -> Pending:
        return Pending(tuple(self._appends.values()), tuple(self._completed), self.repeats)

    def _of(self, producer_id: ProducerId) -> ProducerAppend:
        append = self._appends.get(producer_id)
        if append is None:
            append = self._appends[producer_id] = self._producers.state.begin(producer_id, self._origin)
        return append


def _add_marker(append: ProducerAppend, data: Buffer, batch: Incoming) -> CompletedTransaction | None:
    if not batch.records:
        return None
    columns = decode(data, batch.position, batch.position + batch.size_bytes, check_crc=False, control=True)
    record = columns[0].record(0)
    if control_type(record.key) not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    return append.add_marker(
        read_marker(record),
        epoch=batch.producer_epoch,
        offset=Offset(batch.last_offset),
        timestamp=Timestamp(batch.max_timestamp),
    )


def _data_batch(batch: Incoming) -> DataBatch:
    delta = batch.last_offset - batch.base_offset
    first = batch.base_sequence
    return DataBatch(
        epoch=batch.producer_epoch,
        first_sequence=first,
        last_sequence=NO_SEQUENCE if first < 0 else sequence_plus(first, delta),
        base_offset=Offset(batch.base_offset),
        last_offset=Offset(batch.last_offset),
        max_timestamp=Timestamp(batch.max_timestamp),
        transactional=bool(batch.attributes & TRANSACTIONAL_MASK),
    )


def rebuild_producers(
    producers: LogProducers,
    segments: Sequence[Segment],
    *,
    log_start_offset: Offset,
    end_offset: Offset,
    snapshots_at: Collection[Offset] = (),
) -> None:
    """Rebuild the state at `end_offset` from the newest snapshot and the batches after it, and write a snapshot.

    Also write a snapshot at each offset of `snapshots_at` at which a segment begins, except at the log start.
    """
    producers.truncate_to(log_start_offset, end_offset)
    start_offset = producers.load(log_start_offset)
    if start_offset < end_offset:
        _replay_segments(producers, segments, start_offset, end_offset, snapshots_at)
    producers.state.end_offset = end_offset
    producers.take(end_offset)


def _replay_segments(
    producers: LogProducers,
    segments: Sequence[Segment],
    start_offset: Offset,
    end_offset: Offset,
    snapshots_at: Collection[Offset],
) -> None:
    next_bases = [*[segment.base_offset for segment in segments][1:], end_offset]
    for segment, next_base in zip(segments, next_bases, strict=False):
        if next_base <= start_offset or segment.base_offset >= end_offset:
            continue
        if segment.base_offset in snapshots_at and segment.base_offset >= start_offset:
            producers.state.end_offset = segment.base_offset
            producers.take(segment.base_offset)
        batch = segment.find_batch(start_offset, segment.size)
        if batch is not None:
            known = len(producers.state)
            _replay(producers, segment, batch.position, start_offset, end_offset)
            producers.state.put_newest_first(known)


def _replay(
    producers: LogProducers, segment: Segment, position: int, start_offset: Offset, end_offset: Offset
) -> None:
    for window in windows(segment.log, position, segment.size, window_bytes=_REPLAY_WINDOW_BYTES):
        replay_window(
            producers, window, len(window.batches), start_offset=start_offset, end_offset=end_offset
        )


def replay_window(
    producers: LogProducers, window: Window, good: int, *, start_offset: int = 0, end_offset: int = 2**63 - 1
) -> list[AbortedSpan]:
    """Apply a window's first `good` batches in [start_offset, end_offset); return the transactions that they abort."""
    if not good or window.batches.largest("producer_id", good) == NO_PRODUCER_ID:
        return []
    spans = []
    for batch in incoming_of(window.batches)[:good]:
        if batch.last_offset >= start_offset and batch.base_offset < end_offset:
            pending = producers.check_as_follower(window.data, [batch])
            spans += producers.apply(pending, Offset(batch.last_offset + 1))
    return spans
