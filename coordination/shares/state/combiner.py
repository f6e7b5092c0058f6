"""Merging known states of records with changed ones, by Kafka's steps (kafka-coordinators.md#share-state-records).

The state with more deliveries counts, then the one with the higher number. Records below the start offset are
dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from topicfs.coordination.records.share_state_records import NO_START, StateBatch


def combine(
    known: Iterable[StateBatch], changed: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches of both from `start_offset` on (-1: all), in order and without overlaps."""
    batches = [*known, *changed]
    if start_offset != NO_START:
        batches = [
            one if one.first >= start_offset else one._replace(first=start_offset)
            for one in batches
            if one.last >= start_offset
        ]
    if len(batches) < 2:
        return tuple(batches)
    return tuple(_merge(batches))


def _merge(batches: list[StateBatch]) -> list[StateBatch]:
    """Merge from left to right: the pieces of two batches that touch take their places among those to come."""
    waiting = sorted({_order(one) for one in batches}, reverse=True)
    merged: list[StateBatch] = []
    before = _batch(waiting.pop())
    while waiting:
        candidate = _batch(waiting.pop())
        same = _rank(before) == _rank(candidate)
        if candidate.first <= before.last or (before.last + 1 == candidate.first and same):
            for piece in _pieces(before, candidate):
                _put(waiting, _order(piece))
            before = _batch(waiting.pop())
        else:
            merged.append(before)
            before = candidate
    merged.append(before)
    return merged


def _pieces(before: StateBatch, candidate: StateBatch) -> Iterable[StateBatch]:
    """Return what two batches become that overlap, or are alike and adjacent; `candidate` begins no earlier, or is greater."""
    if _rank(before) == _rank(candidate):
        return (before._replace(last=max(before.last, candidate.last)),)
    behind = candidate._replace(first=before.last + 1)
    if _rank(candidate) < _rank(before):
        if candidate.last <= before.last:
            return (before,)
        return (before, behind)
    if candidate.first == before.first:
        return (candidate,)
    ahead = before._replace(last=candidate.first - 1)
    if candidate.last < before.last:
        return (ahead, candidate, before._replace(first=candidate.last + 1))
    return (ahead, candidate)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.deliveries, batch.state


def _order(batch: StateBatch) -> tuple[int, int, int, int]:
    """Return what batches are sorted by: count before state."""
    return batch.first, batch.last, batch.deliveries, batch.state


def _batch(order: tuple[int, int, int, int]) -> StateBatch:
    first, last, count, state = order
    return StateBatch(first, last, state, count)


def _put(waiting: list[tuple[int, int, int, int]], order: tuple[int, int, int, int]) -> None:
    at = len(waiting)
    while at and waiting[at - 1] < order:
        at -= 1
    if not at or waiting[at - 1] != order:
        waiting.insert(at, order)
