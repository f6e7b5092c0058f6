"""One partition's log: the embedded engine's `storage.engine.Partition`.

* The files have whole batches up to the log end. Readers never read beyond it.
* log start <= high watermark <= log end, and recovery point <= log end.
* The last segment of the chain is active; the others are trimmed and do not change until they are removed.

A log reads; its `appender`, `replacer` and `roles` change its `parts` under the same lock. The first log that is not
read-only imports their modules. Readers hold no lock: they use one immutable value (`storage.log.state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.log.life import Event, Life
from topicfs.storage.log.parts import LoadedLog, LogContext, LogParts, SmallFiles
from topicfs.storage.log.reading.reader import LogReader
from topicfs.storage.model import Offset, ProducerId
from topicfs.storage.producers.append import VerificationGuard
from topicfs.storage.producers.entry import ProducerEntry
from topicfs.storage.segment.chain import Chain

if TYPE_CHECKING:
    from topicfs.storage.log.appending.appender import LogAppender
    from topicfs.storage.log.appending.roles import LogRoles
    from topicfs.storage.log.replacer import LogReplacer


class Log(LogReader):
    """One partition's log; see the module's docstring. `storage.recovery.loader.load_log` makes it."""

    cuts: tuple[Offset, ...] = ()
    unknown: str | None = None

    def __init__(
        self,
        directory: Path,
        loaded: LoadedLog,
        context: LogContext,
        *,
        config: TopicConfig,
        small_files: SmallFiles,
    ) -> None:
        parts = LogParts(directory, loaded, context, config=config, small_files=small_files)
        super().__init__(parts, loaded.hidden)
        self.topic, self.number = parts.partition
        self.append = self._refuse if parts.files.read_only else self.appender.append
        """The appender's own method, because a wrapper would take two percent of the time of a small append."""
        self.holes = loaded.holes
        """Offset ranges that a power loss may have removed; they are compared with another copy of the log, if there
        is one.
        """
        self.checkpoint: Callable[[Iterable[Log]], None] = lambda _: None
        """Writes recovery points to disk. The engine sets it."""

    @cached_property
    def appender(self) -> LogAppender:
        from topicfs.storage.log.appending.appender import LogAppender

        return LogAppender(self.parts)

    @cached_property
    def replacer(self) -> LogReplacer:
        from topicfs.storage.log.replacer import LogReplacer

        return LogReplacer(self.parts, self.appender)

    @cached_property
    def roles(self) -> LogRoles:
        from topicfs.storage.log.appending.roles import LogRoles

        return LogRoles(self.parts)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        self.parts.life.check_writable()
        raise AssertionError("a read-only log")

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
        return self.parts.state.chain

    @property
    def aborted(self) -> tuple[AbortedSpan, ...]:
        """The aborted transactions that end at or above the log start, by ascending last offset."""
        return self.parts.state.aborted

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
    def offline_reason(self) -> str | None:
        """Why the log accepts no writes; None if it accepts them."""
        return self.parts.life.reason

    @property
    def rewrites(self) -> int:
        """Number of times that compaction replaced segments since this log was loaded."""
        return self.parts.rewrites

    def find_bounds(self) -> None:
        """Do nothing, because the bounds of a local log are always known."""

    def available_end(self, offset: Offset) -> Offset:
        return max(offset, self.parts.state.end_offset)

    def check_in_sync(self) -> None:
        """Do nothing: the only replica is in sync, and no topic may require more replicas than it has."""

    def producers(self) -> list[ProducerEntry]:
        with self.parts.lock:
            return list(self.parts.producers.state)

    def begin_verification(
        self, producer_id: ProducerId, *, epoch: int, sequence: int, bumps_epoch: bool
    ) -> VerificationGuard | None:
        with self.parts.lock:
            return self.parts.producers.state.begin_verification(
                producer_id, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch
            )

    def delete_records(self, before: Offset) -> Offset:
        return self.replacer.delete_records(before)

    def sync(self) -> None:
        self.appender.flush()

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self.parts.listeners.add(listener)

    def update_config(self, config: TopicConfig) -> None:
        """Apply new settings; settings that are fixed for a segment take effect with the next segment."""
        with self.parts.lock:
            self.parts.configure(config)
            self.chain.active.bytes_until_due = 0  # With the new settings, a roll may be due earlier.

    def flush_epochs(self) -> None:
        """Write the leader-epoch file if it is out of date, unless another log may own the file's path. Blocks."""
        parts = self.parts
        with parts.lock:
            if parts.life.now in (Life.SERVING, Life.OFFLINE):
                with suppress(OSError):  # If the disk is full, the next epoch or the close writes the file.
                    parts.epochs.flush()

    def rename(self, directory: Path) -> None:
        """Rename the partition's directory, and use its new path from now on."""
        parts = self.parts
        with parts.lock:
            parts.files.rename(parts.directory, directory)
            parts.directory = directory
            for segment in parts.state.chain.segments:
                segment.moved(directory)
            parts.epochs.moved(directory)
            parts.producers.moved(directory)

    def close(self) -> None:
        """Trim, flush and close every file. Blocks. Idempotent. Raises OSError if the close was not clean."""
        parts = self.parts
        with parts.lock:
            before = parts.life.note(Event.CLOSE)
            if not before.is_open:
                return
            try:
                if before is Life.SERVING and not parts.files.read_only:
                    self._close_in_order()
            finally:
                self.close_files()

    def close_files(self) -> None:
        """Close all descriptors and mappings, including those that readers opened after the close."""
        for segment in self.parts.state.chain.segments:
            segment.close()
        self.parts.removal.close()

    def _close_in_order(self) -> None:
        parts, state = self.parts, self.parts.state
        if state is parts.as_closed and not (parts.epochs.dirty or parts.producers.unsynced):
            return  # Nothing has changed since the last clean close: flushing thousands of idle logs takes minutes.
        state.chain.active.deactivate()
        parts.producers.take(state.end_offset)
        parts.producers.sync()
        parts.epochs.flush()
        parts.progress.flush_all(parts.directory, state.chain, state.end_offset, parts.clock())
