"""Rewrites a segment's batches in a pass, bytes to bytes (kafka-storage.md#batch-rewriting, MemoryRecords.filterTo).

A header changes only if a record of its batch is removed. Other batches are copied. Old formats become format v2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from topicfs.storage.codec.batch_writer import encode_batches, encode_span
from topicfs.storage.codec.binary.fields import CURRENT_MAGIC
from topicfs.storage.codec.columns import Columns, decode_each
from topicfs.storage.codec.control import ControlType, control_type
from topicfs.storage.codec.headers import BatchHeader, Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction import survivors
from topicfs.storage.compaction.batch_decision import (
    BatchDecision,
    PassTransactions,
    RetentionParams,
    decide,
    new_horizon,
    tombstones_stay,
)
from topicfs.storage.compaction.offset_map import OffsetMap
from topicfs.storage.model import NO_PRODUCER_ID, Offset, Timestamp, TimestampType


class Rewriter:
    """Rewrites the batches of one log, in order, in one pass."""

    def __init__(
        self,
        newest: OffsetMap,
        transactions: PassTransactions,
        params: RetentionParams,
        *,
        map_end_offset: Offset,
    ) -> None:
        self._newest = newest
        self._transactions = transactions
        self._params = params
        self._map_end_offset = map_end_offset
        self.records_read = 0
        self.records_kept = 0

    def rewrite(self, data: memoryview, *, modified: Timestamp) -> Iterator[memoryview | bytearray]:
        """Yield the bytes of `data` that stay.

        `modified`: the modification time of the segment's file. Raises CorruptBatchError.
        """
        for columns in decode_each(data, control=True):
            yield from self._columns(data, columns, modified)

    def _columns(
        self, data: memoryview, columns: Columns, modified: Timestamp
    ) -> Iterator[memoryview | bytearray]:
        batches = columns.batches
        self.records_read += len(columns)
        keep_end_offset = -1 if self._params.keep_end_offset is None else self._params.keep_end_offset
        marks = self._newest.marks_of(columns, end_offset=self._map_end_offset)
        positions, record_ends = batches.column("position"), batches.column("record_end")
        first = 0
        while first < len(positions):
            kind, stop = survivors.next_run(columns, marks, first, keep_end_offset=keep_end_offset)
            kept: memoryview | bytearray | None = None
            if kind is survivors.BatchRunKind.COPIED:
                end = positions[stop] if stop < len(positions) else batches.stop
                kept = data[positions[first] : end]
                self.records_kept += record_ends[stop - 1] - (record_ends[first - 1] if first else 0)
            elif kind is survivors.BatchRunKind.SINGLE:
                stop, kept = self._rewritten(data, columns, marks, first, modified)
            if kept is not None:
                yield kept
            first = stop

    def _rewritten(
        self, data: memoryview, columns: Columns, marks: bytearray, first: int, modified: Timestamp
    ) -> tuple[int, memoryview | bytearray | None]:
        """Rewrite adjacent batches, beginning with number `first`, from which only some records are removed.

        If batch `first` needs other changes, rewrite it alone. Return the number of the next batch, and the bytes
        that stay.
        """
        stop = survivors.end_of_filtered(columns, marks, first)
        if stop == first:
            return first + 1, self._batch(data, _Batch(columns, first), marks, modified)
        kept = survivors.filter_batches(columns, marks, first, stop)
        self.records_kept += len(kept)
        return stop, encode_batches(kept)

    def _batch(
        self, data: memoryview, batch: _Batch, marks: bytearray, modified: Timestamp
    ) -> memoryview | bytearray | None:
        """Return what stays of one batch: its bytes, a new batch, or its header; None if nothing stays."""
        header = batch.header
        first, last = batch.start, header.record_end
        decision = self._decide(batch)
        if not header.is_control and not tombstones_stay(header, modified=modified, params=self._params):
            survivors.drop_tombstones(marks, first, last)
        stay = last - first if header.is_control else survivors.count_staying(marks, first, last)
        if decision.discard_records:
            stay = 0
        self.records_kept += stay
        if not stay:
            if not decision.keeps_header or header.magic < CURRENT_MAGIC:
                return None
            return _emptied(header)
        kept = (
            batch.columns if header.is_control else survivors.kept_records(batch.columns, marks, first, last)
        )
        bounds = (first, last) if header.is_control else (0, stay)
        has_tombstones = not header.is_control and min(kept.value_lengths) < 0
        horizon = new_horizon(header, has_tombstones=has_tombstones, decision=decision, params=self._params)
        if horizon is None and stay == last - first and header.magic == CURRENT_MAGIC:
            return data[header.position : header.end_position]
        return _rebuilt(header, kept, bounds, horizon or header.delete_horizon_ms)

    def _decide(self, batch: _Batch) -> BatchDecision:
        header = batch.header
        if header.is_control:
            discardable = self._transactions.read_marker(header, batch.marker_kind)
        else:
            discardable = self._transactions.read_data(header)
        return decide(header, discardable=discardable, params=self._params)


class _Batch:
    """One batch of `columns`, with the records [start, header.record_end)."""

    def __init__(self, columns: Columns, number: int) -> None:
        self.columns = columns
        self.header = columns.batches[number]
        self.start = _record_start(columns, number)

    @property
    def marker_kind(self) -> ControlType | None:
        """Type of a control batch; None if the batch has no records left."""
        if self.start == self.header.record_end:
            return None
        return control_type(self.columns.key(self.start))


def build_map(
    newest: OffsetMap, data: memoryview, transactions: PassTransactions, *, start_offset: Offset
) -> tuple[Offset, bool]:
    """Put keys into the map; return the offset below which the map has all keys, and whether it is full.

    Raises CorruptBatchError.
    """
    end_offset = start_offset
    for columns in decode_each(data, control=True):
        batches = columns.batches
        first = 0
        while first < len(batches):
            stop = survivors.end_of_nontransactional(columns, first)
            goes_in = True
            if stop == first:
                goes_in = _counts_for_map(_Batch(columns, first), transactions)
                stop += 1
            start, last = _record_start(columns, first), batches[stop - 1].record_end
            if goes_in:
                done = newest.put_records(columns, start, last, start_offset=start_offset)
                if done < last:
                    return _complete_before(columns, done, end_offset), True
            end_offset = max(end_offset, batches[stop - 1].end_offset)
            first = stop
    return end_offset, False


def _counts_for_map(batch: _Batch, transactions: PassTransactions) -> bool:
    """Return whether a transactional batch has keys for the map: it is not a marker and was not aborted."""
    if batch.header.is_control:
        transactions.read_marker(batch.header, batch.marker_kind)
        return False
    return not transactions.read_data(batch.header)


def _complete_before(columns: Columns, record: int, end_offset: Offset) -> Offset:
    """Return the end of the last batch before the batch with `record`, or `end_offset` if that is higher."""
    number = bisect_right(columns.batches.column("record_end"), record)
    return max(end_offset, columns.batches[number - 1].end_offset) if number else end_offset


def _record_start(columns: Columns, number: int) -> int:
    return columns.batches[number - 1].record_end if number else 0


def _emptied(header: BatchHeader) -> bytearray:
    """Return the header as a batch without records, codec and delete horizon; the max timestamp does not change."""
    return encode(
        [],
        _stamp(header, codec=Codec.NONE, horizon=None),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        max_timestamp=header.max_timestamp,
    )


def _rebuilt(
    header: BatchHeader, kept: Columns, bounds: tuple[int, int], horizon: Timestamp | None
) -> bytearray:
    """Return a batch of the records of `kept` that are in the range `bounds`, with the last offset of the old batch."""
    by_broker = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_offset = header.base_offset if header.magic == CURRENT_MAGIC else kept.offsets[bounds[0]]
    return encode_span(
        kept,
        *bounds,
        _stamp(header, codec=header.codec, horizon=horizon),
        (base_offset, base_offset, header.last_offset),
        header.max_timestamp if by_broker else None,
    )


def _stamp(header: BatchHeader, *, codec: Codec, horizon: Timestamp | None) -> BatchStamp:
    legacy = header.magic < 2
    return BatchStamp(
        leader_epoch=header.leader_epoch,
        codec=codec,
        timestamp_type=header.timestamp_type,
        producer_id=NO_PRODUCER_ID if legacy else header.producer_id,
        producer_epoch=-1 if legacy else header.producer_epoch,
        base_sequence=-1 if legacy else header.base_sequence,
        transactional=not legacy and header.is_transactional,
        control=not legacy and header.is_control,
        delete_horizon_ms=horizon,
    )
