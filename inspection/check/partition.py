"""The check of one partition directory: its small files, its segments, and whether they fit together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from topicfs.inspection.check.segment import (
    Advance,
    CheckedSegment,
    SegmentWork,
    check_segment,
    lasting,
    read_epochs,
)
from topicfs.storage.checkpoints.partition_metadata import read_topic_id
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptBatchError, CorruptionError, Finding
from topicfs.storage.model import Offset, Position
from topicfs.storage.producers.snapshot import decode as decode_snapshot


class PartitionCheck:
    """The check of one partition. Call `own_findings`, check each of `segments` in any process, then call `joined`."""

    def __init__(self, directory: Path, files: FileSystem, *, in_use: bool, clean: bool) -> None:
        """List the directory. Raises FileNotFoundError if it does not exist.

        `clean` is True if the data directory has the clean-shutdown mark.
        """
        self._directory = directory
        self._in_use, self._clean = in_use, clean
        self._files = files
        self.topic_id: str | None = None
        self.end_offset: Offset | None = None
        """The exclusive end of all offsets, including damaged batches. Set by `joined`, unless the last segment
        vanished.
        """
        self.missing: list[Finding] = []
        """Offsets that are in no segment. Set by `joined`. Compaction leaves such gaps as well."""
        found = [names.parse_segment_file(entry.name) for entry in files.list_directory(directory)]
        self._deletes = any(file and file.state is names.SegmentFileState.DELETED for file in found)
        self._live = [file for file in found if file and file.state is names.SegmentFileState.LIVE]
        self._bases = sorted(
            file.base_offset for file in self._live if file.kind is names.SegmentFileKind.LOG
        )
        self._epochs, self._epochs_problem = read_epochs(files, directory)

    def findings(self, advance: Advance) -> Iterator[Finding]:
        """Check everything. The findings of a segment come after the whole segment was checked."""
        yield from self.own_findings()
        segments = []
        for work in self.segments():
            checked = check_segment(work, self._files, advance)
            if checked is not None:
                yield from checked.wrong
                segments.append(checked)
        yield from self.joined(segments)

    def own_findings(self) -> Iterator[Finding]:
        """Check the small files. Raises FileNotFoundError if a running owner removed the partition meanwhile."""
        found = lasting(self._check_own, in_use=self._in_use)
        if found and self._in_use:
            self._files.list_directory(self._directory)
        yield from found

    def _check_own(self) -> Iterator[Finding]:
        yield from self._check_topic_id()
        if self._epochs_problem:
            yield self._epochs_problem
        yield from self._check_segment_files()

    def segments(self) -> Iterator[SegmentWork]:
        """Yield the segments, ascending, except segments that a running owner has removed."""
        for base_offset in self._bases:
            try:
                size = self._files.size(self._log(base_offset))
            except FileNotFoundError:
                if not self._in_use:
                    raise
                continue
            yield SegmentWork(
                directory=self._directory,
                base_offset=base_offset,
                log_bytes=size,
                active=base_offset == self._bases[-1],
                in_use=self._in_use,
                clean=self._clean,
            )

    def joined(self, spans: Sequence[CheckedSegment]) -> Iterator[Finding]:
        """Compare the checked segments, ascending, with each other and with the leader epochs."""
        # If the owner has just deleted segments, the leader epochs may still begin at a deleted segment.
        start = self._epochs[0].start_offset if self._epochs and not self._deletes else None
        for before, span in zip([start, *(one.end_offset for one in spans)], spans, strict=False):
            if before is not None and before < span.base_offset and not self._in_use:
                cause = f"offsets {before} to {span.base_offset - 1} are missing before it"
                self.missing.append(Finding(self._log(span.base_offset), None, cause))
        end_offset = Offset(0)
        for number, span in enumerate(spans):
            if number and span.base_offset < end_offset and self._still_there(span.base_offset):
                cause = f"begins before offset {end_offset}, where the segment before it ends"
                yield Finding(self._log(span.base_offset), None, cause)
            end_offset = max(end_offset, span.end_offset)
        if [span.base_offset for span in spans[-1:]] != self._bases[-1:]:
            return
        self.end_offset = end_offset
        if self._epochs and not self._in_use and self._epochs[-1].start_offset > end_offset:
            epoch, start = self._epochs[-1]
            cause = f"epoch {epoch} starts at {start}, beyond the log's end {end_offset}"
            yield Finding(self._directory / names.LEADER_EPOCHS, None, cause)

    def _still_there(self, base_offset: Offset) -> bool:
        """Return whether a segment still exists.

        A running owner may have compacted it together with the segment before it.
        """
        return not self._in_use or self._files.exists(self._log(base_offset))

    def _is_left_over(self, index: names.SegmentFileName) -> bool:
        """Return whether an index is left over without a log. A running owner may have removed both."""
        return not self._in_use or (
            self._files.exists(self._directory / names.segment_file(*index))
            and not self._files.exists(self._log(index.base_offset))
        )

    def _log(self, base_offset: Offset) -> Path:
        return self._directory / names.segment_file(base_offset, names.SegmentFileKind.LOG)

    def _check_segment_files(self) -> Iterator[Finding]:
        """Check that each index belongs to a segment, and that each producer snapshot is valid."""
        for file in self._live:
            if file.kind is names.SegmentFileKind.SNAPSHOT:
                yield from self._check_snapshot(file)
            elif file.base_offset not in self._bases and self._is_left_over(file):
                path = self._directory / names.segment_file(*file)
                yield Finding(path, None, "belongs to no segment: its .log is missing")

    def _check_snapshot(self, file: names.SegmentFileName) -> Iterator[Finding]:
        path = self._directory / names.segment_file(*file)
        try:
            decode_snapshot(self._files.read_bytes(path))
        except CorruptBatchError as error:
            yield Finding(path, Position(error.position), error.cause)
        except CorruptionError as error:
            yield Finding.of(error)
        except FileNotFoundError:
            if not self._in_use:
                raise

    def _check_topic_id(self) -> Iterator[Finding]:
        try:
            self.topic_id = read_topic_id(self._files, self._directory)
        except CorruptionError as error:
            yield Finding.of(error)
        else:
            if self.topic_id is None:
                yield Finding(self._directory / names.PARTITION_METADATA, None, "missing")
