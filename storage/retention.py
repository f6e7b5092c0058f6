"""Retention: deletes a log's oldest segments. A pure function decides which.

From the oldest segment on, each rule takes segments up to the first that must stay; the next rule continues from there.

    1  log start    the next segment begins at or before the log start offset          every cleanup.policy
    2  size         without it the partition still has retention.bytes                 with delete
    3  age          its newest record is older than retention.ms                       with delete

Only segments wholly below the high watermark are deleted, and never an empty last segment. If all segments are to be
deleted, the log rolls first, so that an empty segment stays at its end (kafka-storage.md#retention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.log.life import Role
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, SegmentInfo, Timestamp


class Reason(Enum):
    LOG_START = "before the log start offset"
    SIZE = "retention.bytes"
    AGE = "retention.ms"


def limit_text(reason: Reason, config: TopicConfig) -> str:
    """Return the reason; if the reason is a setting, also the setting's value."""
    text: str = reason.value
    limits = {Reason.SIZE: config.retention_bytes, Reason.AGE: config.retention_ms}
    return f"{text}={limits[reason]}" if reason in limits else text


class PlannedRemoval(NamedTuple):
    """One step of a decision: for `reason`, delete the oldest `segments` segments that earlier steps left."""

    segments: int
    reason: Reason


class Decision(NamedTuple):
    """What retention decided about a log."""

    removals: tuple[PlannedRemoval, ...]
    roll_first: bool
    """True if every segment is deleted, so that an empty segment must follow them."""

    @property
    def removed_segments(self) -> int:
        return sum(removal.segments for removal in self.removals)


class LogFacts(NamedTuple):
    segments: Sequence[SegmentInfo]
    """Oldest first, the active segment last; sizes are sizes of `.log` files."""
    log_start_offset: Offset
    high_watermark: Offset


def decide_retention(facts: LogFacts, config: TopicConfig, now: Timestamp) -> Decision:
    """Apply the three rules in order."""
    removals = []
    taken = 0
    for reason, count_due in _RULES:
        due = count_due(facts, config, now, taken)
        if due:
            removals.append(PlannedRemoval(due, reason))
        taken += due
    return Decision(tuple(removals), roll_first=0 < taken == len(facts.segments))


def _removable(facts: LogFacts, taken: int) -> Sequence[SegmentInfo]:
    """Return the segments after the first `taken` that a rule may delete."""
    count = taken
    for segment in facts.segments[taken:]:
        if segment.end_offset > facts.high_watermark or (segment.active and not segment.size_bytes):
            break
        count += 1
    return facts.segments[taken:count]


def _due_by_log_start(facts: LogFacts, _config: TopicConfig, _now: Timestamp, taken: int) -> int:
    return _count_while(
        lambda segment: not segment.active and segment.end_offset <= facts.log_start_offset,
        _removable(facts, taken),
    )


def _due_by_size(facts: LogFacts, config: TopicConfig, _now: Timestamp, taken: int) -> int:
    if not config.deletes or config.retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in facts.segments[taken:]) - config.retention_bytes
    count = 0
    for segment in _removable(facts, taken):
        if segment.size_bytes > excess:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _due_by_age(facts: LogFacts, config: TopicConfig, now: Timestamp, taken: int) -> int:
    if not config.deletes or config.retention_ms < 0:
        return 0
    return _count_while(
        lambda segment: now - segment.largest_timestamp > config.retention_ms, _removable(facts, taken)
    )


def _count_while(goes: Callable[[SegmentInfo], bool], segments: Sequence[SegmentInfo]) -> int:
    return sum(1 for _ in takewhile(goes, segments))


_Rule: TypeAlias = Callable[[LogFacts, TopicConfig, Timestamp, int], int]
"""Returns how many segments a rule deletes after the first `taken` segments, which earlier rules delete."""

_RULES: tuple[tuple[Reason, _Rule], ...] = (
    (Reason.LOG_START, _due_by_log_start),
    (Reason.SIZE, _due_by_size),
    (Reason.AGE, _due_by_age),
)


def apply_retention(log: Log, now: Timestamp) -> Decision:
    """Remove due segments; return the decision. Blocks. Raises OSError.

    If all segments of a follower's log are due, none of them is removed before the leader has rolled.
    """
    decision = _decide(log, now)
    if decision.roll_first:
        if log.parts.life.role is Role.FOLLOWER:
            return Decision((), roll_first=False)
        log.appender.roll("all segments deleted")
    for removal in decision.removals:
        log.replacer.delete_oldest_segments(removal.segments, limit_text(removal.reason, log.config))
    return decision


def due_start(log: Log) -> Offset:
    """Return where a log begins once all segments that are due now are removed. Raises OSError."""
    bases = log.chain.base_offsets
    due = _decide(log, log.parts.clock()).removed_segments
    return max(log.log_start_offset, bases[min(due, len(bases) - 1)])


def _decide(log: Log, now: Timestamp) -> Decision:
    segments = log.segments()
    offsets = log.offsets()
    facts = LogFacts(segments, offsets.log_start_offset, offsets.high_watermark)
    return decide_retention(facts, log.config, now)
