"""The duties of one log whose time has come: its roll, and its flush."""

from __future__ import annotations

from topicfs.storage.log.log import Log
from topicfs.storage.model import Timestamp
from topicfs.storage.segment.roll import RollParameters, RollReason, roll_reason


def roll_if_due(log: Log, now: Timestamp) -> None:
    """Close the active segment if it has been open for as long as it may (OSError)."""
    reason = roll_due(log, now)
    if reason is not None:
        log.appender.roll(reason.value)


def roll_due(log: Log, now: Timestamp) -> RollReason | None:
    """Return why a record that came now would make the log roll, however small it was."""
    return roll_reason(roll_parameters(log, now)) if log.chain.active.size else None


def roll_parameters(log: Log, now: Timestamp) -> RollParameters:
    """Return what a roll of the log depends on, for a record that came now."""
    return log.parts.roll_parameters(0, log.log_end_offset, now, now)


def flush_if_due(log: Log, now: Timestamp) -> None:
    """Flush what flush.ms asks for. A flush that fails takes the log offline by itself."""
    # A clock that was set back makes it due.
    if log.parts.unflushed_records and not 0 <= now - log.parts.progress.last_flush_ms < log.config.flush_ms:
        log.appender.flush()
