"""Prints a segment's files, except the `.log`, like kafka-dump-log, and compares them with the segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from topicfs.inspection.dump.log import FILE_START, DumpOptions, base_offset_of, batches, records
from topicfs.inspection.dump.report import DumpReport, optional_long
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptBatchError, CorruptionError
from topicfs.storage.indexes import transaction_index
from topicfs.storage.indexes.offset_index import OffsetIndex, OffsetPosition
from topicfs.storage.indexes.time_index import TimeEntry, TimeIndex
from topicfs.storage.model import NO_TIMESTAMP, Offset, Position
from topicfs.storage.producers.snapshot import decode as decode_snapshot

Entry = TypeVar("Entry", OffsetPosition, TimeEntry)


def dump_offset_index(
    path: Path, shown: str, options: DumpOptions, files: FileSystem, report: DumpReport
) -> Iterator[str]:
    """Print the entries of an `.index`, and report those whose offset differs from their batch's."""
    base_offset = base_offset_of(path)
    segment = _segment_of(path, files)
    index = OffsetIndex(files.open(path, read_only=True), base_offset)
    if index.entries == 0:
        yield f"{shown} is empty."
        return
    if options.index_sanity_check:
        index.check()
        yield f"{shown} passed sanity check."
        return
    for entry in used_entries(index, base_offset):
        found = _last_offset_at(segment, entry.position, options.max_message_size)
        if found != entry.offset:
            report.index_mismatches[str(path)][entry.offset] = found
        if not options.verify_index_only:
            yield f"offset: {entry.offset} position: {entry.position}"


def dump_time_index(
    path: Path, shown: str, options: DumpOptions, files: FileSystem, report: DumpReport
) -> Iterator[str]:
    """Print the entries of a `.timeindex`, and report those that contradict the segment."""
    base_offset = base_offset_of(path)
    index = TimeIndex(files.open(path, read_only=True), base_offset)
    if options.index_sanity_check:
        index.check()
        yield f"{shown} passed sanity check."
        return
    log = path.with_suffix(".log")
    segment = _segment_of(path, files)
    offsets = _offset_index_of(path, base_offset, files)
    previous = NO_TIMESTAMP
    for entry in used_entries(index, base_offset):
        start = offsets.lookup(entry.offset).position if offsets else FILE_START
        # If the offset index points beyond the segment's end, there is no batch.
        candidates = batches(segment, log, Position(min(start, len(segment))))
        batch = next((header for header in candidates if header.last_offset >= entry.offset), None)
        if batch is None or batch.last_offset != entry.offset:
            found = Offset(-1) if batch is None else batch.last_offset
            report.offsets_not_found[str(path)].append((entry.offset, found))
        else:
            latest = max((record.timestamp for record in records(segment, batch, log)), default=NO_TIMESTAMP)
            if latest != entry.timestamp:
                report.time_mismatches[str(path)].append((entry.timestamp, latest))
            if previous >= entry.timestamp:
                report.times_out_of_order[str(path)].append((entry.timestamp, previous))
        if not options.verify_index_only:
            yield f"timestamp: {entry.timestamp} offset: {entry.offset}"
        previous = entry.timestamp


def dump_snapshot(path: Path, files: FileSystem) -> Iterator[str]:
    """Print the producers of a `.snapshot`. Raises CorruptionError."""
    try:
        producers = decode_snapshot(files.read_bytes(path))
    except CorruptBatchError as error:
        raise CorruptionError(path, error.position, error.cause) from error
    for producer in producers:
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(producer.transaction_first_offset)} "
            f"lastTimestamp: {producer.last_timestamp}"
        )
        if producer.batches:
            batch = producer.batches[0]
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
            )
        yield line


def dump_transaction_index(path: Path, files: FileSystem) -> Iterator[str]:
    """Print the aborted transactions of a `.txnindex`. Raises CorruptionError."""
    for span in transaction_index.decode(files.read_bytes(path), path):
        yield (
            f"version: {transaction_index.VERSION} producerId: {span.producer_id} "
            f"firstOffset: {span.first_offset} lastOffset: {span.last_offset} "
            f"lastStableOffset: {span.last_stable_offset}"
        )


def used_entries(index: Iterable[Entry], base_offset: Offset) -> Iterator[Entry]:
    """Yield the entries before the trailing zeros that a crash leaves. Only the first entry itself may be zero."""
    for number, entry in enumerate(index):
        if number and entry.offset == base_offset:
            return
        yield entry


def _segment_of(path: Path, files: FileSystem) -> memoryview:
    """Map the `.log` of an index."""
    segment = path.with_suffix(".log")
    with closing(files.open(segment, read_only=True)) as file:
        return file.map(file.size())


def _offset_index_of(path: Path, base_offset: Offset, files: FileSystem) -> OffsetIndex | None:
    sibling = path.with_suffix(".index")
    return OffsetIndex(files.open(sibling, read_only=True), base_offset) if files.exists(sibling) else None


def _last_offset_at(segment: memoryview, position: Position, max_message_size: int) -> Offset:
    """Return the last offset of the batch that an entry points to; -1 if there is no batch."""
    found = scan(segment[position : position + max_message_size], max_batches=1)
    return found[0].last_offset if len(found) else Offset(-1)
