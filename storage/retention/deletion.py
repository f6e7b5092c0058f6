"""The deletion of the segments that retention removes from a log."""

from __future__ import annotations

from topicfs.storage.log.life import Role
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.retention.decision import Decision, LogFacts, decide_retention, limit_text


def apply_retention(log: Log, now: Timestamp) -> Decision:
    """Remove what is due at `now`; return that (blocking; OSError). A follower keeps one segment until its leader rolls."""
    decision = _decide(log, now)
    if decision.roll_first:
        if log.parts.life.role is Role.FOLLOWER:
            return Decision((), roll_first=False)
        log.appender.roll("all of it goes")
    for removal in decision.removals:
        log.replacer.delete_oldest_segments(removal.segments, limit_text(removal.reason, log.config))
    return decision


def due_start(log: Log) -> Offset:
    """Return where a log begins once what is due now is removed (OSError)."""
    bases = log.chain.base_offsets
    due = _decide(log, log.parts.clock()).count
    return max(log.log_start_offset, bases[min(due, len(bases) - 1)])


def _decide(log: Log, now: Timestamp) -> Decision:
    segments = log.segments()
    offsets = log.offsets()
    facts = LogFacts(segments, offsets.log_start_offset, offsets.high_watermark)
    return decide_retention(facts, log.config, now)
