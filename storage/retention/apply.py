"""Applying retention to a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.config.topic import TopicConfig
from storage.model import PartitionOffsets, SegmentInfo, Timestamp
from storage.retention.decide import Decision, LogFacts, decide_retention, limit_text


class RetainedLog(Protocol):
    """The part of a log that retention needs."""

    @property
    def config(self) -> TopicConfig: ...

    def offsets(self) -> PartitionOffsets: ...

    def segments(self) -> Sequence[SegmentInfo]: ...

    def roll(self, reason: str) -> object:
        """Begin a new active segment at the log's end; `reason` is for the log."""
        ...

    def delete_oldest_segments(self, count: int, reason: str) -> object:
        """Take segments out of the log: its start moves first, then their files are renamed `.deleted`."""
        ...


def apply_retention(log: RetainedLog, now: Timestamp) -> Decision:
    """Remove what is due at `now` and return what that was (blocking; OSError).

    Appends may come in between: they only make the end grow, which takes no segment out of the decision.
    """
    segments = log.segments()
    offsets = log.offsets()
    facts = LogFacts(segments, offsets.log_start_offset, offsets.high_watermark)
    decision = decide_retention(facts, log.config, now)
    if decision.roll_first:
        log.roll("all of it goes")
    for removal in decision.removals:
        log.delete_oldest_segments(removal.segments, limit_text(removal.reason, log.config))
    return decision
