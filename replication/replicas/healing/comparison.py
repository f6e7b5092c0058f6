"""Compares two logs at the end of a fork: where the lost log differs from the kept log, and which records are lost.

    kept     ████████████████▓▓▓▓▓▓▓▓▓▓▓▓
    lost     ████████████████▒▒▒▒▒▒▒▒             ▒ lost records
                             ▲ the lost log is cut here, and then follows the kept log

Batches are compared by their headers, which include the checksums, so a damaged record does not count as a
difference. Compacted logs differ even without a fork. Therefore they are compared record by record, and the lost log
is emptied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from topicfs.storage.codec.batch import scan, set_producer
from topicfs.storage.codec.binary.fields import (
    ATTRIBUTES_POSITION,
    CURRENT_MAGIC,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
)
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.errors import CorruptBatchError, CorruptionError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.log.soundness import is_compacted
from topicfs.storage.messages import reason_of
from topicfs.storage.model import NO_PRODUCER_ID, NO_TIMESTAMP, Offset, Record

_ATTRIBUTES = struct.Struct(">H")
_READ_BYTES = 1 << 20


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes


class Loss(NamedTuple):
    records: int
    first_offset: Offset
    end_offset: Offset
    first_ms: int
    last_ms: int
    damaged: int
    problem: str
    """Why the remaining part of the log cannot be read; empty if it can be read."""


class Parting:
    """The difference of two logs of a partition. If `kept` is None, all of `lost` is given up."""

    def __init__(self, kept: Log | None, lost: Log) -> None:
        """Compare the logs (blocking). Raises OSError."""
        self.kept, self.lost = kept, lost
        self._by_record = any(is_compacted(log) for log in (kept, lost) if log)
        self.offset, self.unsure = lost.log_start_offset, ""
        """The offset at which to cut the lost log, and the damage of `kept` that may hide where the logs differ."""
        if kept is not None and not self._by_record:
            self.offset, self.unsure = _parting(kept, lost)

    @property
    def cuts(self) -> bool:
        return self.offset < self.lost.log_end_offset

    def loss(self) -> Loss | None:
        """Return a summary of the records that would be lost; None if no record would be (blocking). Raises OSError."""
        records, damaged, problem, skipped = 0, 0, "", list[str]()
        first, end = self.lost.log_end_offset, self.offset
        first_ms, last_ms = NO_TIMESTAMP, NO_TIMESTAMP
        try:
            for header, data in self.batches(skipped):
                records += max(header.record_count, 0)
                damaged += scan(data, check_crc=True).problem is not None
                last_ms = max(last_ms, header.max_timestamp)
                first_ms = header.max_timestamp if first_ms < 0 else min(first_ms, header.max_timestamp)
                first, end = min(first, header.base_offset), header.end_offset
        except StorageError as error:
            problem = reason_of(error)
        problem = next(iter(skipped), problem)
        if not records and not problem:
            return None
        return Loss(records, first, end, first_ms, last_ms, damaged, problem)

    def batches(self, skipped: list[str]) -> Iterator[Batch]:
        """Yield the batches that would be lost (blocking). Adds reasons for unreadable parts to `skipped`.

        Raises OSError.
        """
        compared = self._by_record and self.kept is not None
        theirs = _Records(self.kept) if compared and self.kept is not None else None
        for batch in _batches(self.lost, self.offset, skipped):
            if batch.header.is_control or not batch.header.record_count:
                continue
            if theirs is None or not theirs.include(batch):
                yield batch

    def saved(self) -> Iterator[bytes]:
        """Yield the lost batches, after removing their producer fields. Skip damaged and aborted batches.

        Blocks. Raises OSError.
        """
        aborted = self.lost.aborted
        for header, data in self.batches([]):  # The report about the loss names skipped parts.
            is_aborted = header.is_transactional and any(
                one.producer_id == header.producer_id
                and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
            if not is_aborted and scan(data, check_crc=True).problem is None:
                yield _plain(header, data)


def _parting(kept: Log, lost: Log) -> tuple[Offset, str]:
    """Return the offset where the logs part, and the damage that `kept` has after this offset.

    The offset is the end of the last batch that both logs have. If they share no batch, it is the start of `lost`.
    Logs that share a batch also share all earlier batches, so damage of `kept` before a shared batch is ignored.
    """
    start = max(kept.log_start_offset, lost.log_start_offset)
    agreed, unsure = lost.log_start_offset, list[str]()
    batches, ours = _batches(kept, start, unsure), None
    # The loop is over the batches of `lost`. Nothing is compared at damaged batches of `lost`, so damage of
    # `kept` does not matter there.
    for theirs in _readable(lost, start):
        if (ours := ours or next(batches, None)) is None:
            break
        if theirs.header.end_offset <= ours.header.base_offset:
            unsure.append(f"offset {theirs.header.base_offset} is missing")
        elif _same(ours, theirs):
            agreed, ours = theirs.header.end_offset, None
            unsure.clear()
        elif (problem := scan(ours.data, check_crc=True).problem) is not None:
            unsure.append(f"position {ours.header.position}: {problem.cause}")
            ours = None
        else:
            break
    return agreed, f"{kept.directory}: not compared: {unsure[0]}" if unsure else ""


def _same(one: Batch, other: Batch) -> bool:
    if min(one.header.magic, other.header.magic) < CURRENT_MAGIC:
        return one.data == other.data
    return one.data[:HEADER_SIZE] == other.data[:HEADER_SIZE]


def _batches(log: Log, start: Offset, skipped: list[str] | None = None) -> Iterator[Batch]:
    """Yield a log's batches from `start` on (`skipped`: see `Parting.batches`). Raises CorruptionError, OSError."""
    offset = start
    while offset < log.log_end_offset:
        try:
            data = bytes(log.read_as_follower(offset, max_bytes=_READ_BYTES).data)
            if not len(batches := scan(data)):
                raise CorruptionError(log.directory, 0, f"no batch at offset {offset}")  # noqa: TRY301 - damage, too
        except CorruptionError as error:
            if skipped is None:
                raise
            skipped.append(reason_of(error))
            offset = next((base for base in log.chain.base_offsets if base > offset), log.log_end_offset)
            continue
        for header in batches:
            if header.end_offset > offset:
                yield Batch(header, data[header.position : header.end_position])
                offset = header.end_offset


