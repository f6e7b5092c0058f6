"""A small file of entries, with a copy in every serving data directory.

If copies differ in an entry, the newest version of the entry counts. Damaged copies are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Generic, TypeVar

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError

Key = TypeVar("Key")
Entry = TypeVar("Entry")


class RecordCopies(ABC, Generic[Key, Entry]):
    """A small file of entries by key, with its copies. Safe from any thread."""

    file_name: str
    age: Callable[[Any], Any]
    """Returns a value that orders the entries of one key: a newer entry has a greater value."""
    _lock: RLock
    """Held during each change in this process, because several objects may use the same files."""

    def __init_subclass__(cls) -> None:
        cls._lock = RLock()

    def __init__(
        self,
        files: FileSystem,
        directories: Callable[[], Sequence[Path]],
        failed: Callable[[Path, OSError], None] = lambda _directory, _error: None,
    ) -> None:
        """Make the object without reading a file.

        If only some of the copies can be written, `failed` is called for each directory whose copy cannot be written.
        """
        self._files = files
        self.directories = directories
        self.failed = failed
        self._problem: CorruptionError | OSError | None = None

    @abstractmethod
    def _parse_file(self, data: bytes, path: Path, prefix: str) -> dict[Key, Entry]:
        """Parse the entries; those whose keys do not begin with `prefix` may be left out. Raises CorruptionError."""

    @abstractmethod
    def _encoded(self, entries: Mapping[Key, Entry]) -> bytes:
        """Return the content of a file with these entries."""

    def read_copy(self, directory: Path, prefix: str = "") -> dict[Key, Entry]:
        """Return the entries of one copy; those whose keys do not begin with `prefix` may be left out.

        Raises CorruptionError, OSError.
        """
        path = directory / self.file_name
        try:
            data = self._files.read_bytes(path)
        except FileNotFoundError:
            return {}
        return self._parse_file(data, path, prefix)

    def write_copy(self, directory: Path, entries: Mapping[Key, Entry]) -> None:
        """Replace one copy. Blocks. Raises OSError."""
        write_atomically(self._files, directory / self.file_name, self._encoded(entries))

    def read(self, prefix: str = "") -> dict[Key, Entry]:
        """Return the newest entries; `prefix` as in `read_copy`. Raises CorruptionError, OSError."""
        newest: dict[Key, Entry] = {}
        for copy in self._copies(prefix)[0].values():
            for key, one in copy.items():
                newest[key] = max(newest.get(key, one), one, key=self.age)
        return newest

    def update_copies(self, stale: Collection[Path] = ()) -> None:
        """Write the newest entries to each directory whose copy is missing, older or damaged. Blocks.

        `stale`: directories that were not in use until now, so their copies may be old. If one copy is damaged and
        all undamaged copies are in stale directories, only the damaged copy may have the newest entries. No entry can
        then be read until the damaged copy is removed. Raises CorruptionError, OSError.
        """
        with self._lock:
            self._problem = None
            copies, problem = self._copies()
            if problem is not None and not any(one not in stale for one in copies):
                self._problem = problem
                raise problem
            newest = self.read()
            self._write(newest, [one for one in self.directories() if newest and copies.get(one) != newest])

    def _copies(
        self, prefix: str = ""
    ) -> tuple[dict[Path, dict[Key, Entry]], CorruptionError | OSError | None]:
        """Return the undamaged copies, and the error of a damaged copy or, if all copies are undamaged, None."""
        if self._problem is not None:
            raise self._problem
        copies, problem = {}, None
        for directory in self.directories():
            try:
                if self._files.exists(directory / self.file_name):
                    copies[directory] = self.read_copy(directory, prefix)
            except (CorruptionError, OSError) as error:
                problem = error
        if problem is not None and not copies:
            raise problem
        return copies, problem

    def _write(self, entries: Mapping[Key, Entry], directories: Sequence[Path]) -> None:
        self._write_each(directories, lambda directory: self.write_copy(directory, entries))

    def _write_each(self, directories: Sequence[Path], write: Callable[[Path], None]) -> None:
        failed: dict[Path, OSError] = {}
        for directory in directories:
            try:
                write(directory)
            except OSError as error:
                failed[directory] = error
        for directory, problem in failed.items():
            if len(failed) == len(self.directories()):
                raise problem
            self.failed(directory, problem)
