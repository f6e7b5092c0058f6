"""Extreme settings."""

from __future__ import annotations

from random import Random

from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import InvalidConfigError

INT_MAX, LONG_MAX, LONG_MIN = 2**31 - 1, 2**63 - 1, -(2**63)
PREALLOCATED_BYTES = 1 << 21
"""Largest segment that is preallocated, because preallocation uses real disk space."""


VALUES: dict[str, tuple[object, ...]] = {
    "internal.segment.bytes": (60, 300, 700, 2_000, 20_000, 1 << 20, INT_MAX),
    "segment.bytes": (1 << 20, INT_MAX),
    "index.interval.bytes": (0, 1, 100, 4096, INT_MAX),
    # Less than 12 bytes are too small for an entry of the time index.
    "segment.index.bytes": (12, 13, 24, 240, 1_200, 1 << 16, 10 << 20, 4, 7, 8, 11),
    "segment.ms": (1, 1_000, 3_600_000, LONG_MAX),
    "retention.ms": (-1, 0, 1, 60_000, 86_400_000, LONG_MAX),
    "retention.bytes": (LONG_MIN, -1, 0, 1, 1_000, 10_000, LONG_MAX),
    "cleanup.policy": ("delete", "compact", "compact", "compact,delete", "delete,compact", ""),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": (-1, 1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131072, 1, 22),
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": (0, 1_000, 10**12, LONG_MAX),
    "message.timestamp.after.max.ms": (0, 1_000, 3_600_000, 10**12, LONG_MAX),
    "min.cleanable.dirty.ratio": (0, 0, 0.01, 0.5, 1),
    "delete.retention.ms": (0, 1, 60_000, 86_400_000, LONG_MAX),
    "min.compaction.lag.ms": (0, 0, 1, 60_000, LONG_MAX),
    "max.compaction.lag.ms": (1, 60_000, 3_600_000, LONG_MAX),
    "preallocate": ("true", "false"),
    "flush.messages": (1, 2, 10, LONG_MAX),
    "flush.ms": (0, 1, 60_000, LONG_MAX),
    "file.delete.delay.ms": (0, 0, 1, 60_000, LONG_MAX),
    "max.message.bytes": (0, 200, 1_000, 1_048_588, INT_MAX),
}
EXTREME_TIMES = (2**63 - 1, 2**62, -(2**62), -(2**63))


def engine_config(chance: Random) -> EngineConfig:
    """Return engine settings with one loading thread, so that changes of the disk have a fixed order."""
    return EngineConfig(
        recovery_threads=1,
        scrub_interval_hours=0,
        producer_id_expiration_ms=chance.choice((60_000, 86_400_000, INT_MAX)),
        cleaner_dedupe_buffer_bytes=chance.choice((24 * 6, 24 * 40, 1 << 20, 1 << 20)),
        topic_defaults=TopicConfig(segment_index_bytes=1_200),
    )


def draw_changes(chance: Random, count: int, overrides: dict[str, str]) -> dict[str, str | None]:
    """Return `count` random changes of settings that TopicConfig accepts together with `overrides`."""
    for _ in range(20):
        changes = {name: _draw(chance, name) for name in chance.sample([*VALUES], count)}
        after = merged(overrides, changes)
        try:
            config = TopicConfig.from_overrides(after, TopicConfig(segment_index_bytes=1_200))
        except InvalidConfigError:
            continue
        if config.preallocate and config.effective_segment_bytes > PREALLOCATED_BYTES:
            continue
        return changes
    return {}


def merged(overrides: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    """Return the overrides after an alteration."""
    after = {**overrides, **changes}
    return {name: value for name, value in after.items() if value is not None}


def _draw(chance: Random, name: str) -> str | None:
    return None if chance.random() < 0.25 else str(chance.choice(VALUES[name]))