def _readable(log: Log, start: Offset) -> Iterator[Batch]:
    try:
        yield from _batches(log, start)
    except CorruptionError:
        return


class _Records:
    """The records of the kept log. They must be requested in the order of their offsets."""

    def __init__(self, log: Log) -> None:
        self._records = _records(log)
        self._next = next(self._records, None)

    def include(self, batch: Batch) -> bool:
        """Return whether the kept log has all records of a batch. A damaged batch counts as missing."""
        try:
            return all(self._has(record) for columns in decode_each(batch.data) for record in columns)
        except CorruptBatchError:
            return False

    def _has(self, record: Record) -> bool:
        while self._next is not None and self._next.offset < record.offset:
            self._next = next(self._records, None)
        return self._next is not None and self._next == record


def _records(log: Log) -> Iterator[Record]:
    for batch in _readable(log, log.log_start_offset):
        try:
            for columns in decode_each(batch.data):
                yield from columns
        except CorruptBatchError:
            continue


def _plain(header: BatchHeader, data: bytes) -> bytes:
    if header.magic < CURRENT_MAGIC or header.producer_id == NO_PRODUCER_ID:
        return data
    batch = bytearray(data)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, header.attributes & ~TRANSACTIONAL_MASK)
    set_producer(batch, 0, producer_id=NO_PRODUCER_ID, producer_epoch=-1, base_sequence=-1)
    return bytes(batch)
