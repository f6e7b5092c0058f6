"""The filter of read_committed, which hides records of aborted transactions (kafka-storage.md#aborted-transactions).

A fetch names each aborted transaction by its producer and first offset. As in Kafka's consumer, the producer's
transactional batches are hidden from that offset up to the producer's next control batch, the abort marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topicfs.storage.codec.binary import fields
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.model import AbortedTransaction


def hide_aborted(batches: Batches, aborted: Sequence[AbortedTransaction]) -> None:
    """Mark the headers of aborted batches as hidden; `aborted` is sorted by first offset."""
    if not aborted:
        return
    rows, upcoming = batches.rows, list(reversed(aborted))
    open_aborted: set[int] = set()
    for at in range(0, len(rows), fields.ROW_SIZE):
        while upcoming and upcoming[-1].first_offset <= rows[at + fields.LAST_OFFSET]:
            open_aborted.add(upcoming.pop().producer_id)
        if rows[at + fields.PRODUCER_ID] not in open_aborted:
            continue
        attributes = rows[at + fields.ATTRIBUTES]
        if attributes & fields.CONTROL_MASK:
            open_aborted.discard(rows[at + fields.PRODUCER_ID])
        elif attributes & fields.TRANSACTIONAL_MASK:
            rows[at + fields.ATTRIBUTES] = attributes | fields.HIDDEN_MASK


def still_aborted(
    aborted: Sequence[AbortedTransaction], batches: Iterable[BatchHeader]
) -> tuple[AbortedTransaction, ...]:
    """Return the transactions of `aborted` that continue after `batches`, for a reader that decodes in parts."""
    ended = {batch.producer_id: batch.last_offset for batch in batches if batch.is_control}
    return tuple(each for each in aborted if each.first_offset > ended.get(each.producer_id, -1))
