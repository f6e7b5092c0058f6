"""The options of loading a log, including the checkpointed offsets."""

from typing import NamedTuple

from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.log.flush import Flusher, NoFlusher
from topicfs.storage.model import Offset
from topicfs.storage.producers.state import DEFAULT_EXPIRATION_MS

_FIRST = Offset(0)


class Checkpointed(NamedTuple):
    """A partition's offsets in the data directory's checkpoints; zero if a checkpoint has no line for it."""

    recovery_point: Offset = _FIRST
    log_start_offset: Offset = _FIRST
    high_watermark: Offset | None = None
    """None if there is one replica: the high watermark is then always the log end."""
    reached: Offset = _FIRST
    """The largest offset that the log has reached according to the checkpoints other than that of log starts."""


class LoadOptions(NamedTuple):
    checkpointed: Checkpointed = Checkpointed()
    dense: bool = False
    """True if compaction never changed the log. A hole between two segments is then a loss: the log ends at the hole.

    Such a loss can look like a hole, because a crash may end a file exactly after a batch. If `dense` is False, a hole
    counts as made by a compaction.
    """
    failed_before: bool = False
    """True if the disk failed since the machine was started: recovered bytes are then written again."""
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS
    counts: EngineCounts = EngineCounts()
    """Counters of the engine that serves the log; if there is no engine, nobody reads them."""
    flusher: Flusher = NoFlusher()
    """Flushes the segments that were closed by rolls. With NoFlusher, the log's next flush does that."""
