"""The options of loading a log, the checkpointed offsets among them."""

from random import Random
from typing import NamedTuple

from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.log.flush import Flusher, NoFlusher
from topicfs.storage.log.producers import ProducerRules
from topicfs.storage.model import Offset

_FIRST = Offset(0)
_RANDOM = Random()  # noqa: S311 (jitter, no secret)
"""Random numbers of all logs that get none of their own: seeding a generator takes a tenth of the time of loading a log."""


class Checkpointed(NamedTuple):
    """The offsets of a partition in the data directory's checkpoints; zeros where they have none."""

    recovery_point: Offset = _FIRST
    log_start_offset: Offset = _FIRST
    high_watermark: Offset | None = None
    """None: one replica, the high watermark is always the log end."""
    reached: Offset = _FIRST
    """Offset that the log has reached, by checkpoints other than that of its start."""


class LoadOptions(NamedTuple):
    checkpointed: Checkpointed = Checkpointed()
    dense: bool = False
    """True if no compaction ever changed the log: a hole between two segments is then a loss, and the log ends there.

    A crash may end a file exactly behind a batch. Without `dense` a hole counts as compaction's, as in a broker.
    """
    failed_before: bool = False
    """True if the disk failed since the machine was started: what is recovered is written again, for caches may lie."""
    producer_rules: ProducerRules = ProducerRules()
    random: Random = _RANDOM
    """The source of the jitter of segment.ms."""
    counts: EngineCounts = EngineCounts()
    """The counts of the engine that serves the log; without an engine nobody reads them."""
    flusher: Flusher = NoFlusher()
    """Puts on disk what a roll closes; without one the next flush does."""
