"""The state of the cleaner for a log that was just loaded. Readers load logs too, so the cleaner is not imported here."""

from __future__ import annotations

import logging

from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.log.log import Log
from topicfs.storage.model import CleaningState, Offset, Timestamp

_LOGGER = logging.getLogger(__name__)


def adopt(log: Log, checkpoint: Offset | None, clock: Clock) -> Log:
    """Set the first dirty offset of a log that was just loaded, and show the cleaner's work in its status.

    A checkpoint outside the log becomes the log start, so that the file still shows that the log was compacted.
    """
    offsets = log.offsets()
    if checkpoint is not None and not offsets.log_start_offset <= checkpoint <= offsets.log_end_offset:
        _LOGGER.info(
            "%s-%d: cleaner checkpoint %d lies outside offsets %d to %d; the next cleaning starts over",
            log.topic,
            log.number,
            checkpoint,
            offsets.log_start_offset,
            offsets.log_end_offset,
        )
        checkpoint = offsets.log_start_offset
    log.parts.first_dirty_offset = checkpoint
    log.parts.describe_cleaning = lambda: _state(log, clock())
    return log


def _state(log: Log, now: Timestamp) -> CleaningState | None:
    if not log.config.compacts:
        return None
    from topicfs.storage.duties.log_cleaner import plan_cleaning  # noqa: PLC0415 - a log that compacts nothing needs none of it

    found = plan_cleaning(log, now)
    return CleaningState(found.first_dirty_offset, found.cleanable_ratio)
