"""The options of loading a log, including the checkpointed offsets."""

from random import Random
from typing import NamedTuple

from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.log.flush import Flusher, NoFlusher
from topicfs.storage.log.producers import ProducerRules
from topicfs.storage.model import Offset

_FIRST = Offset(0)
_RANDOM = Random()  # noqa: S311 (jitter, no secret)
"""Shared by the logs that get no generator of their own: seeding one takes a tenth of the time of loading a log."""


class Checkpointed(NamedTuple):
    """A partition's offsets in the data directory's checkpoints; zero if a checkpoint has none."""

    recovery_point: Offset = _FIRST
    log_start_offset: Offset = _FIRST
    high_watermark: Offset | None = None
    """None if there is one replica: the high watermark is then always the log end."""
    reached: Offset = _FIRST
    """Offset that the log has reached, according to the checkpoints other than that of its start."""


class LoadOptions(NamedTuple):
    checkpointed: Checkpointed = Checkpointed()
    dense: bool = False
    """True if compaction never changed the log: a hole between two segments is then a loss, and the log ends there.

    A crash may end a file exactly after a batch. Without `dense`, a hole is taken as compaction's, as by a broker.
    """
    failed_before: bool = False
    """True if the disk failed since the machine was started: recovered bytes are written again."""
    producer_rules: ProducerRules = ProducerRules()
    random: Random = _RANDOM
    """The source of the jitter of segment.ms."""
    counts: EngineCounts = EngineCounts()
    """Counters of the engine that serves the log; without an engine nobody reads them."""
    flusher: Flusher = NoFlusher()
    """Flushes the segments that rolls close; without one, the log's next flush does."""
