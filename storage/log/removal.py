"""Files that left a log: first renamed, unlinked only after file.delete.delay.ms.

In between, readers that began before go on reading.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from storage.disk.filesystem import FileSystem
from storage.disk.names import SegmentFileKind, SegmentFileState
from storage.log.segment import Segment
from storage.model import Timestamp


class Removal:
    """The files of one partition that wait for their end."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._due: dict[str, Timestamp] = {}

    def __len__(self) -> int:
        return len(self._due)

    def retire(
        self, segment: Segment, directory: Path, due: Timestamp, *, keep_snapshot: bool = False
    ) -> list[str]:
        """Rename a segment's files to `.deleted`, to be unlinked at `due`; their names before that.

        `keep_snapshot`: another segment takes its place at the same base offset.
        """
        kept = SegmentFileKind.SNAPSHOT.value if keep_snapshot else "\0"
        names = [name for name in segment.file_names() if not name.endswith(kept)]
        for name in names:
            self._files.rename(directory / name, directory / (name + SegmentFileState.DELETED.value))
            self._due[name + SegmentFileState.DELETED.value] = due
        segment.retired()
        return names

    def remove_due(self, directory: Path, now: Timestamp) -> list[str]:
        """Unlink what is due; its names. A file that is gone already is no error."""
        names = [name for name, due in self._due.items() if due <= now]
        for name in names:
            with suppress(FileNotFoundError):
                self._files.unlink(directory / name)
            del self._due[name]
        return names
