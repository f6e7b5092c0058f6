"""Java's own output, reproduced: the order of a hash map's keys, and an optional number."""

from __future__ import annotations

from collections.abc import Iterable

from topicfs.storage.partitioning import java_string_hash

_INITIAL_BUCKETS = 16
_LOAD_FACTOR = 0.75


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return `keys` in the order in which a `java.util.HashMap` that they were put into iterates over them.

    Kafka's dump reports its findings in that order. Buckets longer than eight keys, which Java turns into trees,
    do not occur with file names.
    """
    inserted = list(dict.fromkeys(keys))
    buckets = _INITIAL_BUCKETS
    while len(inserted) > buckets * _LOAD_FACTOR:
        buckets *= 2

    def bucket(key: str) -> int:
        code = java_string_hash(key) & 0xFFFF_FFFF
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(inserted, key=bucket)


def optional_long(value: int | None) -> str:
    """Return the text of `OptionalLong.toString()`."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
