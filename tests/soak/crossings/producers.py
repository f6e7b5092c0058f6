"""A model of a partition's producers: which batches are repetitions, refused, or appended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topicfs.storage.errors import OutOfOrderSequenceError, ProducerFencedError, StorageError

if TYPE_CHECKING:
    from tests.soak.crossings.model import Batch

SEQUENCES = 2**31
REMEMBERED = 5


@dataclass
class Answers:
    """The allowed results of appending a batch."""

    taken: bool = False
    """True if the batch may be appended."""
    repeats: list[int] = field(default_factory=list)
    """Base offsets of earlier batches that the batch may repeat."""
    refusals: set[type[StorageError]] = field(default_factory=set)


@dataclass(eq=False)
class ProducerModel:
    """The state of a producer in a partition."""

    epoch: int = -1
    batches: list[Batch] = field(default_factory=list)
    """Newest data batches of the current epoch, oldest first."""
    earlier: list[Batch] = field(default_factory=list)
    """All data batches of the producer. A batch may be in the log twice if the producer was forgotten in between."""
    open_since: int | None = None
    last_timestamp: int = -1
    last_offset: int = -1
    """Offset of the producer's newest record."""
    known: bool = True
    """False if the log may have forgotten the producer."""
    remembered: int = REMEMBERED
    """Number of batches that the log certainly remembers after it was loaded."""

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        newest = self.batches[-1]
        return (newest.sequence + len(newest.records)) % SEQUENCES


@dataclass(eq=False)
class Producers:
    """All producers of a partition."""

    by_id: dict[int, ProducerModel] = field(default_factory=dict)

    def open_since(self) -> Iterator[tuple[int, bool]]:
        """Yield the first offset of each open transaction, and whether the log certainly remembers the transaction."""
        for one in self.by_id.values():
            if one.open_since is not None:
                yield one.open_since, one.known

    def answers_to(self, batch: Batch) -> Answers:
        """Return the allowed results of appending `batch`, a producer's data batch."""
        known = self.by_id.get(batch.producer_id)
        if known is None:
            return Answers(taken=True)
        answers = self._answers_if_known(known, batch)
        if not known.known:
            answers.taken = True
            answers.refusals |= {OutOfOrderSequenceError}
            if batch.epoch < known.epoch:
                answers.refusals |= {ProducerFencedError}
        return answers

    def _answers_if_known(self, known: ProducerModel, batch: Batch) -> Answers:
        if batch.epoch < known.epoch:
            return Answers(refusals={ProducerFencedError})
        if batch.epoch > known.epoch:
            if batch.sequence == 0:
                return Answers(taken=True)
            return Answers(refusals={OutOfOrderSequenceError})
        repeated = [
            index
            for index, earlier in enumerate(known.batches)
            if earlier.sequence == batch.sequence and len(earlier.records) == len(batch.records)
        ]
        if repeated:
            certain = repeated[-1] >= len(known.batches) - known.remembered
            return Answers(
                repeats=[
                    one.base_offset
                    for one in known.earlier
                    if (one.epoch, one.sequence, len(one.records))
                    == (batch.epoch, batch.sequence, len(batch.records))
                ],
                refusals=set() if certain else {OutOfOrderSequenceError},
            )
        if batch.sequence == known.next_sequence:
            return Answers(taken=True)
        return Answers(refusals={OutOfOrderSequenceError})

    def apply(self, batch: Batch) -> None:
        """Note that a batch is in the log."""
        if batch.producer_id < 0:
            return
        one = self.by_id.setdefault(batch.producer_id, ProducerModel())
        if batch.epoch != one.epoch:
            one.epoch, one.batches, one.remembered = batch.epoch, [], REMEMBERED
        one.last_timestamp = batch.largest_timestamp
        if batch.is_marker:
            one.open_since = None
            return
        one.last_offset = batch.end_offset - 1
        if not one.known or (one.batches and one.next_sequence != batch.sequence):
            one.batches, one.remembered = [], 0
        one.known = True
        one.earlier.append(batch)
        one.batches = [*one.batches, batch][-REMEMBERED:]
        one.remembered = min(one.remembered + 1, REMEMBERED)
        if batch.transactional and one.open_since is None:
            one.open_since = batch.base_offset

    def expire(self, now: int, expiration_ms: int) -> None:
        """Note that producers without recent batches may have expired."""
        for one in self.by_id.values():
            if one.open_since is None and now - one.last_timestamp >= expiration_ms:
                one.known = False

    def reload(self, start: int, now: int, expiration_ms: int) -> None:
        """Note that the log was loaded again: a snapshot keeps one batch per producer, and no expired producers."""
        self.expire(now, expiration_ms)
        for one in self.by_id.values():
            one.remembered = min(one.remembered, 1)
            began = one.last_offset if one.open_since is None else one.open_since
            if began < start:
                one.known = False
