"""The deletion of the segments that retention removes from a log."""

from __future__ import annotations

from storage.log.log import Log
from storage.model import Timestamp
from storage.retention.decision import Decision, LogFacts, decide_retention, limit_text


def apply_retention(log: Log, now: Timestamp) -> Decision:
    """Remove what is due at `now` and return what that was (blocking; OSError).

    Where all of it is due a follower waits for its leader, which begins another segment. Appends may come in between: they only make the end grow, which takes no segment out of the decision.
    """
    segments = log.segments()
    offsets = log.offsets()
    facts = LogFacts(segments, offsets.log_start_offset, offsets.high_watermark)
    decision = decide_retention(facts, log.config, now)
    if decision.roll_first:
        if not log.leads:
            return Decision((), roll_first=False)
        log.roll("all of it goes")
    for removal in decision.removals:
        log.delete_oldest_segments(removal.segments, limit_text(removal.reason, log.config))
    return decision
