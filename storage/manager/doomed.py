"""Directories of deleted partitions, until their delay has passed and their files are unlinked."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from storage.manager.data_directory import DataDirectory
from storage.messages import reason_of
from storage.model import Timestamp

_RETRY_MS = 60_000


class DoomedDirectories:
    """`-delete` directories with the time of their removal. Safe from any thread."""

    def __init__(self, data: DataDirectory, warn: Callable[[str], None]) -> None:
        self._data = data
        self._warn = warn
        self._due: dict[str, Timestamp] = {}
        self._lock = Lock()

    def add(self, name: str, due: Timestamp) -> None:
        """Let the directory `name` be removed at `due`."""
        with self._lock:
            self._due[name] = due

    def remove_due(self, now: Timestamp) -> None:
        """Remove those whose time has come (blocking); one that cannot be removed is tried again later."""
        with self._lock:
            names = [name for name, due in self._due.items() if due <= now]
            for name in names:
                del self._due[name]
        removed = [name for name in names if self._remove(name, now)]
        if removed:
            self._data.sync()

    def _remove(self, name: str, now: Timestamp) -> bool:
        try:
            self._data.remove_directory(name)
        except FileNotFoundError:
            return True
        except OSError as error:
            self._warn(f"{name}: cannot be removed: {reason_of(error)}")
            self.add(name, Timestamp(now + _RETRY_MS))
            return False
        return True
