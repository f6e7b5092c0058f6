"""The settings of a segment, and the decision to roll it, by *record* time like Kafka (kafka-storage.md#rolling)."""

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.filesystem import Clock, FileSystem
from topicfs.storage.indexes import time_index
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET


class SegmentSettings(NamedTuple):
    """The settings that are fixed for a segment when it is created or loaded."""

    index_interval_bytes: int
    index_bytes: int
    """Preallocated size of each index while the segment is active."""
    preallocated_bytes: int = 0
    """Size of a new log file; 0 if it is not preallocated."""
    jitter_ms: int = 0
    """Milliseconds by which this segment rolls earlier than segment.ms."""


class SegmentDirectory(NamedTuple):
    """The directory of a log's segments, its disk, and the clock."""

    path: Path
    files: FileSystem
    clock: Clock


class RollReason(Enum):
    SIZE = "segment.bytes"
    TIME = "segment.ms"
    INDEX_FULL = "an index is full"
    OFFSET_RANGE = "offsets beyond 2^31-1 above the base offset"


class RollParameters(NamedTuple):
    """The values that decide whether to roll: the active segment, the limits, and the next append."""

    size_bytes: int
    base_offset: int
    first_timestamp: int
    """Max timestamp of the active segment's first batch; -1 if the batch has none or the segment is empty."""
    created_ms: int
    """Wall-clock time at which the active segment was created or emptied."""
    index_full: bool
    """True if the offset index or the time index accepts no more entries."""
    max_segment_bytes: int
    max_wait_ms: int
    """segment.ms minus this segment's jitter."""
    append_bytes: int
    append_last_offset: int
    append_max_timestamp: int
    now: int


def stays_active(
    *, size_bytes: int, max_bytes: int, relative_offset: int, span_ms: int, max_wait_ms: int, index_full: bool
) -> bool:
    """Return True if an append up to this size, offset and time span needs no roll; if False, ask `roll_reason`."""
    return (
        size_bytes <= max_bytes
        and 0 <= relative_offset <= MAX_RELATIVE_OFFSET
        and span_ms <= max_wait_ms
        and not index_full
    )


def roll_reason(parameters: RollParameters) -> RollReason | None:
    """Return why the active segment must be closed before this append; None if it can stay active."""
    p = parameters
    if p.size_bytes > p.max_segment_bytes - p.append_bytes:
        return RollReason.SIZE
    if p.size_bytes > 0 and waited_ms(p) > p.max_wait_ms:
        return RollReason.TIME
    if p.index_full:
        return RollReason.INDEX_FULL
    if not 0 <= p.append_last_offset - p.base_offset <= MAX_RELATIVE_OFFSET:
        return RollReason.OFFSET_RANGE
    return None


def waited_ms(parameters: RollParameters) -> int:
    """Return a segment's time span: of record time if its first batch has a timestamp, otherwise since its creation."""
    if parameters.first_timestamp >= 0:
        return parameters.append_max_timestamp - parameters.first_timestamp
    return parameters.now - parameters.created_ms


def segment_settings(config: TopicConfig) -> SegmentSettings:
    """Return the settings of a segment that is made under `config`; later changes of `config` do not affect them."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return SegmentSettings(
        index_interval_bytes=config.index_interval_bytes,
        index_bytes=max(config.segment_index_bytes, time_index.SLOT.size),
        preallocated_bytes=config.effective_segment_bytes if config.preallocate else 0,
        jitter_ms=_random_below(limit) if limit > 0 else 0,
    )


def _random_below(limit: int) -> int:
    # Import only here: few topics have a jitter, and the import takes a fiftieth of a server's start.
    from secrets import randbelow

    return randbelow(limit)
