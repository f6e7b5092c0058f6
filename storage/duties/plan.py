"""The plan of maintenance as values: which segments would roll or be deleted, what would be compacted, and why.

It uses the same functions by which the duties decide what to do. A segment whose time is over counts as rolled,
because the next record would roll it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from topicfs.storage.compaction.cleaner import cleaning_params
from topicfs.storage.compaction.selection import CleanableSegment, CleaningPlan, plan
from topicfs.storage.log.log import Log
from topicfs.storage.model import NO_TIMESTAMP, Offset, SegmentInfo, Timestamp, TopicPartition
from topicfs.storage.retention import LogFacts, Reason, decide_retention
from topicfs.storage.segment.roll import waited_ms

DELETE_ALL_REASON = "all segments deleted"


class PlannedRoll(NamedTuple):
    partition: TopicPartition
    base_offset: Offset
    size_bytes: int
    reason: str
    """A `RollReason`'s value, or `DELETE_ALL_REASON` if every segment is deleted."""
    open_ms: int
    """The time span that the segment covers up to now."""
    limit_ms: int
    """The longest time span that the segment may cover: segment.ms minus its jitter."""


class PlannedDeletion(NamedTuple):
    partition: TopicPartition
    base_offset: Offset
    size_bytes: int
    reason: Reason
    age_ms: int
    excess_bytes: int
    """Bytes by which the partition exceeds retention.bytes before this segment is deleted; negative if it is less."""
    limit: int
    """The value of the setting that is the reason. If the reason is not a setting, the log start offset."""


class PlannedCleaning(NamedTuple):
    partition: TopicPartition
    plan: CleaningPlan
    min_ratio: float


PlannedStep: TypeAlias = PlannedRoll | PlannedDeletion | PlannedCleaning


def plan_log(log: Log, now: Timestamp) -> tuple[PlannedStep, ...]:
    due = log.appender.roll_due(now)
    reason = due.value if due else None
    deletions, roll_first = _planned_deletions(log, now, rolled=reason is not None)
    if roll_first:
        reason = DELETE_ALL_REASON
    rolls = [] if reason is None else [_planned_roll(log, now, reason)]
    return (*rolls, *deletions, *_planned_cleaning(log, now, rolled=reason is not None))


def _planned_roll(log: Log, now: Timestamp, reason: str) -> PlannedRoll:
    active, parameters = log.chain.active, log.parts.roll_parameters(0, log.log_end_offset, now, now)
    return PlannedRoll(
        TopicPartition(log.topic, log.number),
        active.base_offset,
        active.size,
        reason,
        open_ms=waited_ms(parameters),
        limit_ms=parameters.max_wait_ms,
    )


def _planned_deletions(log: Log, now: Timestamp, *, rolled: bool) -> tuple[list[PlannedDeletion], bool]:
    """Return what retention would delete, and whether the log must roll first because all segments are deleted."""
    offsets, config = log.offsets(), log.config
    segments = _after_roll(log.segments()) if rolled else log.segments()
    decision = decide_retention(
        LogFacts(segments, offsets.log_start_offset, offsets.high_watermark), config, now
    )
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    limits = {
        Reason.LOG_START: offsets.log_start_offset,
        Reason.SIZE: config.retention_bytes,
        Reason.AGE: config.retention_ms,
    }
    reasons = [removal.reason for removal in decision.removals for _ in range(removal.segments)]
    found = []
    for segment, reason in zip(segments, reasons, strict=False):
        found.append(
            PlannedDeletion(
                TopicPartition(log.topic, log.number),
                segment.base_offset,
                segment.size_bytes,
                reason,
                age_ms=now - segment.largest_timestamp,
                excess_bytes=excess,
                limit=limits[reason],
            )
        )
        excess -= segment.size_bytes
    return found, decision.roll_first


def _after_roll(segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    *sealed, active = segments
    end = active.end_offset
    return [*sealed, active._replace(active=False), SegmentInfo(end, end, 0, NO_TIMESTAMP, True, ())]


def _planned_cleaning(log: Log, now: Timestamp, *, rolled: bool) -> Iterator[PlannedCleaning]:
    if not log.config.compacts:
        return
    params = cleaning_params(log, log.parts.first_dirty_offset, now)
    if rolled:
        fresh = CleanableSegment(log.log_end_offset, 0, NO_TIMESTAMP, None)
        params = params._replace(segments=[*params.segments, fresh])
    found = plan(params)
    if found.due:
        yield PlannedCleaning(TopicPartition(log.topic, log.number), found, params.min_dirty_ratio)
