"""The way of a lookup through sorted slots: pure, and open to those who explain it.

The last slots of an index are asked for most, and a plain binary search over the whole file would touch pages in
its middle that nobody else keeps in memory. So a target in the *warm* section, the last 8 KiB and a slot, is searched
there alone (Kafka's AbstractIndex; kafka-storage.md §3).
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from typing import NamedTuple

WARM_BYTES = 8192

NO_SLOT = -1


class Bounds(NamedTuple):
    """The neighbours of a target among sorted slots; both the same slot where one equals it."""

    floor: int
    """The last slot that is not above the target, or NO_SLOT."""
    ceiling: int
    """The first slot that is not below it, or NO_SLOT."""


def find_bounds(
    key_at: Callable[[int], int],
    entries: int,
    target: int,
    *,
    warm_entries: int,
    probes: MutableSequence[int] | None = None,
) -> Bounds:
    """Find the neighbours of `target` among the keys of slots 0 to `entries` - 1, which ascend.

    `probes`, where given, gets the number of each slot looked at, in order.
    """
    if entries == 0:
        return Bounds(NO_SLOT, NO_SLOT)
    looked_at = _Probed(key_at, probes).key if probes is not None else key_at
    first_warm = max(0, entries - 1 - warm_entries)
    warm_key = looked_at(first_warm)
    if warm_key < target:
        return _bisect(looked_at, (first_warm, warm_key), entries - 1, target, entries)
    first_key = looked_at(0) if first_warm else warm_key
    if first_key > target:
        return Bounds(NO_SLOT, 0)
    return _bisect(looked_at, (0, first_key), first_warm, target, entries)


def _bisect(
    key_at: Callable[[int], int], lowest: tuple[int, int], high: int, target: int, entries: int
) -> Bounds:
    """Search from `lowest`, a slot and its key, which is not above the target, to the slot `high`."""
    low, low_key = lowest
    while low < high and low_key != target:
        middle = (low + high + 1) // 2
        key = key_at(middle)
        if key > target:
            high = middle - 1
        else:
            low, low_key = middle, key
    if low_key == target:
        return Bounds(low, low)
    return Bounds(low, low + 1 if low + 1 < entries else NO_SLOT)


class _Probed(NamedTuple):
    """Notes each slot whose key is read."""

    key_at: Callable[[int], int]
    probes: MutableSequence[int]

    def key(self, slot: int) -> int:
        self.probes.append(slot)
        return self.key_at(slot)
