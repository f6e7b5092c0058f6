"""The duties of one log whose time has come: its roll, and its flush."""

from __future__ import annotations

from topicfs.storage.log.log import Log
from topicfs.storage.model import Timestamp
from topicfs.storage.segment.roll import RollParameters, RollReason, roll_reason
from topicfs.storage.validation.batches import AppendRules


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
    active, rules = log.chain.active, AppendRules.of(log.config)
    return RollParameters(
        size_bytes=active.size,
        base_offset=active.base_offset,
        first_timestamp=active.first_timestamp,
        created_ms=active.created_ms,
        index_full=active.index_full,
        max_segment_bytes=rules.max_segment_bytes,
        max_wait_ms=rules.max_segment_ms - active.settings.jitter_ms,
        append_bytes=0,
        append_last_offset=log.log_end_offset,
        append_max_timestamp=now,
        now=now,
    )


def flush_if_due(log: Log, now: Timestamp) -> None:
    """Flush what flush.ms asks for. A flush that fails takes the log offline by itself."""
    # A clock that was set back makes it due.
    if log.parts.unflushed_records and not 0 <= now - log.parts.progress.last_flush_ms < log.config.flush_ms:
        log.appender.flush()
