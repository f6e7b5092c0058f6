"""Chooses a partition by a hash of the key, as every Kafka producer does (kafka-coordinators.md#partitioning).

Groups and transactional IDs are hashed like Java strings (kafka-coordinators.md#coordinator-partitions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from topicfs.storage.errors import PartitionOfflineError

T = TypeVar("T")

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Hash `key` to an unsigned 32-bit number; Kafka's Java code prints the same bits as a signed number."""
    length = len(key)
    digest = SEED ^ length
    for (raw,) in struct.iter_unpack("<I", key[: length & ~3]):
        word = raw * MULTIPLIER & MASK
        word ^= word >> SHIFT
        digest = (digest * MULTIPLIER & MASK) ^ (word * MULTIPLIER & MASK)
    if length & 3:
        digest = (digest ^ int.from_bytes(key[length & ~3 :], "little")) * MULTIPLIER & MASK
    digest = (digest ^ digest >> 13) * MULTIPLIER & MASK
    return digest ^ digest >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as every Kafka producer does: the hash without its sign, modulo `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


DEFAULT_PARTITIONS = 50
"""Default of offsets.topic.num.partitions and transaction.state.log.num.partitions."""


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: h = 31 h + unit for each UTF-16 unit, as a signed 32-bit number."""
    units = text.encode("utf-16-be")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return h - 2**32 if h >= 2**31 else h


def hash_map_order(keys: Iterable[T], hash_of: Callable[[Any], int] = java_string_hash) -> list[T]:
    """Return `keys`, given in insertion order, in the iteration order of a Java HashMap (of at most 8 keys a bucket)."""
    inserted = list(dict.fromkeys(keys))
    buckets = 16
    while len(inserted) > buckets * 3 // 4:
        buckets *= 2

    def bucket(key: T) -> int:
        spread = hash_of(key) & 0xFFFFFFFF
        return (spread ^ spread >> 16) & (buckets - 1)

    return sorted(inserted, key=bucket)


@lru_cache(maxsize=4096)  # Called for each acknowledgement of a queue.
def coordinator_partition(name: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """Return abs(hash) modulo the number of partitions; for the hash -2^31, which has no absolute value, return 0."""
    h = java_string_hash(name)
    return (0 if h == -(2**31) else abs(h)) % partitions


def least_count(numbers: Iterable[int]) -> int:
    """Return the smallest number of partitions of a topic that has the partitions `numbers`."""
    return max(numbers, default=-1) + 1


def keyed_count(topic: str, numbers: Collection[int]) -> int:
    """Return the number of a topic's partitions, from which the partition of a key is computed.

    Raises PartitionOfflineError if one of `numbers` is missing here: the true number of partitions is then unknown.
    """
    count = least_count(numbers)
    if count != len(numbers):
        missing = next(number for number in range(count) if number not in numbers)
        raise PartitionOfflineError(
            f"{topic}: partition {missing} is not here, so the partition of a record is unknown; name the partition"
        )
    return count


def partition_of_name(topic: str, name: str, numbers: Collection[int], holds: Callable[[int], bool]) -> int:
    """Return the coordinator partition of `name`, if this process has the partitions `numbers` of its topic.

    If partitions of the topic are missing here, their number is unknown, and the result is the partition for which
    `holds` returns True. Raises PartitionOfflineError if there is no such partition.
    """
    if least_count(numbers) == len(numbers):
        return coordinator_partition(name, len(numbers))
    for number in filter(holds, numbers):
        return number
    raise PartitionOfflineError(
        f"{topic}: some of its partitions are not here, so the partition of {name} is unknown; add the data directories "
        "that have them"
    )
