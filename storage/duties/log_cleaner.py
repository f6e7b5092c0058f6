"""The cleaner: the duty that compacts logs, the dirtiest first (kafka-storage.md#cleaning-choice, Kafka's LogCleaner).

Appends, reads and other duties continue during its passes. Before code removes segments, it claims the log. After
each round the cleaner applies retention to the compacted logs. A log with a damaged batch is not cleaned until it is
loaded again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Protocol, TypeVar

from topicfs.storage.compaction.cleaner import Cleaned, CleaningStoppedError, clean, cleaning_params
from topicfs.storage.compaction.selection import CleaningPlan, plan
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.errors import CorruptionError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import Offset, Timestamp, TopicPartition
from topicfs.storage.retention import apply_retention

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")


class RunWithReserve(Protocol):
    """Runs work that frees space in a log's data directory, if possible even on a full disk."""

    def __call__(self, log: Log, action: Callable[[], T], /) -> T: ...


def plan_cleaning(log: Log, now: Timestamp) -> CleaningPlan:
    return plan(cleaning_params(log, log.parts.first_dirty_offset, now))


class LogCleaner:
    """Cleans the logs that `logs` returns. Safe from any thread."""

    def __init__(
        self,
        settings: LiveSettings,
        logs: Callable[[], Iterable[Log]],
        *,
        clock: Clock,
        warn: ReportLine,
        write_checkpoints: Callable[[], None],
        lend: RunWithReserve,
    ) -> None:
        """Make the cleaner; `write_checkpoints` writes to disk the first dirty offsets that have changed."""
        self._settings = settings
        self._logs = logs
        self._clock = clock
        self._warn = warn
        self._write_checkpoints = write_checkpoints
        self._lend = lend
        self._running = Lock()
        self._stopping = Event()
        self._guard = Lock()
        self._claimed: set[Log] = set()
        self._uncleanable: set[Log] = set()
        self._told: dict[Log, str] = {}
        self._paused: frozenset[TopicPartition] = frozenset()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Skip these partitions, in retention too, until the next call names others."""
        self._paused = frozenset(partitions)

    def run(self, now: Timestamp) -> None:
        """Clean due logs and apply retention, unless another thread does so. Blocks. Failures become warnings."""
        if not self._running.acquire(blocking=False):
            return
        try:
            if self._stopping.is_set():
                return
            self._forget_removed()
            self._clean_all(now)
            for log in self._compacted():
                if not self._stopping.is_set():
                    self._attempt(log, "retention", lambda log=log: self.retain(log, now))  # type: ignore[misc]
        finally:
            self._running.release()

    def stop(self) -> None:
        """Stop a running pass, and let no other pass begin. Each log is then either unchanged or cleaned. Blocks."""
        self._stopping.set()
        with self._running:
            pass

    def retains(self, log: Log) -> bool:
        return self._settings.config.cleaner_enable and log.config.compacts

    def retain(self, log: Log, now: Timestamp) -> None:
        """Apply retention to `log`; if it is being cleaned, leave this to the next call. Blocks. Raises OSError."""
        with self._claim(log) as claimed:
            if claimed:
                self._lend(log, partial(_retain, log, now))

    def _clean_all(self, now: Timestamp) -> None:
        failed: set[Log] = set()
        while not self._stopping.is_set():
            found = self._dirtiest(now, failed)
            if found is None:
                break
            log, due = found
            if not self._attempt(log, "compaction", lambda: self._clean(log, due, now)):  # noqa: B023 (called at once)
                failed.add(log)
        else:
            return  # The close of the engine writes the checkpoints.
        self._attempt_checkpoints()

    def _dirtiest(self, now: Timestamp, failed: set[Log]) -> tuple[Log, CleaningPlan] | None:
        due = []
        for log in self._compacted():
            if log not in failed and log not in self._uncleanable and len(log.chain.segments) > 1:
                found = plan_cleaning(log, now)
                if found.due:
                    due.append((log, found))
        return max(due, key=lambda entry: entry[1].cleanable_ratio, default=None)

    def _clean(self, log: Log, due: CleaningPlan, now: Timestamp) -> None:
        with self._claim(log) as claimed:
            if not claimed:
                raise CleaningStoppedError(f"{log.topic}-{log.number}: its retention is under way")
            began = self._clock()
            memory = self._settings.config.cleaner_dedupe_buffer_bytes
            done = self._clean_claimed(log, now, memory)
            log.parts.first_dirty_offset = min(done.end_offset, log.log_end_offset)
        counts = log.parts.counts.engine
        freed = max(done.bytes_before - done.bytes_after, 0)
        counts.cleanings += 1
        counts.cleaned_bytes += freed
        _log_pass(log, due, done, self._clock() - began)
        if done.end_offset <= due.first_dirty_offset:
            raise CleaningStoppedError(
                f"one batch at offset {done.end_offset} has more keys than log.cleaner.dedupe.buffer.size={memory} holds"
            )
        self._attempt_checkpoints()

    def _clean_claimed(self, log: Log, now: Timestamp, map_bytes: int) -> Cleaned:
        """Clean a log in one pass. Blocks.

        If the pass fails, later passes over this log may not use the reserve's space.
        """

        def run() -> Cleaned:
            return clean(
                log,
                plan_cleaning(
                    log, now
                ),  # Plan again, because a pass that found the disk full may have replaced some segments.
                now=now,
                map_bytes=map_bytes,
                proceed=lambda: self._may_go_on(log),
            )

        return run() if log in self._told else self._lend(log, run)

    def _may_go_on(self, log: Log) -> bool:
        return not self._stopping.is_set() and log.offline_reason is None and not self._pauses(log)

    def _pauses(self, log: Log) -> bool:
        return log.parts.partition in self._paused

    def _attempt(self, log: Log, what: str, act: Callable[[], None]) -> bool:
        """Run `act`, and return whether it succeeded.

        The same error is reported only once. Errors of a deleted log are not reported.
        """
        try:
            act()
        except CorruptionError as error:
            self._uncleanable.add(log)
            self._report_error(log, f"{log.topic}-{log.number}: not compacted any more: {error}")
        except Exception as error:  # noqa: BLE001 (whatever it is, the other logs are to be cleaned)
            if self._may_go_on(log):
                self._report_error(log, f"{log.topic}-{log.number}: {what}: {reason_of(error)}")
        else:
            self._told.pop(log, None)
            return True
        return False

    def _report_error(self, log: Log, text: str) -> None:
        if self._told.get(log) != text:
            self._told[log] = text
            self._warn(text)

    def _attempt_checkpoints(self) -> None:
        try:
            self._write_checkpoints()
        except (OSError, StorageError) as error:
            self._warn(f"cleaner checkpoint: {reason_of(error)}")

    def _compacted(self) -> list[Log]:
        return [
            log
            for log in self._logs()
            if log.config.compacts and log.offline_reason is None and not self._pauses(log)
        ]

    def _forget_removed(self) -> None:
        present = set(self._logs())
        self._uncleanable &= present
        self._told = {log: text for log, text in self._told.items() if log in present}

    @contextmanager
    def _claim(self, log: Log) -> Iterator[bool]:
        """Claim the right to remove the log's segments; yield False if another thread has claimed it."""
        with self._guard:
            mine = log not in self._claimed
            self._claimed.add(log)
        try:
            yield mine
        finally:
            if mine:
                with self._guard:
                    self._claimed.discard(log)


def _retain(log: Log, now: Timestamp) -> None:
    apply_retention(log, now)
    # The leader epochs may begin at a new log start. Their file is written here, where no caller waits.
    log.epochs.flush()


def _log_pass(log: Log, due: CleaningPlan, done: Cleaned, took_ms: int) -> None:
    reason = "max.compaction.lag.ms has passed" if due.overdue else "dirty enough"
    _LOGGER.info(
        "%s-%d: compacted offsets %d to %d: %s, cleanable ratio %.2f; segments %s -> %s, %d -> %d records, %d -> %d bytes (%d ms)",
        log.topic,
        log.number,
        due.first_dirty_offset,
        done.end_offset - 1,
        reason,
        due.cleanable_ratio,
        _names(done.segments_before),
        _names(done.segments_after),
        done.records_read,
        done.records_kept,
        done.bytes_before,
        done.bytes_after,
        took_ms,
    )


def _names(base_offsets: tuple[Offset, ...]) -> str:
    """Return text with the base offsets of the first and the last segment, and the number of segments."""
    if len(base_offsets) < 2:
        return ", ".join(f"{base:020}" for base in base_offsets)
    return f"{base_offsets[0]:020} to {base_offsets[-1]:020} ({len(base_offsets)})"
