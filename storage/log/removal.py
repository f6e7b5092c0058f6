"""Removal of a log's files: they are renamed, and unlinked after file.delete.delay.ms (kafka-storage.md#deleted-files).

Until then, readers that began earlier can continue. If the disk has no room for a new name, the file is unlinked
immediately. Unlinked files are closed, because an open descriptor or a mapping would keep their disk space.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.disk.filesystem import FileSystem, is_full
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState, view_file
from topicfs.storage.model import Timestamp
from topicfs.storage.segment.segment import Segment


class _Retired(NamedTuple):
    """A segment that was removed from its log, and whose files are not unlinked yet."""

    segment: Segment
    names: tuple[str, ...]
    due: Timestamp
    replaced: bool
    """True if another segment has the same base offset."""

    def without(self, names: Collection[str]) -> _Retired:
        """Return this entry without the files whose names a later segment with the same base offset has taken."""
        return self._replace(names=tuple(name for name in self.names if name not in names))


class Removal:
    """The removed segments of a partition whose files are not unlinked yet. Guarded by the log's lock."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._retired: list[_Retired] = []
        self._waiting: set[str] = set()
        """Names of all files that will be unlinked."""
        self._unlinked: list[Segment] = []
        """Segments that the last pass unlinked, to be closed again: a reader may have opened a file just before."""

    @property
    def pending(self) -> bool:
        return bool(self._retired or self._unlinked)

    def retire(
        self, segment: Segment, directory: Path, due: Timestamp, *, keep_snapshot: bool = False
    ) -> list[str]:
        """Rename a segment's files to `.deleted`, to be unlinked at the time `due`; return their former names.

        The view file that a mount made is unlinked immediately. `keep_snapshot`: another segment gets the same base
        offset. Raises OSError: the segment is then `removed` only if its `.log`, the first file, was renamed.
        """
        segment.end_activity()
        kept = SegmentFileKind.SNAPSHOT.value if keep_snapshot else "\0"
        names = [name for name in segment.file_names() if not name.endswith(kept)]
        deleted: list[str] = []
        try:
            for name in names:
                new_name = name + SegmentFileState.DELETED.value
                if self._rename(directory / name, directory / new_name):
                    deleted.append(new_name)
                if not segment.removed:
                    segment.retired()
        finally:
            if not self._waiting.isdisjoint(deleted):
                self._retired = [each.without(deleted) for each in self._retired]
            self._waiting.update(deleted)
            if segment.removed:
                self._retired.append(_Retired(segment, tuple(deleted), due, replaced=keep_snapshot))
        self._remove_view(segment, directory)
        return names

    def _rename(self, path: Path, new_path: Path) -> bool:
        """Rename a file. If a full disk has no room for a longer name, unlink the file and return False."""
        try:
            self._files.rename(path, new_path)
        except OSError as error:
            if not is_full(error):
                raise
            self._files.unlink(path)
            return False
        return True

    def remove_due(self, directory: Path, now: Timestamp, delay_ms: int) -> list[str]:
        """Unlink and close due files; return their names.

        No file waits longer than `delay_ms` from now, even if the clock was set back.
        """
        self._close_unlinked()
        latest = Timestamp(now + delay_ms)
        self._retired = [each._replace(due=min(each.due, latest)) for each in self._retired]
        names = []
        for retired in [each for each in self._retired if each.due <= now]:
            for name in retired.names:
                with suppress(FileNotFoundError):
                    self._files.unlink(directory / name)
                names.append(name)
            if not retired.replaced:
                # A mount that was still measuring the segment may have written a view file meanwhile.
                self._remove_view(retired.segment, directory)
            self._retired.remove(retired)
            self._waiting.difference_update(retired.names)
            self._unlinked.append(retired.segment)
            retired.segment.close()
        return names

    def close(self) -> None:
        self._close_unlinked()
        for retired in self._retired:
            retired.segment.close()

    def _remove_view(self, segment: Segment, directory: Path) -> None:
        path = directory / view_file(segment.base_offset)
        if self._files.exists(path):
            with suppress(
                OSError
            ):  # A view file that stays does no harm: it only saves time, and is recognized as another log's file.
                self._files.unlink(path)

    def _close_unlinked(self) -> None:
        for segment in self._unlinked:
            segment.close()
        self._unlinked = []
