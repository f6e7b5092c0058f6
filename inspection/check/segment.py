"""The check of one segment: reads its log from start to end, and compares both indexes with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from topicfs.inspection.check.batches import BatchCheck, SegmentFacts
from topicfs.storage.checkpoints.leader_epochs import Entries, decode_epochs
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.headers import Batches
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import LEADER_EPOCHS, SegmentFileKind, segment_file
from topicfs.storage.errors import CorruptBatchError, CorruptionError, Finding, TornBatchError
from topicfs.storage.indexes.entries import ChunkColumns, OffsetEntries, TimeEntries, check_transactions
from topicfs.storage.model import NO_TIMESTAMP, Offset, Position

CHECK_CHUNK_BYTES = 1 << 20
"""Size of a chunk of log. With the smallest records, the columns of a chunk take about 10 MB (64 bytes per record)."""


def chunks(data: memoryview) -> Iterator[Batches]:
    """Yield the batches of `data` in chunks, without checking checksums.

    If the scan ends at an invalid or incomplete batch, the last chunk is empty and its `problem` has the reason.
    """
    start = Position(0)
    while start < len(data):
        found = scan(data, start, min(start + CHECK_CHUNK_BYTES, len(data)))
        if not len(found):
            # The next batch is longer than a chunk, or it is invalid: scan it alone to find out.
            found = scan(data, start, max_batches=1)
        if not len(found):
            yield found
            return
        yield found
        start = Position(found.stop)


_LOOKS = 3
"""Number of times to look at files that a running owner may be changing."""
_PAUSE_SECONDS = 0.02
"""Pause between two looks, because another process does not announce its writes."""

Advance = Callable[[int], None]
"""Called with the number of log bytes checked since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWork:
    """A segment to check, with the facts that decide which findings are errors. Can be sent to another process."""

    directory: Path
    base_offset: Offset
    log_bytes: int
    """Size of the segment's log when it was listed, for a progress bar."""
    active: bool
    in_use: bool
    """True if a running process may be appending. An unfinished batch at the end is then not an error."""
    clean: bool
    """True if the directory was closed cleanly. An unfinished batch is then an error."""

    @property
    def trimmed(self) -> bool:
        """True if the segment's files must not have preallocated space."""
        return not self.active or (self.clean and not self.in_use)

    def path(self, kind: SegmentFileKind) -> Path:
        return self.directory / segment_file(self.base_offset, kind)


class SegmentCheck:
    """The check of one segment. `facts` and `end_offset` are known after `findings` has run."""

    def __init__(self, work: SegmentWork, files: FileSystem) -> None:
        self.log = work.path(SegmentFileKind.LOG)
        self._work = work
        self._files = files
        # Errors in the leader epochs themselves are reported once, for the partition.
        epochs, _ = read_epochs(files, work.directory)
        self._batches = BatchCheck(self.log, work.base_offset, epochs)

    @property
    def end_offset(self) -> Offset:
        return self._batches.reach

    @property
    def facts(self) -> SegmentFacts:
        return self._batches.facts

    def findings(self, advance: Advance) -> Iterator[Finding]:
        """Check everything. Raises FileNotFoundError if the log was removed meanwhile."""
        try:
            yield from self._findings(advance)
        except CorruptionError as error:
            yield Finding.of(error)

    def _findings(self, advance: Advance) -> Iterator[Finding]:
        # A batch is written before its index entries, so read the indexes before the log. If a running owner
        # appends in between, each entry that was read still has its batch in the log.
        indexes = list(self._read_indexes())
        for index in indexes:
            # An owner that recovers a log, or undoes a roll, preallocates indexes of closed segments as well.
            yield from index.slots.shape(trimmed=self._work.trimmed and not self._work.in_use)
            yield from index.ascend()
        yield from self._check_log(indexes, advance)
        for index in indexes:
            yield from index.finish()
        transactions = self._work.path(SegmentFileKind.TRANSACTION_INDEX)
        if self._files.exists(transactions):
            yield from check_transactions(self._files, transactions, self._work.base_offset)

    def _check_log(self, indexes: list[OffsetEntries | TimeEntries], advance: Advance) -> Iterator[Finding]:
        with closing(self._files.open(self.log, read_only=True)) as file:
            data = file.map(file.size())
        self.facts.log_bytes = len(data)
        latest: int = NO_TIMESTAMP
        for batches in chunks(data):
            if not len(batches):
                yield from self._ending(data, batches.stop, batches.problem)
                break
            yield from self._batches.check(data, batches)
            columns = ChunkColumns(batches, latest)
            latest = columns.latest_timestamps[-1]
            for index in indexes:
                yield from index.compare(columns)
            advance(batches.stop - batches[0].position)

    def _ending(self, data: memoryview, stop: int, problem: CorruptBatchError | None) -> Iterator[Finding]:
        torn = isinstance(problem, TornBatchError)
        preallocated = not any(data[stop : stop + HEADER_SIZE])
        if self._work.active and self._work.in_use and (torn or preallocated):
            return
        if preallocated and not self._work.trimmed and _is_zeros(data[stop:]):
            return
        cause = problem.cause if problem else "no batch begins here"
        outlook = "recovery cuts it off" if self._work.active else "nothing after it can be read"
        yield Finding(self.log, Position(stop), f"{cause} ({len(data) - stop} bytes; {outlook})")

    def _read_indexes(self) -> Iterator[OffsetEntries | TimeEntries]:
        for kind, entries in (
            (SegmentFileKind.OFFSET_INDEX, OffsetEntries),
            (SegmentFileKind.TIME_INDEX, TimeEntries),
        ):
            path = self._work.path(kind)
            if self._files.exists(path):
                yield entries(path, self._files.read_bytes(path), self._work.base_offset)


class CheckedSegment(NamedTuple):
    base_offset: Offset
    facts: SegmentFacts
    wrong: list[Finding]
    end_offset: Offset


def check_segment(
    work: SegmentWork, files: FileSystem, advance: Advance = lambda _: None
) -> CheckedSegment | None:
    """Check one segment; None if its running owner removed it meanwhile (blocking). Raises OSError."""
    checks: list[SegmentCheck] = []

    def look() -> Iterator[Finding]:
        checks.append(SegmentCheck(work, files))
        return checks[-1].findings(advance if len(checks) == 1 else lambda _: None)

    try:
        wrong = lasting(look, in_use=work.in_use)
    except FileNotFoundError:
        if not work.in_use:
            raise
        return None
    return CheckedSegment(work.base_offset, checks[-1].facts, wrong, checks[-1].end_offset)


def lasting(look: Callable[[], Iterable[Finding]], *, in_use: bool) -> list[Finding]:
    """Return the findings of `look`. If `in_use`, look several times, and return only findings that stay."""
    found = list(look())
    for _ in range(_LOOKS - 1 if in_use else 0):
        if not found:
            break
        time.sleep(_PAUSE_SECONDS)
        again = {(one.file, one.position) for one in look()}
        found = [one for one in found if (one.file, one.position) in again]
    return found


def _is_zeros(data: memoryview) -> bool:
    starts = range(0, len(data), CHECK_CHUNK_BYTES)
    return not any(bytes(data[start : start + CHECK_CHUNK_BYTES]).strip(b"\0") for start in starts)


def read_epochs(files: FileSystem, directory: Path) -> tuple[Entries, Finding | None]:
    """Return a partition directory's leader epochs; empty if there is no readable file."""
    path = directory / LEADER_EPOCHS
    try:
        return decode_epochs(files.read_bytes(path), file=path), None
    except CorruptionError as error:
        return (), Finding.of(error)
    except FileNotFoundError:
        return (), None
