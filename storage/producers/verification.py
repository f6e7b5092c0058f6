"""Verification that a transaction's coordinator knows of a partition: asked before the first record of a transaction goes in.

Without it a batch that was delayed on its way could open a transaction which is never ended. The verification begins
with a guard, the coordinator is asked, and the append has the guard; whatever came in between (a marker, an
append) makes the guard invalid. Rules: kafka-storage.md#transaction-verification, after Kafka's VerificationStateEntry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from topicfs.storage.model import ProducerId


class VerificationGuard:
    """Stands for one verification; only itself is equal to it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One producer's, under way or answered."""

    epoch: int
    lowest_sequence: int
    """The lowest one that asked: nothing above it may come first."""
    bumps_epoch: bool
    """True if the producer's transactions are of version 2, each under an epoch of its own."""
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def asked_again(self, *, epoch: int, sequence: int) -> Verification:
        """Return the same after another batch of the producer asked, too: by a newer epoch, or earlier in this one."""
        if epoch > self.epoch:
            return replace(self, epoch=epoch, lowest_sequence=sequence)
        if epoch == self.epoch:
            return replace(self, lowest_sequence=min(sequence, self.lowest_sequence))
        return self


class Verifications:
    """The verifications of one partition, by producer. Not thread-safe: the log's lock guards them."""

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, Verification] = {}

    def get(self, producer_id: ProducerId) -> Verification | None:
        return self._by_producer.get(producer_id)

    def begin(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard:
        """Return the guard that an append of this producer must bring; the same one for all that ask until it is taken away."""
        known = self._by_producer.get(producer_id)
        if known is None:
            asked = Verification(epoch=epoch, lowest_sequence=sequence, bumps_epoch=bumps_epoch)
        else:
            asked = known.asked_again(epoch=epoch, sequence=sequence)
        self._by_producer[producer_id] = asked
        return asked.guard

    def answered(self, producer_id: ProducerId, guard: VerificationGuard | None) -> bool:
        """Return whether `guard` is that of the producer's verification."""
        known = self._by_producer.get(producer_id)
        return known is not None and known.guard is guard

    def end(self, producer_id: ProducerId) -> None:
        """Forget the guard: a transactional batch or a marker is in the log."""
        self._by_producer.pop(producer_id, None)
