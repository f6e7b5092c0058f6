"""The binary search through sorted slots: a pure function, which reports its steps on request.

Most lookups are in the last slots of an index. A plain binary search over the whole file would touch pages in its
middle that nothing else keeps in memory. So a target in the *warm* section, the last 8 KiB and one slot, is searched
only there (Kafka's AbstractIndex; kafka-storage.md#index-lookup).

This module is compiled by Cython, and runs uncompiled with the same results.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import NamedTuple

import cython

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import memory
else:
    from topicfs.storage.codec.binary import memory

WARM_BYTES = 8192

NO_SLOT = -1


class Key(NamedTuple):
    """The signed big-endian integer by which slots are sorted."""

    slot_bytes: int
    position: int
    """Position of the key's first byte in the slot."""
    size: int
    """Size of the key in bytes."""


def find_floor(
    slots: memoryview,
    key: Key,
    target: cython.longlong,
    *,
    warm_entries: cython.Py_ssize_t,
    probes: MutableSequence[int] | None = None,
) -> int:
    """Return the last slot whose key is not above `target`, or NO_SLOT. Append each slot read to `probes`, if given."""
    slot_bytes: cython.Py_ssize_t = key.slot_bytes
    entries: cython.Py_ssize_t = len(slots) // slot_bytes
    if entries == 0:
        return NO_SLOT
    first_warm: cython.Py_ssize_t = max(0, entries - 1 - warm_entries)
    warm_key: cython.longlong = _key_at(slots, key, first_warm, probes)
    if warm_key < target:
        return _bisect(slots, key, first_warm, warm_key, entries - 1, target, probes)
    first_key: cython.longlong = _key_at(slots, key, 0, probes) if first_warm else warm_key
    if first_key > target:
        return NO_SLOT
    return _bisect(slots, key, 0, first_key, first_warm, target, probes)


@cython.cfunc
def _bisect(  # noqa: PLR0913, PLR0917 -- what `find_floor` has, and what it found
    slots: memoryview,
    slot_key: Key,
    low: cython.Py_ssize_t,
    low_key: cython.longlong,
    high: cython.Py_ssize_t,
    target: cython.longlong,
    probes: MutableSequence[int] | None,
) -> cython.Py_ssize_t:
    """Search from the slot `low`, whose key is not above the target, to the slot `high`."""
    while low < high and low_key != target:
        middle: cython.Py_ssize_t = (low + high + 1) // 2
        key: cython.longlong = _key_at(slots, slot_key, middle, probes)
        if key > target:
            high = middle - 1
        else:
            low, low_key = middle, key
    return low


@cython.cfunc
def _key_at(
    slots: memoryview, key: Key, slot: cython.Py_ssize_t, probes: MutableSequence[int] | None
) -> cython.longlong:
    if probes is not None:
        probes.append(slot)
    octets: cython.p_uchar = memory.octets_of(slots)
    slot_bytes: cython.Py_ssize_t = key[0]
    at: cython.Py_ssize_t = slot * slot_bytes + key[1]
    size: cython.Py_ssize_t = key[2]
    value: cython.longlong = octets[at]
    if value > 127:
        value -= 256
    index: cython.Py_ssize_t
    for index in range(1, size):
        value = value * 256 + octets[at + index]
    return value
