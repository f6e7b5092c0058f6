"""The duties of one log that are due: its roll, and its flush."""

from __future__ import annotations

from topicfs.storage.log.log import Log
from topicfs.storage.model import Timestamp
from topicfs.storage.segment.roll import RollParameters, RollReason, roll_reason


def roll_if_due(log: Log, now: Timestamp) -> None:
    """Roll the log if its active segment is older than the topic's settings allow. Raises OSError."""
    reason = roll_due(log, now)
    if reason is not None:
        log.appender.roll(reason.value)


def roll_due(log: Log, now: Timestamp) -> RollReason | None:
    """Return why a record written now, however small, would roll the log; None if it would not."""
    return roll_reason(roll_parameters(log, now)) if log.chain.active.size else None


def roll_parameters(log: Log, now: Timestamp) -> RollParameters:
    """Return the values that decide whether a record written now rolls the log."""
    return log.parts.roll_parameters(0, log.log_end_offset, now, now)


def flush_if_due(log: Log, now: Timestamp) -> None:
    """Flush the log if flush.ms requires it. A failed flush also takes the log offline."""
    # If the last flush is in the future, the clock was set back: flush now.
    if log.parts.unflushed_records and not 0 <= now - log.parts.progress.last_flush_ms < log.config.flush_ms:
        log.appender.flush()
