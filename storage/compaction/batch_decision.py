"""Decides what a pass keeps of one batch, and tracks the transactions that the pass has seen.

Rules: kafka-storage.md#tombstones, kafka-storage.md#marker-removal, kafka-storage.md#batch-rewriting, Kafka's Cleaner
and CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from topicfs.storage.codec.control import ControlType
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import Offset, ProducerId, Timestamp, later


class LastOfProducer(NamedTuple):
    """The last batch of a live producer: its last data batch or, if none is left, the marker of its newest epoch."""

    last_data_offset: Offset | None
    epoch: int


class RetentionParams(NamedTuple):
    now: Timestamp
    delete_retention_ms: int
    keep_end_offset: Offset | None
    """A batch that ends at this offset is kept even without records (since Kafka 4.4: kafka-storage.md#versions)."""
    producers: Mapping[ProducerId, LastOfProducer]
    legacy_deletes_before: Timestamp
    """A tombstone in an old format stays if its segment was modified after this time."""


class BatchDecision(NamedTuple):
    """What happens to a batch's records, and to its header if no record is left."""

    discard_records: bool
    keeps_header: bool
    """True if the header stays when no record does: the batch has its producer's newest sequence, or ends at
    `keep_end_offset`.
    """
    starts_horizon: bool
    """True for a marker whose transaction has no data left: this pass sets its delete horizon."""


def decide(batch: BatchHeader, *, discardable: bool, params: RetentionParams) -> BatchDecision:
    """Return the decision on a batch.

    `discardable` means, for a data batch, that its transaction was aborted and, for a marker, that its transaction
    has no data left.
    """
    horizon = batch.delete_horizon_ms
    if batch.is_control:
        discard = discardable and horizon is not None and horizon <= params.now
    else:
        discard = discardable
    return BatchDecision(
        discard_records=discard,
        keeps_header=_carries_producer_state(batch, params) or batch.end_offset == params.keep_end_offset,
        starts_horizon=batch.is_control and discardable and not discard,
    )


def tombstones_stay(batch: BatchHeader, *, modified: Timestamp, params: RetentionParams) -> bool:
    """Return whether the batch's tombstones must still stay. `modified`: the segment file's modification time."""
    if batch.magic < 2:
        return modified > params.legacy_deletes_before
    horizon = batch.delete_horizon_ms
    return horizon is None or params.now < horizon


def new_horizon(
    batch: BatchHeader, *, has_tombstones: bool, decision: BatchDecision, params: RetentionParams
) -> Timestamp | None:
    """Return the delete horizon that this pass sets in the batch; None if the batch already has one or needs none."""
    if batch.magic < 2 or batch.delete_horizon_ms is not None:
        return None
    if has_tombstones or decision.starts_horizon:
        return later(params.now, params.delete_retention_ms)
    return None


def _carries_producer_state(batch: BatchHeader, params: RetentionParams) -> bool:
    last = params.producers.get(batch.producer_id)
    if last is None or batch.producer_id < 0:
        return False
    if last.last_data_offset is not None:
        return batch.last_offset == last.last_data_offset
    return batch.is_control and batch.producer_epoch == last.epoch


class PassTransactions:
    """Tracks which data of a pass was aborted, and which markers may be removed.

    A marker may be removed if the pass saw no data of its transaction.
    """

    def __init__(self, aborted: Iterable[AbortedSpan] = ()) -> None:
        self._upcoming = sorted(aborted, key=lambda span: span.first_offset, reverse=True)
        self._open_aborted: dict[ProducerId, AbortedSpan] = {}
        self._open_committed: set[ProducerId] = set()
        self._seen: set[AbortedSpan] = set()
        self.retained: list[AbortedSpan] = []
        """Aborted transactions whose markers stay: the entries of the cleaned segment's transaction index."""

    def read_data(self, batch: BatchHeader) -> bool:
        """Note a data batch; return whether it belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        span = self._open_aborted.get(batch.producer_id)
        if span is None or span.last_offset < batch.base_offset:
            # The producer's previous transaction ended at a marker that was removed, or that is before this
            # pass.
            self._open_committed.add(batch.producer_id)
            return False
        self._seen.add(span)
        return True

    def read_marker(self, batch: BatchHeader, kind: ControlType | None) -> bool:
        """Note a control batch; return whether it may be removed. `kind` is None if the batch has no records left."""
        self._begin_up_to(batch.last_offset)
        if kind is None:
            return True
        if kind is ControlType.COMMIT:
            seen = batch.producer_id in self._open_committed
            self._open_committed.discard(batch.producer_id)
            return not seen
        if kind is ControlType.ABORT:
            span = self._open_aborted.pop(batch.producer_id, None)
            if span is None or span not in self._seen:
                return True
            self.retained.append(span)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            span = self._upcoming.pop()
            self._open_aborted[span.producer_id] = span
