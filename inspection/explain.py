"""The steps of a lookup, reported by the search that readers use, and the record that the lookup finds."""

from __future__ import annotations

from dataclasses import dataclass

from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.engine import Partition
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation, Offset, Position, Record, Timestamp
from topicfs.storage.segment.trace import LookupTrace, Step


@dataclass(frozen=True, slots=True)
class ExplainedRecord:
    record: Record
    batch: BatchHeader
    """The batch's header. Its position is the position in the segment's file."""
    segment_base_offset: Offset
    index: int
    """The record's index in its batch, from 0."""


@dataclass(frozen=True, slots=True)
class Lookup:
    steps: tuple[Step, ...]
    found: ExplainedRecord | None


def explain_offset(log: Log, offset: Offset) -> Lookup:
    """Look up an offset. Raises OffsetOutOfRangeError, CorruptionError."""
    trace = LookupTrace()
    if log.locate(offset, trace) is None:
        return Lookup(tuple(trace.steps), None)
    found = record_at(log, offset)
    if found is not None:
        trace.take_record(found.record.offset, found.record.timestamp)
    return Lookup(tuple(trace.steps), found)


def explain_timestamp(log: Log, timestamp: Timestamp, isolation: Isolation) -> Lookup:
    """Look up the first record at or after a timestamp. Raises CorruptionError."""
    trace = LookupTrace()
    answer = log.offset_for_timestamp(timestamp, isolation=isolation, trace=trace)
    return Lookup(tuple(trace.steps), None if answer is None else record_at(log, answer.offset))


def record_at(log: Partition, offset: Offset) -> ExplainedRecord | None:
    """Read the record at `offset`, or the next record in its batch. None if the batch has no records (a marker)."""
    fetched = log.read(offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED)
    if not fetched.data:
        return None
    header = read_header(fetched.data)
    for columns in decode(fetched.data, 0, header.size_bytes):
        index = columns.find(offset)
        if index < len(columns):
            position = Position(fetched.position + header.position)
            return ExplainedRecord(
                columns.record(index), header._replace(position=position), fetched.segment_base_offset, index
            )
    return None
