"""The binary search through sorted slots: a pure function, which reports its steps where asked to.

The last slots of an index are asked for most, and a plain binary search over the whole file would touch pages in
its middle that nobody else keeps in memory. So a target in the *warm* section, the last 8 KiB and a slot, is searched
there alone (Kafka's AbstractIndex; kafka-storage.md#index-lookup).
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from typing import NamedTuple

WARM_BYTES = 8192

NO_SLOT = -1


def find_floor(
    key_at: Callable[[int], int],
    entries: int,
    target: int,
    *,
    warm_entries: int,
    probes: MutableSequence[int] | None = None,
) -> int:
    """Return the last of the slots 0 to `entries` - 1, whose keys ascend, that is not above `target`; NO_SLOT without one.

    `probes`, where given, gets the number of each slot looked at, in order.
    """
    if entries == 0:
        return NO_SLOT
    looked_at = _Probed(key_at, probes).key if probes is not None else key_at
    first_warm = max(0, entries - 1 - warm_entries)
    warm_key = looked_at(first_warm)
    if warm_key < target:
        return _bisect(looked_at, (first_warm, warm_key), entries - 1, target)
    first_key = looked_at(0) if first_warm else warm_key
    if first_key > target:
        return NO_SLOT
    return _bisect(looked_at, (0, first_key), first_warm, target)


def _bisect(key_at: Callable[[int], int], lowest: tuple[int, int], high: int, target: int) -> int:
    """Search from `lowest`, a slot and its key, which is not above the target, to the slot `high`."""
    low, low_key = lowest
    while low < high and low_key != target:
        middle = (low + high + 1) // 2
        key = key_at(middle)
        if key > target:
            high = middle - 1
        else:
            low, low_key = middle, key
    return low


class _Probed(NamedTuple):
    """Notes each slot whose key is read."""

    key_at: Callable[[int], int]
    probes: MutableSequence[int]

    def key(self, slot: int) -> int:
        self.probes.append(slot)
        return self.key_at(slot)
