"""Chooses partitions like Kafka's first producers: the key's Java hashCode modulo the number of partitions.

    PYTHONPATH=examples topicfs mount --partitioner old_hash:choose data mnt

Today's producers, and topicfs without --partitioner, use murmur2, which sends most keys to other partitions. This
program sends records without a key to the partitions in turn.
"""

from __future__ import annotations

from itertools import count

from topicfs.storage.partitioning import java_string_hash

_turn = count()


def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
    """Return the partition of a record; topicfs calls this once for each record."""
    del topic, value
    if key is None:
        return next(_turn) % partitions
    return (java_string_hash(key.decode()) & 0x7FFFFFFF) % partitions
