"""A segment's batches as a pass leaves them: bytes in, bytes out.

Base and last offset, leader epoch, codec and the producer's fields stay; records go. A batch that loses nothing and
needs no horizon is passed on byte for byte. Legacy entries become batches of version 2. Rules: kafka-storage.md §8
(Rewriting, Empty batch), Kafka's Cleaner and MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from storage.codec.batch import BatchHeader, Codec, scan
from storage.codec.columns import Columns, decode
from storage.codec.control import ControlType, control_type
from storage.codec.records import BatchStamp, encode
from storage.compaction.offset_map import OffsetMap
from storage.compaction.retain import (
    BatchDecision,
    RetentionParams,
    WhenEmpty,
    decide,
    new_horizon,
    tombstones_stay,
)
from storage.compaction.transactions import PassTransactions
from storage.model import NO_PRODUCER_ID, Offset, Record, Timestamp, TimestampType


@dataclass(slots=True)
class CleaningCounts:
    """What a pass read and kept: for the log line it leaves."""

    batches_read: int = 0
    batches_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0


class Rewriter:
    """One pass over the batches of one log, in order."""

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
        self.counts = CleaningCounts()

    def rewrite(self, data: memoryview, *, modified: Timestamp) -> Iterator[memoryview | bytearray]:
        """The batches of `data` that stay, as they stay; `modified` is their segment's file time.

        Raises CorruptBatchError: nothing is cleaned over a batch that cannot be trusted.
        """
        batches = scan(data)
        if batches.problem is not None:
            raise batches.problem
        for header in batches:
            kept = self._batch(data, header, modified)
            self.counts.batches_read += 1
            self.counts.bytes_read += header.size_bytes
            if kept is not None:
                self.counts.batches_kept += 1
                self.counts.bytes_kept += len(kept)
                yield kept

    def _batch(
        self, data: memoryview, header: BatchHeader, modified: Timestamp
    ) -> memoryview | bytearray | None:
        columns = decode(data, header.position, header.end_position, control=header.is_control)[0]
        decision = self._decide(header, columns)
        indexes = [] if decision.discard_records else self._kept_records(header, columns, modified)
        self.counts.records_read += len(columns)
        self.counts.records_kept += len(indexes)
        if not indexes:
            if decision.when_empty is WhenEmpty.DROP or header.magic < 2:
                return None
            return _emptied(header)
        lengths = columns.value_lengths
        has_tombstones = not header.is_control and any(lengths[i] < 0 for i in indexes)
        horizon = new_horizon(header, has_tombstones=has_tombstones, decision=decision, params=self._params)
        if horizon is None and len(indexes) == len(columns) and header.magic == 2:
            return data[header.position : header.end_position]
        return _rebuilt(header, [columns.record(i) for i in indexes], horizon or header.delete_horizon_ms)

    def _decide(self, header: BatchHeader, columns: Columns) -> BatchDecision:
        if header.is_control:
            discardable = self._transactions.read_marker(header, _marker_kind(columns))
        else:
            discardable = self._transactions.read_data(header)
        return decide(header, discardable=discardable, params=self._params)

    def _kept_records(self, header: BatchHeader, columns: Columns, modified: Timestamp) -> list[int]:
        if header.is_control:
            return list(range(len(columns)))
        first_beyond = columns.find(self._map_end_offset)
        kept = self._newest.newest(columns, 0, first_beyond)
        if not tombstones_stay(header, modified=modified, params=self._params):
            lengths = columns.value_lengths
            kept = [index for index in kept if lengths[index] >= 0]
        return kept + list(range(first_beyond, len(columns)))


def build_map(
    newest: OffsetMap, data: memoryview, transactions: PassTransactions, *, start_offset: Offset
) -> tuple[Offset, bool]:
    """Put the keys of the batches in `data` into the map.

    Returns the offset up to which the map is complete, and whether it is full (the pass then ends there).
    """
    end_offset = start_offset
    for header in scan(data):
        columns = decode(data, header.position, header.end_position, control=header.is_control)[0]
        if header.is_control:
            transactions.read_marker(header, _marker_kind(columns))
        elif not transactions.read_data(header) and not newest.put_records(
            columns, 0, len(columns), start_offset=start_offset
        ):
            return end_offset, True
        end_offset = max(end_offset, header.end_offset)
    return end_offset, False


def _marker_kind(columns: Columns) -> ControlType | None:
    return control_type(columns.key(0)) if len(columns) else None


def _emptied(header: BatchHeader) -> bytearray:
    """Just the header: no codec, no horizon, the largest timestamp as it was."""
    return encode(
        [],
        _stamp(header, codec=Codec.NONE, horizon=None),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        max_timestamp=header.max_timestamp,
    )


def _rebuilt(header: BatchHeader, records: list[Record], horizon: Timestamp | None) -> bytearray:
    by_broker = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return encode(
        records,
        _stamp(header, codec=header.codec, horizon=horizon),
        base_offset=header.base_offset if header.magic == 2 else records[0].offset,
        last_offset=header.last_offset,
        max_timestamp=header.max_timestamp if by_broker else max(record.timestamp for record in records),
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
