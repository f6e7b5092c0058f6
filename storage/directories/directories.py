"""The data directories of one engine: which of them serve, and in which directory each partition is.

A directory *fails* if its disk fails (an I/O error, a directory that vanished): its partitions go offline, and the
other directories continue. A full disk does not make a directory fail: requests are refused until there is space.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import NamedTuple

from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.directories.checkpoints import CheckpointFiles, CheckpointWriter
from topicfs.storage.directories.data_directory import DataDirectory
from topicfs.storage.directories.reserve import Reserve
from topicfs.storage.disk.filesystem import is_full
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import DirectoryStatus, Timestamp, TopicPartition


class OpenDirectory:
    """A data directory that an engine has opened: its lock, checkpoints, reserve and failure."""

    def __init__(self, data: DataDirectory, warn: ReportLine) -> None:
        self.data = data
        self.failure: str | None = None
        """Why the directory does not serve; None while it serves."""
        self.lock: DirectoryLock | None = None
        self.clean = False
        """True if its last owner closed it cleanly, so that its logs need no recovery."""
        self.failed_before = False
        """True if the disk has failed since the machine was started. Data that counts as flushed may then be only in
        memory.
        """
        self.replicates = False
        """True if other directories have copies of its logs. Recovery then cuts off a log at its first hole."""
        self.below_high_watermark = False
        """True if another process owns the directory: only records below the checkpointed high watermarks are shown."""
        self.has_checkpoints = False
        self.reserve = Reserve(data.path, data.files, warn)
        self.writer = self._writer(CheckpointFiles.empty())
        self.deleted = DeletedDirectories(data, warn)
        self._warn = warn

    def __str__(self) -> str:
        return str(self.data.path)

    def take_lock(self) -> None:
        """Take the directory's lock, or check that it is still held. Raises DirectoryLockedError, OSError."""
        if self.lock is None:
            self.lock = DirectoryLock(self.data.path)
        else:
            self.lock.renew()

    def read_checkpoints(self) -> None:
        """Read the directory's checkpoints. Raises OSError."""
        present = CheckpointFiles.read(self.data.files, self.data.path, self._warn)
        self.writer = self._writer(present)
        self.has_checkpoints = True

    def _writer(self, present: CheckpointFiles) -> CheckpointWriter:
        return CheckpointWriter(self.data.path, self.data.files, present=present, lend=self.reserve.lend)

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()


