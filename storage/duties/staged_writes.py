"""The duty of appending writes that other processes submitted to a data directory (`storage.staging`)."""

from __future__ import annotations

from threading import Event, Lock

from storage.directories.directories import Directories
from storage.errors import StorageError
from storage.messages import Say, reason_of
from storage.staging.area import StagingArea
from storage.staging.committing import Committer
from storage.staging.placing import CreateTopic, FindPartition


class StagedWrites:
    """Commits the writes of all data directories. Safe from any thread."""

    def __init__(
        self,
        directories: Directories,
        find: FindPartition,
        create: CreateTopic,
        *,
        warn: Say,
    ) -> None:
        self._directories = directories
        self._find = find
        self._create = create
        self._warn = warn
        self._running = Lock()
        self._stopping = Event()

    def run(self) -> None:
        """Commit what waits (blocking). Returns at once where another thread does it; a failure becomes a warning."""
        if not self._running.acquire(blocking=False):
            return
        try:
            for directory in self._directories.online:
                if not self._stopping.is_set():
                    self._commit(StagingArea(directory.data.path, directory.data.files))
        finally:
            self._running.release()

    def stop(self) -> None:
        """Finish the write that is being appended, and begin no other (blocking)."""
        self._stopping.set()
        with self._running:
            pass

    def _commit(self, area: StagingArea) -> None:
        committer = Committer(area, self._find, self._create, clock=self._directories.clock)
        try:
            committer.commit_waiting(self._warn, self._stopping.is_set)
        except (OSError, StorageError) as error:
            self._warn(f"{area.directory}: staged writes: {reason_of(error)}")
