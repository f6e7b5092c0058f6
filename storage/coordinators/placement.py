"""Which partition of an internal topic holds a group or a transactional id (kafka-coordinators.md#coordinator-partitions)."""

from __future__ import annotations

DEFAULT_PARTITIONS = 50
"""offsets.topic.num.partitions and transaction.state.log.num.partitions."""


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: 31 h + unit over UTF-16 units, as a signed 32-bit number."""
    units = text.encode("utf-16-be")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return h - 2**32 if h >= 2**31 else h


def coordinator_partition(name: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """abs(hash) modulo the number of partitions; the one number without an absolute value counts as 0."""
    h = java_string_hash(name)
    return (0 if h == -(2**31) else abs(h)) % partitions
