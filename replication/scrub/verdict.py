"""Judges bytes of a segment: how many of them are valid batches at the expected offsets.

    expected offset ─► batch ─► batch ─► batch ─► …      whole, checksum right, offsets in a row, the epoch of those offsets

Checksums do not cover base offset and leader epoch. These two are compared with the batches before and after, and
with the leader epochs (kafka-storage.md#leader-epochs).
"""

from __future__ import annotations

from typing import NamedTuple

from topicfs.storage.checkpoints.leader_epochs import Entries, epoch_for_offset
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.errors import TornBatchError
from topicfs.storage.model import NO_LEADER_EPOCH, Buffer, Offset

OFFSETS = "its offsets do not fit between the batches before and after it"


class Bounds(NamedTuple):
    """The bounds within which batches are expected."""

    start_offset: int
    """The lowest base offset that the first batch of this part may have: the end of the batch before the part."""
    end_offset: int
    """The exclusive upper bound of the offsets."""
    epochs: Entries


class Verdict(NamedTuple):
    """How many of the judged bytes are valid batches."""

    batches: Batches
    """The batches found, valid or not."""
    sound: int
    """Number of leading valid batches."""
    stop: int
    """Position after the last valid batch."""
    end_offset: Offset
    """The exclusive end of the valid batches' offsets; the start offset if there are none."""
    cause: str | None
    """What is wrong with the next batch; None if there is no next batch, or if the bytes end within it."""

    @property
    def gapless(self) -> bool:
        """True if the valid batches have no gaps between their offsets."""
        if not self.sound:
            return True
        bases = self.batches.column("base_offset")[: self.sound].tolist()
        lasts = self.batches.column("last_offset")[: self.sound].tolist()
        return sum(lasts) - sum(bases) + self.sound == self.end_offset - bases[0]


def judge(data: Buffer, bounds: Bounds, *, whole: bool, check_crc: bool = True) -> Verdict:
    """Return how far `data` fits `bounds`. Batches with contradictory offsets are invalid.

    `whole`: `data` must end with a whole batch, so a torn last batch is damage.
    """
    batches = scan(data, check_crc=check_crc)
    count = len(batches)
    sound = batches.count_ascending(bounds.start_offset, bounds.end_offset - 1)
    if batches.overlap(bounds.start_offset, sound):
        sound = _before_overlap(batches, bounds.start_offset, sound)
    cause = OFFSETS if sound < count else None
    if cause:
        sound = max(sound - 1, 0)
    elif batches.problem is not None and (whole or not isinstance(batches.problem, TornBatchError)):
        cause = batches.problem.cause
    agreeing = count_of_epochs(batches, sound, bounds.epochs)
    if agreeing < sound:
        sound, cause = (
            agreeing,
            f"its leader epoch is {batches[agreeing].leader_epoch}, but its offsets belong to another epoch",
        )
    if not sound:
        return Verdict(batches, 0, 0, Offset(bounds.start_offset), cause)
    last = batches[sound - 1]
    return Verdict(batches, sound, last.end_position, last.end_offset, cause)


def judge_first(data: Buffer, bounds: Bounds) -> tuple[BatchHeader | None, str]:
    """Return the first batch of `data` if it is valid on its own; otherwise None, and what is wrong with it."""
    batches = scan(data, check_crc=True, max_batches=1)
    if not len(batches):
        return None, batches.problem.cause if batches.problem else "no batch begins here"
    header = batches[0]
    if batches.overlap(bounds.start_offset, 1) or not batches.count_ascending(
        bounds.start_offset, bounds.end_offset - 1
    ):
        return (
            None,
            f"offsets {header.base_offset} to {header.last_offset}, but {bounds.start_offset} or more must follow",
        )
    if not count_of_epochs(batches, 1, bounds.epochs):
        return None, f"its leader epoch is {header.leader_epoch}, but its offsets belong to another epoch"
    return header, ""


def _before_overlap(batches: Batches, start_offset: int, count: int) -> int:
    """Return the number of batches before the first batch that overlaps its predecessor."""
    low, high = 0, count  # Binary search: the first `low` do not overlap, the first `high` do.
    while high - low > 1:
        middle = (low + high) // 2
        if batches.overlap(start_offset, middle):
            high = middle
        else:
            low = middle
    return high - 1


def count_of_epochs(batches: Batches, count: int, epochs: Entries) -> int:
    """Return the number of leading batches, at most `count`, whose leader epoch is right or cannot be checked."""
    if not count or not epochs:
        return count
    carried = batches.column("leader_epoch")[:count].tolist()
    bases = [Offset(base) for base in batches.column("base_offset")[:count].tolist()]
    first = epoch_for_offset(epochs, bases[0])
    if first == epoch_for_offset(epochs, bases[-1]) and set(carried) <= {first, NO_LEADER_EPOCH}:
        return count
    for number, (epoch, base) in enumerate(zip(carried, bases, strict=True)):
        known = epoch_for_offset(epochs, base)
        if epoch not in (known, NO_LEADER_EPOCH) and known is not None:
            return number
    return count
