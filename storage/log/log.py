"""One partition's log: the embedded engine's `storage.engine.Partition`.

Invariants, each changed in one place only:

* everything below the log end is in the files, whole batches alone. Readers never look beyond it.
* log start <= high watermark <= log end, and recovery point <= log end.
* the last segment of the chain is active; all others are trimmed and never change until they are removed.

A log is a reader, an appender, a replacer and a role around the same parts. One lock guards changes; readers hold none, for what
they go by is published as one immutable value (`storage.log.state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.log.appending.appender import LogAppender
from topicfs.storage.log.parts import LoadedLog, LogContext, LogParts, SmallFiles
from topicfs.storage.log.reading.reader import LogReader
from topicfs.storage.log.replacer import LogReplacer
from topicfs.storage.log.roles import LogRoles
from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.segment.chain import Chain


class Log:
    """One partition's log: see the module's text. `storage.recovery.loader.load_log` makes it."""

    # A dictionary of so many attributes would take 1.3 KB more, of each of many logs.
    __slots__ = (
        "_appender",
        "_newest_timestamp",
        "advance_high_watermark",
        "append",
        "append_as_follower",
        "begin_verification",
        "checkpoint",
        "delete_oldest_segments",
        "delete_records",
        "discard_segment",
        "drop_empty_segment",
        "earliest",
        "extend_as_follower",
        "flush",
        "flush_sealed",
        "follow",
        "follow_epoch",
        "follow_high_watermark",
        "follow_start",
        "glance",
        "hidden",
        "holes",
        "largest_timestamp",
        "latest",
        "lead",
        "lead_alone",
        "locate",
        "locate_timestamp",
        "mark_offline",
        "match_indexes",
        "new_cleaned_segment",
        "offset_for_timestamp",
        "offsets",
        "open_segment_file",
        "parts",
        "producers",
        "read",
        "read_as_follower",
        "remove_deleted_files",
        "remove_expired_producers",
        "replace_segments",
        "retire",
        "roll",
        "segment_of",
        "segments",
        "status",
        "truncate_fully_and_start_at",
        "truncate_to",
        "visible_end",
    )

    cuts: tuple[Offset, ...] = ()

    def __init__(
        self,
        directory: Path,
        loaded: LoadedLog,
        context: LogContext,
        *,
        config: TopicConfig,
        small_files: SmallFiles,
    ) -> None:
        self.parts = parts = LogParts(directory, loaded, context, config=config, small_files=small_files)
        reader, appender = LogReader(parts, loaded.hidden), LogAppender(parts)
        replacer, roles = LogReplacer(parts, appender), LogRoles(parts)
        self._appender = appender
        self.holes, self.hidden = loaded.holes, loaded.hidden
        """Holes that a loss of power may have left, for whoever has a copy to compare; and why it ends before its files do."""
        self.checkpoint: Callable[[Iterable[Log]], None] = lambda _: None
        """Puts recovery points on disk; set by the engine."""

        self.offsets = reader.offsets
        self.visible_end = reader.visible_end
        self.status = reader.status
        self.glance = reader.glance
        self.segments = reader.segments
        self.segment_of = reader.segment_of
        self.open_segment_file = reader.open_segment_file
        self.read = reader.read
        self.read_as_follower = reader.read_as_follower
        self.offset_for_timestamp = reader.offset_for_timestamp
        self.locate_timestamp = reader.locate_timestamp
        self.earliest = reader.earliest
        self.latest = reader.latest
        self.largest_timestamp = reader.largest_timestamp
        self.locate = reader.locate
        self._newest_timestamp = reader.newest_timestamp

        self.append = appender.append
        self.append_as_follower = appender.append_as_follower
        self.follow_epoch = appender.follow_epoch
        self.roll = appender.roll
        self.flush = appender.flush
        self.flush_sealed = appender.flush_sealed
        self.producers = appender.producers
        self.begin_verification = appender.begin_verification
        self.remove_expired_producers = appender.remove_expired_producers

        self.delete_records = replacer.delete_records
        self.follow_start = replacer.follow_start
        self.delete_oldest_segments = replacer.delete_oldest_segments
        self.new_cleaned_segment = replacer.new_cleaned_segment
        self.replace_segments = replacer.replace_segments
        self.discard_segment = replacer.discard_segment
        self.remove_deleted_files = replacer.remove_deleted_files
        self.drop_empty_segment = replacer.drop_empty_segment
        self.truncate_to = replacer.truncate_to
        self.truncate_fully_and_start_at = replacer.truncate_fully_and_start_at

        self.lead, self.lead_alone = roles.lead, roles.lead_alone
        self.follow = roles.follow
        self.advance_high_watermark = roles.advance_high_watermark
        self.follow_high_watermark = roles.follow_high_watermark
        self.extend_as_follower = roles.extend_as_follower
        self.match_indexes = roles.match_indexes

        self.mark_offline, self.retire = parts.mark_offline, parts.retire

    @property
    def topic(self) -> str:
        return self.parts.partition.topic

    @property
    def number(self) -> int:
        return self.parts.partition.partition

    @property
    def config(self) -> TopicConfig:
        return self.parts.config

    @property
    def directory(self) -> Path:
        return self.parts.directory

    @property
    def epochs(self) -> LeaderEpochs:
        return self.parts.epochs

    @property
    def chain(self) -> Chain:
        """The segments as they are now."""
        return self.parts.state.chain

    @property
    def log_start_offset(self) -> Offset:
        return self.parts.state.start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self.parts.state.end_offset

    @property
    def high_watermark(self) -> Offset:
        return self.parts.state.high_watermark

    @property
    def recovery_point(self) -> Offset:
        return self.parts.progress.recovery_point

    @property
    def unflushed_records(self) -> int:
        return self.parts.unflushed_records

    @property
    def last_flush_ms(self) -> Timestamp:
        return self.parts.progress.last_flush_ms

    @property
    def leads(self) -> bool:
        """True if it takes appends; False in a follower."""
        return self.parts.leads

    @property
    def offline_reason(self) -> str | None:
        """The reason why it takes no more writes; None while it does."""
        return self.parts.offline

    @property
    def rewrites(self) -> int:
        """Number of times compaction has replaced segments since this was loaded."""
        return self.parts.rewrites

    @property
    def unknown(self) -> str | None:
        """None: a log that was loaded knows its records, also once it is offline."""
        return None

    def find_bounds(self) -> None:
        """Do nothing: they are known."""

    @property
    def aborted(self) -> tuple[AbortedSpan, ...]:
        """The aborted transactions that end at the log start or above, by ascending last offset."""
        return self.parts.state.aborted

    @property
    def newest_timestamp(self) -> Timestamp:
        return self._newest_timestamp()

    def end_at_hand(self, offset: Offset) -> Offset:
        return max(offset, self.log_end_offset)

    def check_in_sync(self) -> None:
        """Do nothing: the only replica is in sync, and no topic needs more replicas than it has."""

    def update_config(self, config: TopicConfig) -> None:
        """Apply new settings; what is fixed for a segment takes effect with the next one."""
        with self.parts.lock:
            self.parts.configure(config)
            self.chain.active.bytes_until_due = 0  # A roll may be due earlier now.

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self.parts.listeners.add(listener)

    def wake(self) -> None:
        """Wake readers that wait for more: nothing more will come, or it comes from another log."""
        self.parts.listeners.notify()

    def sync(self) -> None:
        self._appender.flush()

    def flush_epochs(self) -> None:
        """Write the file of leader epochs where it lags behind; not once another log may own that path (blocking)."""
        parts = self.parts
        with parts.lock:
            if not parts.closed and not parts.gone:
                with suppress(OSError):  # On a full disk the next epoch, or the close, tries again.
                    parts.epochs.flush()

    def supersede(self) -> None:
        """Take note that another log serves in its place: reads end too, for its files may be others by now."""
        self.parts.gone = self.parts.superseded = True

    def rename(self, directory: Path) -> None:
        """Rename the partition's directory; its files are found there from now on."""
        parts = self.parts
        with parts.lock:
            parts.files.rename(parts.directory, directory)
            parts.directory = directory
            for segment in parts.state.chain.segments:
                segment.moved(directory)
            parts.epochs.moved(directory)
            parts.producers.moved(directory)

    def close(self) -> None:
        """Trim, flush and close every file (blocking). Idempotent. OSError: it was not closed in order."""
        parts = self.parts
        with parts.lock:
            if parts.closed:
                return
            parts.closed, parts.writable, parts.follows = True, False, False
            try:
                if parts.offline is None and not parts.files.read_only:
                    self._close_in_order()
            finally:
                self.close_files()

    def close_files(self) -> None:
        """Free every descriptor and mapping: also those that readers made use of after the close."""
        for segment in self.parts.state.chain.segments:
            segment.close()
        self.parts.removal.close()

    def _close_in_order(self) -> None:
        parts, state = self.parts, self.parts.state
        if state is parts.as_closed and not (parts.epochs.dirty or parts.producers.unsynced):
            return  # Nothing came since the last close: to put thousands of idle logs on disk again takes minutes.
        state.chain.active.deactivate()
        parts.producers.take(state.end_offset)
        parts.producers.sync()
        parts.epochs.flush()
        parts.progress.flush_all(parts.directory, state.chain, state.end_offset, parts.clock())
