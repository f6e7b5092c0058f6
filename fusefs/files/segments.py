"""`segments/`: the real files of a partition, byte for byte, read-only."""

from __future__ import annotations

from collections.abc import Sequence

from topicfs.fusefs.appending.flags import Access, refuse_writing
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes import nodes
from topicfs.storage.errors import SegmentDeletedError


class SegmentsDirectory(nodes.Directory):
    """The directory of all files of all segments."""

    __slots__ = ("_files",)

    def __init__(self, parent: nodes.Directory, name: str, files: PartitionFiles) -> None:
        super().__init__(files.context, parent, name)
        self._files = files

    def names(self) -> Sequence[str]:
        return [name for segment in self._files.partition.segments() or () for name in segment.files]

    def make(self, name: str) -> nodes.Node:
        if self._files.partition.segment_of(name) is None:
            raise FileError(Refusal.NOT_FOUND)
        return SegmentFile(self, name, self._files)


class SegmentFile(nodes.FileNode):
    """A file of a segment, mapped into memory and shown byte for byte."""

    __slots__ = ("_files", "_rewrites")

    def __init__(self, parent: nodes.Directory, name: str, files: PartitionFiles) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._rewrites = files.partition.rewrites

    def is_current(self) -> bool:
        """Return whether the name still means the looked-up file: compaction replaces files under the same name."""
        return (
            self._rewrites == self._files.partition.rewrites
            and self._files.partition.segment_of(self.name) is not None
        )

    def attributes(self) -> nodes.Attributes:
        segment = self._files.partition.segment_of(self.name)
        if segment is None or not self.is_current():
            raise FileError(Refusal.GONE)
        if self.name.endswith(".log"):
            size = segment.size_bytes
        else:
            size = len(self._files.partition.open_segment_file(self.name))
        timeout = 0.0 if segment.active else nodes.LONG_CACHE_SECONDS
        if timeout:
            self._files.note_attributes_cached(self.node_id)
        return nodes.Attributes(
            nodes.READ_MODE, size, nodes.nanoseconds(segment.largest_timestamp), timeout, self.node_id
        )

    async def open(self, access: Access, pid: int) -> Handle:
        refuse_writing(access)
        if not self.is_current():
            raise FileError(Refusal.GONE)
        return SegmentHandle(self._files, self.name)


class SegmentHandle(Handle):
    """Maps the file for each read, so that an open handle never keeps the disk space of a deleted segment in use."""

    def __init__(self, files: PartitionFiles, name: str) -> None:
        self._files = files
        self._name = name
        self._rewrites = files.partition.rewrites

    async def read(self, position: int, size: int) -> memoryview:
        self._files.check_exists()
        try:
            content = self._files.partition.open_segment_file(self._name)
        except FileNotFoundError as error:
            raise SegmentDeletedError(f"{self._name} was deleted") from error
        if self._rewrites != self._files.partition.rewrites:
            raise SegmentDeletedError(f"{self._name} was rewritten")
        return content[position : position + size]
