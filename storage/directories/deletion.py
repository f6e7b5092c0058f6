"""Directories of deleted partitions, until their delay has passed and their files are unlinked."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from topicfs.storage.directories.data_directory import DataDirectory
from topicfs.storage.messages import Say, reason_of
from topicfs.storage.model import Timestamp

_RETRY_MS = 60_000


class _Deleted(NamedTuple):
    """A directory that is to be removed at `due`."""

    due: Timestamp
    delay_ms: int
    close_files: Callable[[], None]


class DeletedDirectories:
    """`-delete` directories with the time of their removal. Safe from any thread."""

    def __init__(self, data: DataDirectory, warn: Say) -> None:
        self._data = data
        self._warn = warn
        self._due: dict[str, _Deleted] = {}
        self._removed: list[Callable[[], None]] = []
        """Directories removed by the last pass: a reader may have opened a file in the moment it was unlinked."""
        self._lock = Lock()

    def add(self, name: str, due: Timestamp, close_files: Callable[[], None] = lambda: None) -> None:
        """Schedule the removal of the directory `name` at `due`; `close_files` is called then."""
        with self._lock:
            self._due[name] = _Deleted(due, due - self._data.clock(), close_files)

    def remove_due(self, now: Timestamp) -> None:
        """Remove those whose time has come (blocking); one that cannot be removed is tried again later."""
        with self._lock:
            # After a clock was set back none waits longer than its delay from now on.
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
