"""Adjacent records that were fetched together and share one state until some of them change."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from topicfs.coordination.shares.records.states import AVAILABLE, NOBODY, DeliveryState


class InFlightBatch:
    """The records at offsets `first` to `last`, both inclusive."""

    __slots__ = ("_done", "_free_from", "each", "first", "last", "max_delivered", "whole")

    def __init__(self, first: int, last: int, delivery: DeliveryState) -> None:
        self.first = first
        self.last = last
        self.whole: DeliveryState | None = delivery
        """The state of all records; None once each record has its own state."""
        self.each: list[DeliveryState] | None = None
        self.max_delivered = delivery.count
        """An upper bound of the delivery counts of the batch's records."""
        self._done = 0
        self._free_from = 0

    def __len__(self) -> int:
        return self.last - self.first + 1

    def split(self) -> list[DeliveryState]:
        """Give each record its own state, and return the states."""
        if self.each is None:
            whole = self.whole
            assert whole is not None
            assert not whole.in_transition
            self.each = [whole.copy() for _ in range(len(self))]
            self.whole = None
        return self.each

    def split_after(self, last: int) -> list[DeliveryState]:
        """Give each record its own state, and return the states.

        Records after `last` become Available again, and their last delivery is not counted.
        """
        each = self.split()
        for at in range(last - self.first + 1, len(each)):
            each[at] = DeliveryState(AVAILABLE, each[at].count - 1, NOBODY)
        return each

    def deliveries(self) -> list[DeliveryState]:
        """Return the states: a single one if all records share a state."""
        return self.each if self.each is not None else [self._whole()]

    def _whole(self) -> DeliveryState:
        assert self.whole is not None
        return self.whole

    def at(self, offset: int) -> DeliveryState:
        return self.each[offset - self.first] if self.each is not None else self._whole()

    def between(self, first: int, last: int) -> Iterator[tuple[int, DeliveryState]]:
        """Yield the offsets from `first` to `last` with their states. Call `split` first."""
        assert self.each is not None
        start, end = max(first, self.first), min(last, self.last)
        for offset in range(start, end + 1):
            yield offset, self.each[offset - self.first]

    def runs(self, wanted: Callable[[DeliveryState], bool]) -> Iterator[tuple[int, int, DeliveryState]]:
        """Yield ranges in a wanted state: first offset, last offset, state. Ranges of a split batch have one record."""
        if self.each is None:
            if wanted(self._whole()):
                yield self.first, self.last, self._whole()
            return
        for at, delivery in enumerate(self.each):
            if wanted(delivery):
                yield self.first + at, self.first + at, delivery

    def first_free(self) -> int | None:
        """Return the first offset that can be acquired; None if there is none."""
        if self.each is None:
            return self.first if self._whole().is_free else None
        each = self.each
        for at in range(self._free_from, len(each)):
            if each[at].is_free:
                self._free_from = at
                return self.first + at
        self._free_from = len(each)
        return None

    def free_from(self, offset: int) -> int:
        """Return the offset at which a search from `offset` can start. No record before that offset is free."""
        return max(offset, self.first + self._free_from) if self.each is not None else offset

    def freed(self, offset: int, count: int) -> None:
        """Note that the record at `offset` can be acquired (again)."""
        self._free_from = min(self._free_from, max(0, offset - self.first))
        self.max_delivered = max(self.max_delivered, count)

    def done_prefix(self) -> int:
        """Return how many records at the start of the batch are in a final state that has been written."""
        if self.each is None:
            return len(self) if self._whole().is_done else 0
        each, at = self.each, self._done
        while at < len(each) and each[at].is_done:
            at += 1
        self._done = at
        return at

    def is_within(self, first: int, last: int) -> bool:
        return first <= self.first and self.last <= last


class InFlightBatches:
    """The batches in order of their offsets; they do not overlap."""

    __slots__ = ("_by_first", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._by_first: dict[int, InFlightBatch] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        for first in list(self._firsts):
            yield self._by_first[first]

    def put(self, batch: InFlightBatch) -> None:
        """Add a batch, replacing a batch that begins at the same offset."""
        if batch.first not in self._by_first:
            self._firsts.insert(bisect_right(self._firsts, batch.first), batch.first)
        self._by_first[batch.first] = batch

    @property
    def first(self) -> InFlightBatch:
        return self._by_first[self._firsts[0]]

    @property
    def last(self) -> InFlightBatch:
        return self._by_first[self._firsts[-1]]

    def floor(self, offset: int) -> InFlightBatch | None:
        at = bisect_right(self._firsts, offset)
        return self._by_first[self._firsts[at - 1]] if at else None

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        start = bisect_right(self._firsts, first - 1)
        return [self._by_first[one] for one in self._firsts[start : bisect_right(self._firsts, last)]]

    def after(self, offset: int) -> InFlightBatch | None:
        at = bisect_right(self._firsts, offset)
        return self._by_first[self._firsts[at]] if at < len(self._firsts) else None

    def remove_up_to(self, first: int) -> None:
        at = bisect_right(self._firsts, first)
        for one in self._firsts[:at]:
            del self._by_first[one]
        del self._firsts[:at]

    def clear(self) -> None:
        self._firsts.clear()
        self._by_first.clear()
