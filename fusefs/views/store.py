"""The place of view files: beside the log for a directory of one's own, in the user's cache for somebody else's.

What lies here only saves time. So nothing waits for the disk when it is written, failing to write it fails nothing,
and what cannot be read is measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections.abc import Collection
from pathlib import Path

from platformdirs import user_cache_path

from fusefs.views.sparse_index import Excerpt
from fusefs.views.view_file import (
    Section,
    ViewFile,
    ViewFileError,
    decode_view_file,
    encode_view_file,
    fits,
)
from storage.checkpoints.atomic import TEMPORARY_SUFFIX
from storage.disk.filesystem import FileSystem
from storage.disk.names import parse_view_file, view_file
from storage.errors import StorageError
from storage.model import Offset

_LOGGER = logging.getLogger(__name__)


class ViewStore:
    """The view files of one partition, in its own directory: a broker passes over files of this suffix."""

    def __init__(self, directory: Path, files: FileSystem, *, make_directory: bool = False) -> None:
        self.directory = directory
        self._files = files
        # A partition's own directory is never made here: a deleted topic must stay deleted.
        self._makes_directory = make_directory
        self._lock = threading.Lock()

    @classmethod
    def in_user_cache(cls, log: Path, files: FileSystem, *, cache: Path | None = None) -> ViewStore:
        """In the user's cache folder (or `cache`), a folder for each data directory and in it one for the partition at `log`."""
        data_directory = hashlib.sha256(str(log.parent).encode()).hexdigest()[:16]
        root = user_cache_path("topicfs") if cache is None else cache
        return cls(root / "views" / data_directory / log.name, files, make_directory=True)

    def load(self, base_offset: Offset, suffix: str, log: memoryview) -> Excerpt | None:
        """The remembered positions of a form's rendering of a segment; None without any that fit its log."""
        content = self._read(base_offset)
        section = content.sections.get(suffix) if content else None
        return section.known if section and fits(section.mark, log) else None

    def save(self, base_offset: Offset, suffix: str, section: Section, log: memoryview) -> None:
        """Remember a form's rendering of a segment, and keep the other forms' that still fit its log."""
        with self._lock:
            content = self._read(base_offset)
            others = content.sections if content else {}
            kept = {name: other for name, other in others.items() if fits(other.mark, log)}
            try:
                self._write(ViewFile(base_offset, {**kept, suffix: section}))
            except (OSError, StorageError) as error:
                _LOGGER.info("%s: not remembered: %s", self.directory / view_file(base_offset), error)

    def remove_orphans(self, segments: Collection[Offset]) -> None:
        """Remove the files of segments that are no more, and half-written ones."""
        with self._lock:
            try:
                names = [entry.name for entry in self._files.list_directory(self.directory)]
            except OSError:
                return
            for name in names:
                base_offset = parse_view_file(name)
                stale = base_offset not in segments or name.endswith(TEMPORARY_SUFFIX)
                if base_offset is not None and stale:
                    with contextlib.suppress(OSError, StorageError):
                        self._files.unlink(self.directory / name)

    def _read(self, base_offset: Offset) -> ViewFile | None:
        try:
            content = decode_view_file(self._files.read_bytes(self.directory / view_file(base_offset)))
        except (OSError, ViewFileError):
            return None
        return content if content.base_offset == base_offset else None

    def _write(self, content: ViewFile) -> None:
        """Replace the file in one step. A crash may leave an older one or a torn one: its checksum tells."""
        path = self.directory / view_file(content.base_offset)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        if self._makes_directory:
            self._make_directory(self.directory)
        self._files.write_bytes(temporary, encode_view_file(content))
        self._files.rename(temporary, path)

    def _make_directory(self, directory: Path) -> None:
        if not self._files.exists(directory):
            self._make_directory(directory.parent)
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(directory)
