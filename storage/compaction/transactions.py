"""The transactions of a pass over a log: which data is aborted, and which markers may be discarded.

The pass reads every batch once, in order, and records it here. A marker may be discarded only when no data batch of
its transaction was seen in the pass: then nothing is left that a reader would need it for. Source:
kafka-storage.md#marker-removal, Kafka's CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from topicfs.storage.codec.control import ControlType
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import ProducerId


class PassTransactions:
    """The transactions of one pass."""

    def __init__(self, aborted: Iterable[AbortedSpan] = ()) -> None:
        self._upcoming = sorted(aborted, key=lambda span: span.first_offset, reverse=True)
        self._open_aborted: dict[ProducerId, AbortedSpan] = {}
        self._open_committed: set[ProducerId] = set()
        self._seen: set[AbortedSpan] = set()
        self.retained: list[AbortedSpan] = []
        """Aborts whose markers stay: the entries of the cleaned segment's transaction index."""

    def read_data(self, batch: BatchHeader) -> bool:
        """Take note of a data batch; return whether it belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        span = self._open_aborted.get(batch.producer_id)
        if span is None or span.last_offset < batch.base_offset:
            # After a marker that is gone, or before the pass, the producer's next transaction has begun.
            self._open_committed.add(batch.producer_id)
            return False
        self._seen.add(span)
        return True

    def read_marker(self, batch: BatchHeader, kind: ControlType | None) -> bool:
        """Take note of a control batch (`kind` None: already emptied); return whether it may be discarded."""
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
