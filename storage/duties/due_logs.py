"""The duties of one log whose time has come: its roll, and its flush."""

from __future__ import annotations

from storage.log.log import Log
from storage.model import Timestamp


def roll_if_due(log: Log, now: Timestamp) -> None:
    """Close the active segment if it has been open for as long as it may (OSError)."""
    from storage.duties.plan import roll_due  # noqa: PLC0415 - who only reads rolls nothing

    reason = roll_due(log, now)
    if reason is not None:
        log.roll(reason.value)


def flush_if_due(log: Log, now: Timestamp) -> None:
    """Flush what flush.ms asks for. A flush that fails takes the log offline by itself."""
    # A clock that was set back makes it due.
    if log.unflushed_records and not 0 <= now - log.last_flush_ms < log.config.flush_ms:
        log.flush()
