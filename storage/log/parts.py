"""The parts of a log that its reader, appender and replacer share."""

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.disk.filesystem import Clock, FileSystem
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.engine import Listeners
from topicfs.storage.errors import NotLeaderError
from topicfs.storage.log.flush import Flusher, FlushProgress
from topicfs.storage.log.life import Event, LogLife
from topicfs.storage.log.producers import LogProducers
from topicfs.storage.log.removal import Removal
from topicfs.storage.log.state import LogState
from topicfs.storage.model import NO_LEADER_EPOCH, CleaningState, Offset, Timestamp, TopicPartition
from topicfs.storage.segment.chain import Chain, aborted_spans
from topicfs.storage.segment.roll import RollParameters, SegmentDirectory, segment_settings
from topicfs.storage.segment.segment import Segment
from topicfs.storage.validation.batches import AppendRules

_LOGGER = logging.getLogger(__name__)


class LogContext(NamedTuple):
    partition: TopicPartition
    files: FileSystem
    clock: Clock
    flusher: Flusher
    counts: EngineCounts


class Hole(NamedTuple):
    """Offsets that are in neither of two adjacent segments: compaction or a power loss removed them."""

    start: Offset
    stop: Offset
    """The exclusive end of the missing offsets."""


class LoadedLog(NamedTuple):
    """The result of loading a partition's directory."""

    chain: Chain
    end_offset: Offset
    start_offset: Offset
    recovery_point: Offset
    high_watermark: Offset | None
    """None if there is one replica: the high watermark is then always equal to the log end."""
    as_closed: bool = False
    """True if the last owner closed the log cleanly and loading changed no file: everything is on disk."""
    holes: tuple[Hole, ...] = ()
    """Holes between segments that were not flushed."""
    hidden: str | None = None
    """Why readers of a read-only log do not see all batches of its files; None if they see all of them."""


class SmallFiles(NamedTuple):
    epochs: LeaderEpochs
    producers: LogProducers
    removal: Removal


class AppendGate:
    """A flag with which a data directory's reserve stops appends to all logs of the directory."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False
        """True if the remaining disk space is reserved for operations that free space. Appends are then refused."""

    @staticmethod
    def refusal(directory: Path) -> OSError:
        """Return the error of an append while `closed` is True."""
        return OSError(
            errno.ENOSPC, "the disk is full; records are accepted again once there is space", str(directory)
        )


class LogParts:
    """The parts of a log, and its published state. Changed under `lock`; any thread may read `state` without it."""

    def __init__(
        self,
        directory: Path,
        loaded: LoadedLog,
        context: LogContext,
        *,
        config: TopicConfig,
        small_files: SmallFiles,
    ) -> None:
        self.lock = threading.Lock()
        """Held while the log is changed. A reader takes it only if files were renamed during its read."""
        self.directory = directory
        self.partition, self.files, self.clock, self.flusher, counts = context
        # At most thirty attributes: for more, Python looks up each attribute in a dictionary.
        self.counts = counts.topic(self.partition.topic)
        """Counters of the log's topic and of its engine."""
        self.epochs, self.producers, self.removal = small_files
        self.configure(config)
        self.leader_epoch = self.epochs.latest.epoch if self.epochs.latest else 0
        self.noted_epoch = self.latest_epoch()
        """The latest epoch in the file of leader epochs."""
        self.progress = FlushProgress(self.files, loaded.recovery_point, self.clock(), counts.flushes)
        self.listeners = Listeners()
        self.append_gate = AppendGate()
        """Refuses appends while the disk is low on space. The engine sets the gate of the data directory."""
        self.life = LogLife(self.partition, read_only=self.files.read_only)
        self.first_dirty_offset: Offset | None = None
        """The first offset that compaction has not cleaned; None before the first cleaning."""
        self.describe_cleaning: Callable[[], CleaningState | None] = lambda: None
        """Returns how much compaction still has to do. The log's cleaner sets it."""
        self.rewrites = 0
        self.state = self.with_first_unstable(
            LogState(
                chain=loaded.chain,
                end_offset=loaded.end_offset,
                end_position=loaded.chain.active.size,
                start_offset=loaded.start_offset,
                replicated=loaded.high_watermark,
                first_unstable=None,
                aborted=aborted_spans(loaded.chain.segments, loaded.start_offset),
                places={},
            )
        )
        """The state that readers use: one immutable value."""
        self.as_closed = self.state if loaded.as_closed else None
        """State at the last clean close; None if a load or a roll has changed a file since."""

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.rules = AppendRules.of(config)

    def with_first_unstable(self, state: LogState) -> LogState:
        """Return `state` with its first unstable offset updated after transactions or the high watermark changed."""
        producers = self.producers.state
        producers.high_watermark_moved(state.high_watermark)
        first = producers.first_unstable_offset
        if first is not None:
            first = max(first, state.start_offset)
        return state if first == state.first_unstable else state._replace(first_unstable=first)

    @property
    def unflushed_records(self) -> int:
        return self.state.end_offset - self.progress.recovery_point

    def latest_epoch(self) -> int:
        latest = self.epochs.latest
        return latest.epoch if latest else NO_LEADER_EPOCH

    def create_segment(self, base_offset: Offset) -> Segment:
        """Make an empty segment, after removing files that an unfinished roll left behind."""
        for kind in SegmentFileKind:
            path = self.directory / segment_file(base_offset, kind)
            if kind is not SegmentFileKind.SNAPSHOT and self.files.exists(path):
                self.files.unlink(path)
        directory = SegmentDirectory(self.directory, self.files, self.clock)
        return Segment.create(directory, base_offset, segment_settings(self.config))

    def roll_parameters(
        self, append_bytes: int, last_offset: int, max_timestamp: int, now: Timestamp
    ) -> RollParameters:
        """Return the values that decide whether to roll before an append."""
        active, rules = self.state.chain.active, self.rules
        return RollParameters(
            size_bytes=active.size,
            base_offset=active.base_offset,
            first_timestamp=active.first_timestamp,
            created_ms=active.created_ms,
            index_full=active.index_full,
            max_segment_bytes=rules.max_segment_bytes,
            max_wait_ms=rules.max_segment_ms - active.settings.jitter_ms,
            append_bytes=append_bytes,
            append_last_offset=last_offset,
            append_max_timestamp=max_timestamp,
            now=now,
        )

    def check_leads(self) -> None:
        """Raise NotLeaderError if the log is a follower; otherwise raise what `LogLife.check_writable` raises."""
        self.life.check_writable()
        if not self.life.takes_appends:
            raise NotLeaderError(
                f"{self.partition}: {self.directory} has a follower; its leader takes appends"
            )

    def mark_offline(self, reason: str) -> None:
        """Accept no more writes until the partition is loaded again; reads continue. The first reason given is kept."""
        self.life.note(Event.FAIL, reason)
        _LOGGER.error("%s: offline: %s", self.partition, reason)
