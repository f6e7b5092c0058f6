"""The check of data directories in parts: segments that can be checked in any process, and their merged findings.

`inspection.check` has the rules, which are also those of `topicfs check`. This module only divides the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from topicfs.inspection.check.batches import SegmentFacts
from topicfs.inspection.check.directory import DirectoryCheck, duplicates
from topicfs.inspection.check.partition import PartitionCheck
from topicfs.inspection.check.segment import CheckedSegment, SegmentWork
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.paths import LOST_REPLICA
from topicfs.pipeline.places.place import SparkPlace
from topicfs.storage.checkpoints.meta_properties import MetaProperties, read_meta_properties
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import parse_segment_file
from topicfs.storage.errors import CorruptionError, Finding, NotALogDirectoryError
from topicfs.storage.model import NO_TIMESTAMP, Offset, TopicPartition


class VerificationRow(NamedTuple):
    """A row of the result: a segment or, if `segment` is None, findings outside of the segments."""

    directory: str
    topic: str | None = None
    partition: int | None = None
    segment: int | None = None
    """Base offset of the segment."""
    bytes: int | None = None
    """Size of the `.log` in bytes. The other numbers count only the valid batches of the segment."""
    batches: int | None = None
    records: int | None = None
    """Number of records, including control records."""
    first_offset: int | None = None
    last_offset: int | None = None
    largest_timestamp: int | None = None
    """The largest timestamp in milliseconds; None if no record has a timestamp."""
    codecs: Sequence[str] | None = None
    wrong: Sequence[Finding] = ()

    def of_segment(self, base_offset: int, facts: SegmentFacts, wrong: Sequence[Finding]) -> VerificationRow:
        """Return a row for a segment of this partition, with the segment's numbers."""
        return self._replace(
            segment=base_offset,
            bytes=facts.log_bytes,
            batches=facts.batches,
            records=facts.records,
            first_offset=facts.first_offset,
            last_offset=facts.last_offset,
            largest_timestamp=None if facts.largest_timestamp == NO_TIMESTAMP else facts.largest_timestamp,
            codecs=[codec.label for codec in sorted(facts.codecs)],
            wrong=wrong,
        )


def require_files(place: SparkPlace) -> SparkPlace:
    """Return the same place; raises PipelineError if it is a cluster."""
    if place.is_kafka:
        raise PipelineError(
            f"{place}: verify reads log files; run it on the brokers' machines, over their log.dirs"
        )
    return place


class _Part(NamedTuple):
    """A partition in one directory, with the range of its segments in `DirectoryVerification.work`."""

    examination: DirectoryCheck
    partition: TopicPartition
    check: PartitionCheck
    wrong: list[Finding]
    first: int
    end: int


class DirectoryVerification:
    """The check of several directories. Reads all checkpoints first, because they must be read before any log."""

    def __init__(self, directories: Sequence[Path], files: FileSystem) -> None:
        """Read the directories. Raises OSError; PipelineError if a directory is not a data directory."""
        self._files = files
        self.work: list[SegmentWork] = []
        """Segments to check, in any order and any process."""
        self._directory_rows: list[VerificationRow] = []
        self._parts: list[_Part] = []
        examinations = [_examination(directory, files) for directory in directories]
        self._find_duplicates(examinations)
        for examination in examinations:
            wrong = list(examination.own_findings())
            self._directory_rows += _beside(VerificationRow(str(examination.directory)), wrong)
            for partition in examination.partitions:
                self._add(examination, partition)

    def _find_duplicates(self, examinations: Sequence[DirectoryCheck]) -> None:
        """Find partitions that occur twice in one broker's directories. Two brokers may have the same partition."""
        brokers: dict[object, list[DirectoryCheck]] = {}
        for examination in examinations:
            brokers.setdefault(_broker(examination.directory, self._files), []).append(examination)
        for of_one in brokers.values():
            for finding in duplicates(of_one):
                self._directory_rows += _beside(VerificationRow(str(finding.file.parent)), [finding])

    def _add(self, examination: DirectoryCheck, partition: TopicPartition) -> None:
        first = len(self.work)
        try:
            check = examination.partition(partition)
            wrong = list(check.own_findings())
            self.work += check.segments()
        except FileNotFoundError:
            if not examination.in_use:
                raise
            del self.work[first:]
            return
        self._parts.append(_Part(examination, partition, check, wrong, first, len(self.work)))

    def rows(self, checked: Sequence[CheckedSegment | None]) -> Iterator[VerificationRow]:
        """Yield a row per segment, in the order of `work`, and rows for findings outside of the segments."""
        yield from self._directory_rows
        for part in self._parts:
            yield from self._part_rows(part, checked[part.first : part.end])

    def _part_rows(self, part: _Part, checked: Sequence[CheckedSegment | None]) -> Iterator[VerificationRow]:
        there = [found for found in checked if found is not None]
        joined = [*part.check.joined(there), *part.examination.joined(part.partition, part.check)]
        wrong = _by_segment([*part.wrong, *joined], {found.base_offset for found in there})
        row = VerificationRow(str(part.examination.directory), *part.partition)
        yield from _beside(row, wrong.pop(None, []))
        for base, facts, own, _ in there:
            yield row.of_segment(base, facts, [*own, *wrong.get(base, [])])


def _examination(directory: Path, files: FileSystem) -> DirectoryCheck:
    try:
        return DirectoryCheck(directory, files)
    except NotALogDirectoryError as error:
        raise PipelineError(f"{error}; {LOST_REPLICA}") from None


def _broker(directory: Path, files: FileSystem) -> object:
    """Return the broker of a directory. All directories that name no broker count as the same broker."""
    try:
        meta = read_meta_properties(files, directory)
    except CorruptionError:
        meta = None
    return (meta.cluster_id, meta.node_id) if isinstance(meta, MetaProperties) else None


def _beside(row: VerificationRow, wrong: Sequence[Finding]) -> list[VerificationRow]:
    """Return one row with the findings `wrong`, which are outside of the segments; no row if `wrong` is empty."""
    return [row._replace(wrong=wrong)] if wrong else []


def _by_segment(wrong: Iterable[Finding], bases: set[Offset]) -> dict[int | None, list[Finding]]:
    """Group findings by segment. The key is the base offset of the segment whose file a finding names.

    For any other file, the key is None.
    """
    found: dict[int | None, list[Finding]] = {}
    for one in wrong:
        file = parse_segment_file(one.file.name)
        base = file.base_offset if file is not None and file.base_offset in bases else None
        found.setdefault(base, []).append(one)
    return found
