"""The check of a whole data directory: its own files, each partition, and the checkpoints compared with the logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topicfs.inspection.check.partition import PartitionCheck
from topicfs.inspection.check.segment import Advance
from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean
from topicfs.storage.checkpoints.meta_properties import has_replicas, read_meta_properties
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.checkpoints.partition_metadata import topic_id_of
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.errors import CorruptionError, Finding, NotALogDirectoryError
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.topics.registry import read_copy
from topicfs.storage.topics.topic import lenient_config

CHECKPOINTS = {
    names.RECOVERY_POINTS: "recovery point",
    names.LOG_START_OFFSETS: "log start offset",
    names.HIGH_WATERMARKS: "high watermark",
    names.CLEANER_OFFSETS: "first dirty offset",
}
"""Files with offsets that must not be above the log end."""


@dataclass(slots=True)
class CheckSummary:
    """Counts of what was checked, updated during the check."""

    partitions: int = 0
    log_bytes: int = 0
    findings: int = 0
    topic_ids: dict[str, str] = field(default_factory=dict)


class DirectoryCheck:
    """The check of one data directory. The directory is not changed."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        self.directory = directory
        self._files = files
        self.summary = CheckSummary()
        self._in_use = False
        self._clean = is_marked_clean(files, directory)
        self.partitions: dict[TopicPartition, Path] = {}
        self._unknown_entries: list[str] = []
        self._checkpoints: dict[str, Mapping[TopicPartition, Offset]] = {}
        self._compacts: dict[str, bool] | None = None
        """Whether each topic that has settings is compacted; None if the settings cannot be read."""
        self._list()

    @property
    def in_use(self) -> bool:
        """True if a process has owned the directory since the check began. Unfinished changes are then not errors."""
        self._in_use = self._in_use or find_holder(self.directory) is not None
        return self._in_use

    @property
    def total_bytes(self) -> int:
        """Size of all segments' logs, for a progress bar."""
        return sum(self._log_bytes(directory) for directory in self.partitions.values())

    def findings(self, advance: Advance = lambda _: None) -> Iterator[Finding]:
        """Check everything. `advance` is called with the number of log bytes that were checked."""
        for finding in self._findings(advance):
            self.summary.findings += 1
            yield finding

    def _findings(self, advance: Advance) -> Iterator[Finding]:
        yield from self.own_findings()
        for partition in self.partitions:
            try:
                yield from self._check_partition(partition, advance)
            except FileNotFoundError:
                if not self.in_use:
                    raise

    def own_findings(self) -> Iterator[Finding]:
        """Check the directory's own files. Checkpoints are read before the logs, because logs may grow meanwhile."""
        for name in self._unknown_entries:
            yield Finding(
                self.directory / name, None, "not a partition's directory: a broker refuses to start with it"
            )
        yield from self._check_meta_properties()
        yield from self._check_settings()
        for name in CHECKPOINTS:
            try:
                self._checkpoints[name] = read_offsets(self._files, self.directory / name)
            except CorruptionError as error:
                yield Finding.of(error)

    def partition(self, partition: TopicPartition) -> PartitionCheck:
        """Return the check of one partition. Raises FileNotFoundError if the partition was deleted meanwhile."""
        return PartitionCheck(self.partitions[partition], self._files, in_use=self.in_use, clean=self._clean)

    def joined(self, partition: TopicPartition, check: PartitionCheck) -> Iterator[Finding]:
        """Compare a checked partition with the checkpoints and with the other partitions of its topic."""
        self.summary.partitions += 1
        yield from self._check_topic_id(partition, check.topic_id)
        cleaned = self._checkpoints.get(names.CLEANER_OFFSETS)
        if (
            self.replicates
            and cleaned is not None
            and partition not in cleaned
            and self._compacts is not None
        ):
            yield from () if self._compacts.get(partition.topic, False) else check.missing
        for name, offsets in self._checkpoints.items():
            offset = offsets.get(partition)
            if offset is not None and check.end_offset is not None and offset > check.end_offset:
                if self.in_use and read_offsets(self._files, self.directory / name).get(partition) != offset:
                    continue  # The checkpoint has changed meanwhile: the topic was deleted, or the log truncated.
                cause = (
                    f"{partition}: {CHECKPOINTS[name]} {offset} is beyond the log's end {check.end_offset}"
                )
                yield Finding(self.directory / name, None, cause)

    def _check_partition(self, partition: TopicPartition, advance: Advance) -> Iterator[Finding]:
        def counted(passed: int) -> None:
            self.summary.log_bytes += passed
            advance(passed)

        check = self.partition(partition)
        yield from check.findings(counted)
        yield from self.joined(partition, check)

    def _check_topic_id(self, partition: TopicPartition, topic_id: str | None) -> Iterator[Finding]:
        if topic_id is None:
            return
        known = self.summary.topic_ids.setdefault(partition.topic, topic_id)
        if known != topic_id and not (self.in_use and len(self._topic_ids(partition.topic)) < 2):
            cause = f"topic id {topic_id}, but another partition of {partition.topic} has {known}"
            yield Finding(self.partitions[partition] / names.PARTITION_METADATA, None, cause)

    def _topic_ids(self, topic: str) -> set[str]:
        """Return the ids in the directories of a topic's partitions: several if the topic was deleted and recreated."""
        places = [place for partition, place in self.partitions.items() if partition.topic == topic]
        return {one for place in places if (one := topic_id_of(place, self._files)) is not None}

    def _check_meta_properties(self) -> Iterator[Finding]:
        try:
            read_meta_properties(self._files, self.directory)
        except CorruptionError as error:
            yield Finding.of(error)

    def _check_settings(self) -> Iterator[Finding]:
        """Check the files that writers need: the topics' settings, and the records of commits and of producers."""
        path = self.directory / names.TOPIC_SETTINGS
        try:
            entries = read_copy(self.directory, self._files).entries
        except CorruptionError as error:
            yield Finding.of(error)
        else:
            self._compacts = {}
            for topic, entry in entries.items():
                config, problems = lenient_config(entry.overrides, TopicConfig())
                self._compacts[topic] = config.compacts
                for problem in problems:
                    yield Finding(path, None, f"{topic}: {problem}")
        for record in (CommitRecord, ProducerRegistry):
            try:
                record(self._files, tuple).read_copy(self.directory)
            except CorruptionError as error:
                yield Finding.of(error)

    def _list(self) -> None:
        for entry in self._files.list_directory(self.directory):
            if not entry.is_directory or entry.name in names.SKIPPED_DIRECTORIES:
                continue
            parsed = names.parse_partition_directory(entry.name)
            if parsed is None:
                self._unknown_entries.append(entry.name)
            elif parsed.mark is names.DirectoryMark.LIVE:
                self.partitions[parsed.partition] = self.directory / entry.name
        if not self._looks_like_log_directory():
            raise NotALogDirectoryError(
                f"{self.directory}: not a data directory: has neither {names.META_PROPERTIES} nor a partition"
            )

    @property
    def replicates(self) -> bool:
        """True if other directories have replicas of the directory's partitions."""
        return has_replicas(self._files, self.directory)

    def _looks_like_log_directory(self) -> bool:
        """Return whether this is a data directory. A name like X-11 alone does not make a directory a partition."""
        return self._files.exists(self.directory / names.META_PROPERTIES) or any(
            self._looks_like_partition(path) for path in self.partitions.values()
        )

    def _looks_like_partition(self, path: Path) -> bool:
        return self._files.exists(path / names.PARTITION_METADATA) or any(
            names.parse_segment_file(entry.name) for entry in self._files.list_directory(path)
        )

    def _log_bytes(self, directory: Path) -> int:
        total = 0
        for entry in self._files.list_directory(directory):
            file = names.parse_segment_file(entry.name)
            if file and file.kind is names.SegmentFileKind.LOG and file.state is names.SegmentFileState.LIVE:
                total += self._files.size(directory / entry.name)
        return total


def duplicates(examinations: Iterable[DirectoryCheck]) -> Iterator[Finding]:
    """Find partitions that are in two directories. A broker refuses to start with them."""
    places: dict[TopicPartition, Path] = {}
    for examination in examinations:
        for partition, place in examination.partitions.items():
            first = places.setdefault(partition, place)
            if first is not place and not examination.replicates:
                yield Finding(place, None, f"{partition} is in {first.parent}, too")
