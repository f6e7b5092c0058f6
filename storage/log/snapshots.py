"""Producer snapshots of a log without producers.

    <offset>.snapshot:  int16 version 1 | uint32 CRC-32C of what follows | int32 number of producers, 0

A broker writes one at every roll and at shutdown, and one without producers is always these ten bytes
(kafka-storage.md §3). Where a log has producers, their state is not known here and nothing is written: a missing
snapshot is rebuilt from the log, a wrong one would be believed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from storage.disk.filesystem import FileSystem
from storage.disk.names import SegmentFileKind, SegmentFileState, parse_segment_file, segment_file
from storage.model import Offset

EMPTY_SNAPSHOT = bytes.fromhex("0001 48674bc7 00000000")


class Snapshots:
    """The snapshots of one partition directory."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        self._directory = directory
        self._files = files
        self._producers = False
        self._newest: int = 0
        self._unsynced: tuple[str, ...] = ()
        for offset in _snapshot_offsets(directory, files):
            size = files.size(directory / segment_file(offset, SegmentFileKind.SNAPSHOT))
            self._producers |= size > len(EMPTY_SNAPSHOT)
            self._newest = offset

    def producer_seen(self) -> None:
        """A batch with a producer id came in: from now on there is state that is not kept here."""
        self._producers = True

    def take(self, offset: Offset) -> None:
        """Write the state before `offset`, unless there is a snapshot of it or of a later one."""
        if self._producers or offset <= self._newest or self._files.read_only:
            return
        name = segment_file(offset, SegmentFileKind.SNAPSHOT)
        self._files.write_bytes(self._directory / name, EMPTY_SNAPSHOT)
        self._unsynced = (*self._unsynced, name)
        self._newest = offset

    def sync(self) -> None:
        """What was written is on disk after this (blocking); not at each roll, for an append waits there."""
        names, self._unsynced = self._unsynced, ()
        for name in names:
            with suppress(FileNotFoundError):
                file = self._files.open(self._directory / name)
                file.sync()
                file.close()

    def truncate_to(self, offset: Offset) -> None:
        """Drop the empty ones above a log's new end. Others hold what is not known here and stay."""
        for snapshot in _snapshot_offsets(self._directory, self._files):
            path = self._directory / segment_file(snapshot, SegmentFileKind.SNAPSHOT)
            if snapshot > offset and self._files.size(path) == len(EMPTY_SNAPSHOT):
                self._files.unlink(path)
        self._newest = min(self._newest, offset)

    def moved(self, directory: Path) -> None:
        """Told after the partition's directory was renamed."""
        self._directory = directory


def _snapshot_offsets(directory: Path, files: FileSystem) -> list[Offset]:
    parsed = (parse_segment_file(entry.name) for entry in files.list_directory(directory))
    live_snapshot = (SegmentFileKind.SNAPSHOT, SegmentFileState.LIVE)
    return sorted(file.base_offset for file in parsed if file and (file.kind, file.state) == live_snapshot)
