"""The duty that appends writes that other processes submitted to a data directory (`storage.staging`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

from topicfs.storage.directories.data_directory import DataDirectory
from topicfs.storage.directories.directories import Directories
from topicfs.storage.engine import LogEngine
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import Timestamp
from topicfs.storage.staging.area import StagingArea
from topicfs.storage.staging.bell import Bell
from topicfs.storage.staging.committer import Committer
from topicfs.storage.staging.record import CommitRecord

STABLE_MTIME_MS = 1000
"""For this many milliseconds after a directory has changed, another change may leave its modification time as it is."""


class _Empty(NamedTuple):
    """A data directory that has no files of writes."""

    changed: Timestamp
    """Time of the directory's last change, by the disk's clock."""
    first: Timestamp
    """Time at which the directory was first found in this state, by this process's clock."""
    last: Timestamp
    """Time at which the directory was last listed."""


class StagedWrites:
    """Commits the submitted writes in all data directories. Safe from any thread."""

    def __init__(
        self,
        directories: Directories,
        engine: LogEngine,
        *,
        warn: ReportLine,
        record: CommitRecord | None = None,
    ) -> None:
        """Prepare the duty. `record`: a commit record that is shared with the other engines of a set of replicas."""
        self._directories = directories
        self._engine = engine
        self._warn = warn
        self._replicated = record is not None
        self._record = record or CommitRecord(
            directories.files, lambda: [one.data.path for one in directories.online]
        )
        # Engines of a set have copies of each other's writes, and must not append the same write at the same
        # time.
        self._running = self._record.committing
        self._stopping = Event()
        self._empty: dict[Path, _Empty] = {}
        self._bell: Bell | None = None
        self._has_listened = False

    def run_where_changed(self) -> None:
        """Commit waiting writes in directories that changed. The first call also starts the `Bell`. Blocks."""
        if not self._has_listened and not self._stopping.is_set():
            self._has_listened = True
            with suppress(OSError, ValueError):
                paths = [one.data.path.resolve() for one in self._directories.online]
                self._bell = Bell(min(paths), lambda: self._run(self._list_again, waits=True))
                if self._stopping.is_set():
                    self._bell.close()
        self._run(self._list_again)

    def run(self) -> None:
        """Commit waiting writes, unless another thread is committing them. A failure becomes a warning. Blocks."""
        self._run(lambda _: True)

    def _run(self, may_hold: Callable[[DataDirectory], bool], *, waits: bool = False) -> None:
        if not self._running.acquire(blocking=waits):
            return
        try:
            for directory in self._directories.online:
                if not self._stopping.is_set() and may_hold(directory.data):
                    data = directory.data
                    self._commit(
                        StagingArea(data.path, data.files, self._record, replicated=self._replicated)
                    )
        finally:
            self._running.release()

    def stop(self) -> None:
        """Finish the write that is being appended, and start no other write. Blocks."""
        self._stopping.set()
        if self._bell is not None:
            self._bell.close()
        with self._running:
            pass

    def _list_again(self, data: DataDirectory) -> bool:
        """Return whether there may be files of writes; True after an error, which the listing then reports."""
        try:
            now, changed = self._directories.clock(), data.files.modified_time_ms(data.path)
            known = self._empty.get(data.path)
            if known is None or known.changed != changed:
                known = _Empty(changed, now, now)
            elif known.last - known.first >= STABLE_MTIME_MS:
                return False
            if StagingArea(data.path, data.files).is_empty():
                self._empty[data.path] = known._replace(last=now)
                return False
        except OSError:
            pass
        self._empty.pop(data.path, None)
        return True

    def _commit(self, area: StagingArea) -> None:
        committer = Committer(area, self._engine, clock=self._directories.clock)
        try:
            committer.commit_waiting(self._warn, self._stopping.is_set)
        except (OSError, StorageError) as error:
            self._warn(f"{area.directory}: staged writes: {reason_of(error)}")