class Directories:
    """All data directories of an engine, in the order given. Changed only under the manager's lock."""

    def __init__(
        self, opened: Sequence[OpenDirectory], warn: ReportLine, *, one_of_many: bool = False
    ) -> None:
        self.all = tuple(opened)
        data = opened[0].data
        self.files, self.clock, self.settings, self.read_only = (
            data.files,
            data.clock,
            data.settings,
            data.files.read_only,
        )
        self.one_of_many = one_of_many
        """True if other engines have directories with further partitions of the same topics."""
        self.on_failure: Callable[[OpenDirectory], None] = lambda _: None
        self._warn = warn
        self.by_partition: dict[TopicPartition, OpenDirectory] = {}
        """The directory of each partition that was found or made. `place` and `forget` change it."""
        self._counts: Counter[OpenDirectory] = Counter()

    def __str__(self) -> str:
        return ",".join(map(str, self.all))

    @property
    def online(self) -> tuple[OpenDirectory, ...]:
        return tuple(directory for directory in self.all if directory.failure is None)

    @property
    def failed(self) -> tuple[OpenDirectory, ...]:
        return tuple(directory for directory in self.all if directory.failure is not None)

    @property
    def config(self) -> EngineConfig:
        return self.settings.config

    def status(self) -> tuple[DirectoryStatus, ...]:
        return tuple(
            DirectoryStatus(
                path=str(directory),
                offline=None if directory.failure is None else str(directory.failure),
                partitions=self._counts[directory],
            )
            for directory in self.all
        )

    # The directory of each partition.

    def place(self, partition: TopicPartition, directory: OpenDirectory) -> None:
        self.forget([partition])
        self.by_partition[partition] = directory
        self._counts[directory] += 1

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            directory = self.by_partition.pop(partition, None)
            if directory is not None:
                self._counts[directory] -= 1

    def choose(self) -> OpenDirectory:
        """Return the serving directory with the fewest partitions. Raises OSError if no directory serves."""
        if not self.online:
            raise OSError(errno.EIO, f"{self.all[0].failure}")
        return min(self.online, key=lambda directory: self._counts[directory])

    def check_room(self) -> None:
        """Raise OSError if the remaining space of a disk is reserved for operations that free space."""
        for directory in self.online:
            if directory.reserve.append_gate.closed:
                raise OSError(
                    errno.ENOSPC,
                    "the disk is full; the remaining space is reserved for deletions",
                    str(directory),
                )

    # Failures.

    def fail(self, directory: OpenDirectory, error: OSError) -> None:
        """Stop serving from `directory`; its partitions are offline from now on."""
        if directory.failure is None:
            reason = _reason(error)
            directory.failure = f"{directory} failed: {reason}"
            self._warn(f"{directory}: failed, its partitions are offline: {reason}")
            self.on_failure(directory)

    def attempt(self, directory: OpenDirectory, action: Callable[[], object]) -> bool:
        """Run `action`; return False if its error makes the directory fail. Raises other OSErrors (disk full)."""
        try:
            action()
        except OSError as error:
            if not self.continues_without(directory, error):
                raise
            return False
        return True

    def continues_without(self, directory: OpenDirectory, error: OSError) -> bool:
        """Make the directory fail, unless its disk is full or no other directory serves; return whether it failed."""
        if is_full(error) or len(self.online) <= 1:
            return False
        self.fail(directory, error)
        return True

    def attempt_each(self, action: Callable[[OpenDirectory], object]) -> None:
        """Run `action` for each serving directory, as `attempt` does."""
        for directory in self.online:
            self.attempt(directory, lambda: action(directory))  # noqa: B023 (called before the next round)


def _reason(error: OSError) -> str:
    words = [error.strerror or str(error), *([str(error.filename)] if error.filename else [])]
    return ": ".join(words)


_RETRY_MS = 60_000


class _Deleted(NamedTuple):
    due: Timestamp
    delay_ms: int
    close_files: Callable[[], None]


class DeletedDirectories:
    """`-delete` directories, and when to remove them. Safe from any thread."""

    def __init__(self, data: DataDirectory, warn: ReportLine) -> None:
        self._data = data
        self._warn = warn
        self._due: dict[str, _Deleted] = {}
        self._removed: list[Callable[[], None]] = []
        """Functions that close the files of directories that the last pass removed. The next pass calls them again,
        because a reader may have opened a file just before the removal.
        """
        self._lock = Lock()

    def add(self, name: str, due: Timestamp, close_files: Callable[[], None] = lambda: None) -> None:
        """Schedule the removal of the directory `name` at the time `due`; the removal then calls `close_files`."""
        with self._lock:
            self._due[name] = _Deleted(due, due - self._data.clock(), close_files)

    def remove_due(self, now: Timestamp) -> None:
        """Remove the directories that are due. If a removal fails, a later call tries again. Blocks."""
        with self._lock:
            # If the clock was set back, no directory waits longer than its delay, counted from now.
            self._due = {
                name: one._replace(due=min(one.due, Timestamp(now + one.delay_ms)))
                for name, one in self._due.items()
            }
            due = {name: deleted for name, deleted in self._due.items() if deleted.due <= now}
            for name in due:
                del self._due[name]
            closing, self._removed = self._removed, []
        removed = [deleted.close_files for name, deleted in due.items() if self._remove(name, deleted, now)]
        for close_files in (*closing, *removed):
            close_files()
        with self._lock:
            self._removed += removed
        if removed:
            self._data.sync()

    def _remove(self, name: str, deleted: _Deleted, now: Timestamp) -> bool:
        try:
            self._data.remove_directory(name)
        except FileNotFoundError:
            return True
        except OSError as error:
            self._warn(f"{name}: cannot be removed: {reason_of(error)}")
            self.add(name, Timestamp(now + _RETRY_MS), deleted.close_files)
            return False
        return True
