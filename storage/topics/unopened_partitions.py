"""The duties of unopened partitions: a partition is opened when a duty of it is due.

A few partitions are examined at a time. The directory of a partition is listed once, to find the earliest time at
which retention may delete something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.directories import Directories
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState, parse_segment_file, segment_file
from topicfs.storage.indexes.time_index import SLOT
from topicfs.storage.model import Offset, Timestamp, TopicPartition
from topicfs.storage.topics.topic import LogTopic, Unopened

AT_A_TIME = 50
"""Number of partitions examined in one call, which then takes two milliseconds."""
NOW = Timestamp(0)


class UnopenedDuties:
    """Opens the partitions whose duties are due. The manager's duty lock allows one call at a time."""

    def __init__(self, directories: Directories, topics: Callable[[], Mapping[str, LogTopic]]) -> None:
        self._directories = directories
        self._topics = topics
        self._round: Iterator[tuple[LogTopic, Unopened]] = iter(())

    def open_due(self, now: Timestamp) -> None:
        """Examine the next few partitions, and open those whose duties are due. Blocks."""
        some = list(islice(self._round, AT_A_TIME))
        if not some:
            self._round = ((topic, one) for topic in self._topics().values() for one in topic.unopened())
            some = list(islice(self._round, AT_A_TIME))
        for topic, one in some:
            if one.partition is None and self._is_due(topic, one, now):
                one.open()

    def _is_due(self, topic: LogTopic, one: Unopened, now: Timestamp) -> bool:
        if one.examined_by is not topic.config:
            one.due, one.examined_by = self._due_at(topic, one), topic.config
        return one.due is not None and one.due < now

    def _due_at(self, topic: LogTopic, one: Unopened) -> Timestamp | None:
        partition = TopicPartition(topic.name, one.number)
        place = self._directories.by_partition.get(partition)
        if place is None:
            return None
        try:
            return due_at(
                place.data.partition_path(partition),
                files=place.data.files,
                config=topic.config,
                log_start_offset=place.writer.checkpointed(partition).log_start_offset,
            )
        except OSError:
            return NOW  # Opening the partition will report the reason of the error.


def due_at(
    directory: Path, *, files: FileSystem, config: TopicConfig, log_start_offset: Offset
) -> Timestamp | None:
    """Return the time by which a partition must be opened for its duties; None: never. Raises OSError."""
    present = [parse_segment_file(entry.name) for entry in files.list_directory(directory)]
    if any(file is not None and file.state is not SegmentFileState.LIVE for file in present):
        return NOW
    bases = sorted(file.base_offset for file in present if file and file.kind is SegmentFileKind.LOG)
    if not bases:
        return NOW
    if len(bases) > 1 and (config.compacts or bases[1] <= log_start_offset):
        return NOW
    return _retained_until(directory, bases, files, config) if config.deletes else None


def _retained_until(
    directory: Path, bases: list[Offset], files: FileSystem, config: TopicConfig
) -> Timestamp | None:
    """Return the earliest time at which retention may delete the first segment; None: never."""
    if config.retention_bytes >= 0:
        sizes = (files.size(directory / segment_file(base, SegmentFileKind.LOG)) for base in bases)
        if sum(sizes) > config.retention_bytes:
            return NOW
    if config.retention_ms < 0:
        return None
    if len(bases) == 1 and not files.size(directory / segment_file(bases[0], SegmentFileKind.LOG)):
        return None
    ends = files.read_ends(directory, segment_file(bases[0], SegmentFileKind.TIME_INDEX), SLOT.size)
    if len(ends.last) < SLOT.size:
        return NOW
    # The largest timestamp of a segment is at least that of its last time index entry.
    return Timestamp(SLOT.unpack(ends.last)[0] + config.retention_ms)
