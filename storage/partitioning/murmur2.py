"""Kafka's key hash: 32-bit MurmurHash2 with Kafka's seed (kafka-coordinators.md#partitioning)."""

from __future__ import annotations

import struct

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Hash `key`; unsigned 32 bits (Kafka's Java prints the same bits as a signed integer)."""
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
    """Which of so many partitions a key goes to, as with every Kafka producer: the hash without its sign, modulo."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
