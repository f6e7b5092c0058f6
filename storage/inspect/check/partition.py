"""One partition directory: its small files, its segments, and how these join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storage.checkpoints.leader_epochs import Entries, decode_epochs
from storage.checkpoints.partition_metadata import read_topic_id
from storage.disk.filesystem import FileSystem
from storage.disk.names import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    SegmentFile,
    SegmentFileKind,
    SegmentFileState,
    parse_segment_file,
    segment_file,
)
from storage.errors import CorruptBatchError, CorruptionError
from storage.indexes import transaction_index
from storage.inspect.check.findings import Finding
from storage.inspect.check.segment import Advance, SegmentCheck, SegmentSituation
from storage.model import Offset, Position
from storage.producers.snapshot import decode as decode_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySituation:
    """What is known of the data directory as a whole."""

    in_use: bool
    """A living process owns it."""
    clean: bool
    """It carries the clean-shutdown marker."""


class PartitionCheck:
    """The check of one partition; after `findings` has run, its bounds and topic id are known."""

    def __init__(self, directory: Path, situation: DirectorySituation, files: FileSystem) -> None:
        self._directory = directory
        self._situation = situation
        self._files = files
        self.topic_id: str | None = None
        self.first_offset: Offset | None = None
        """Base offset of the first segment."""
        self.end_offset = Offset(0)
        """One past the last offset, damaged batches' too."""

    def findings(self, advance: Advance) -> Iterator[Finding]:
        """Check everything in the directory."""
        yield from self._check_topic_id()
        found = [parse_segment_file(entry.name) for entry in self._files.list_directory(self._directory)]
        live = [file for file in found if file and file.state is SegmentFileState.LIVE]
        epochs, problem = self._read_epochs()
        if problem:
            yield problem
        bases = sorted(file.base_offset for file in live if file.kind is SegmentFileKind.LOG)
        yield from self._check_orphans(live, bases)
        yield from self._check_segments(bases, epochs, advance)
        if not self._situation.in_use:
            yield from self._check_epochs(epochs)

    def _check_segments(self, bases: list[Offset], epochs: Entries, advance: Advance) -> Iterator[Finding]:
        for base_offset in bases:
            if self.first_offset is None:
                self.first_offset = self.end_offset = base_offset
            segment = SegmentCheck(
                self._directory,
                base_offset,
                SegmentSituation(
                    active=base_offset == bases[-1],
                    in_use=self._situation.in_use,
                    clean=self._situation.clean,
                    epochs=epochs,
                ),
                self._files,
            )
            if base_offset < self.end_offset:
                yield Finding(
                    segment.log, None, f"begins before offset {self.end_offset}, where the one before ends"
                )
            try:
                yield from segment.findings(advance)
            except FileNotFoundError:
                if not self._situation.in_use:
                    raise
            self.end_offset = max(self.end_offset, segment.end_offset)

    def _check_orphans(self, live: list[SegmentFile], bases: list[Offset]) -> Iterator[Finding]:
        """Check that each index belongs to a segment, and that each producer snapshot is sound."""
        for file in live:
            path = self._directory / segment_file(*file)
            if file.kind is SegmentFileKind.SNAPSHOT:
                yield from self._check_snapshot(path)
            elif file.base_offset not in bases:
                yield Finding(path, None, "belongs to no segment: its .log is missing")
            elif file.kind is SegmentFileKind.TRANSACTION_INDEX:
                yield from self._check_transactions(path, file.base_offset)

    def _check_snapshot(self, path: Path) -> Iterator[Finding]:
        try:
            decode_snapshot(self._files.read_bytes(path))
        except CorruptBatchError as error:
            yield Finding(path, Position(error.position), error.cause)
        except FileNotFoundError:
            if not self._situation.in_use:
                raise

    def _check_transactions(self, path: Path, base_offset: Offset) -> Iterator[Finding]:
        """Aborted transactions ascend by their markers, which stand in this segment."""
        before = Offset(base_offset - 1)
        try:
            spans = transaction_index.decode(self._files.read_bytes(path), path)
        except CorruptionError as error:
            yield Finding.of(error)
            return
        for slot, span in enumerate(spans):
            if span.last_offset <= before or span.first_offset > span.last_offset:
                cause = f"transaction at {span.first_offset} to {span.last_offset} after marker {before}"
                yield Finding(path, Position(slot * transaction_index.SLOT.size), cause)
            before = span.last_offset

    def _check_topic_id(self) -> Iterator[Finding]:
        try:
            self.topic_id = read_topic_id(self._files, self._directory)
        except CorruptionError as error:
            yield Finding.of(error)
        else:
            if self.topic_id is None:
                yield Finding(self._directory / PARTITION_METADATA, None, "missing")

    def _read_epochs(self) -> tuple[Entries, Finding | None]:
        path = self._directory / LEADER_EPOCHS
        try:
            return decode_epochs(self._files.read_bytes(path), file=path), None
        except CorruptionError as error:
            return (), Finding.of(error)
        except FileNotFoundError:
            return (), None

    def _check_epochs(self, epochs: Entries) -> Iterator[Finding]:
        if epochs and epochs[-1].start_offset > self.end_offset:
            cause = f"epoch {epochs[-1].epoch} starts at {epochs[-1].start_offset}, behind the log's end {self.end_offset}"
            yield Finding(self._directory / LEADER_EPOCHS, None, cause)
