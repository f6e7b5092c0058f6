"""A model of a partition with producers, transactions and compaction: a list of batches, and the state derived from it.

The model has no files. `replay` uses only the batches to derive the producers, the transactions, the records that
read-committed readers see, and each key's newest value. To undo the effects of some batches, a test drops these
batches and calls `replay` again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SEQUENCES = 2**31


class ModelBatch(NamedTuple):
    """A batch as it was appended; `producer_id` is -1 for a batch without a producer."""

    base_offset: int
    keys: tuple[bytes, ...]
    values: tuple[bytes | None, ...]
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None
    """True or False if the batch is a marker that commits or aborts a transaction; None for a batch of records.

    A marker has neither keys nor values.
    """

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(len(self.keys), 1) - 1

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1

    @property
    def is_marker(self) -> bool:
        return self.commit is not None

    @property
    def last_sequence(self) -> int:
        return (self.sequence + len(self.keys) - 1) % SEQUENCES

    def records(self) -> Iterable[tuple[int, bytes, bytes | None]]:
        for number, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            yield self.base_offset + number, key, value


@dataclass
class ModelProducer:
    """The state of one producer that follows from its batches."""

    epoch: int = -1
    last_batch: ModelBatch | None = None
    """The newest batch of records that the producer wrote under its present epoch."""
    open_since: int | None = None
    in_transaction: list[ModelBatch] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        return 0 if self.last_batch is None else (self.last_batch.last_sequence + 1) % SEQUENCES


@dataclass
class Replayed:
    """The state that follows from a list of batches."""

    producers: dict[int, ModelProducer] = field(default_factory=dict)
    committed: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """Key and value, by offset, of each record that a read-committed reader sees below the last stable offset."""
    aborted: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """The base offsets of the batches of each aborted transaction, by its producer and the offset of its marker."""
    last_stable_offset: int = 0

    def table(self) -> dict[bytes, bytes]:
        """Return the newest committed value of each key, without the deleted keys."""
        return table_of(self.committed)


def table_of(records: dict[int, tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """Return each key's value at its highest offset, without the keys whose newest value is null."""
    newest = {key: value for _, (key, value) in sorted(records.items())}
    return {key: value for key, value in newest.items() if value is not None}


def replay(batches: Iterable[ModelBatch], end_offset: int) -> Replayed:
    """Return the state that follows from the batches of a log that ends at `end_offset`."""
    found = Replayed(last_stable_offset=end_offset)
    decided: dict[int, tuple[bytes, bytes | None]] = {}
    for batch in batches:
        producer = found.producers.setdefault(batch.producer_id, ModelProducer())
        if batch.producer_id < 0:
            decided |= _records(batch)
            continue
        if batch.epoch != producer.epoch:
            producer.epoch, producer.last_batch = batch.epoch, None
        if batch.is_marker:
            decided |= _end(found, producer, batch)
            continue
        producer.last_batch = batch
        if not batch.transactional:
            decided |= _records(batch)
            continue
        if producer.open_since is None:
            producer.open_since = batch.base_offset
        producer.in_transaction.append(batch)
    open_since = [p.open_since for p in found.producers.values() if p.open_since is not None]
    found.last_stable_offset = min(open_since, default=end_offset)
    found.committed = {at: record for at, record in decided.items() if at < found.last_stable_offset}
    return found


def _end(
    found: Replayed, producer: ModelProducer, marker: ModelBatch
) -> dict[int, tuple[bytes, bytes | None]]:
    """End the producer's transaction, if one is open; return the records that the marker commits."""
    written, producer.in_transaction = producer.in_transaction, []
    began, producer.open_since = producer.open_since, None
    if began is None:
        return {}
    if not marker.commit:
        found.aborted[marker.producer_id, marker.base_offset] = [batch.base_offset for batch in written]
        return {}
    return {at: record for batch in written for at, record in _records(batch).items()}


def _records(batch: ModelBatch) -> dict[int, tuple[bytes, bytes | None]]:
    return {offset: (key, value) for offset, key, value in batch.records()}
