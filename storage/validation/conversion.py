"""Converts a client's batches to the form that their topic requires: the part of an append that reads records.

Headers are compared with records (kafka-storage.md#timestamps). A batch is encoded again if its codec is not the
topic's codec, or if its records are not numbered 0, 1, 2 … (kafka-storage.md#batch-conversion). Control batches are
never encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topicfs.storage import errors
from topicfs.storage.codec.batch import set_max_timestamp
from topicfs.storage.codec.binary.fields import (
    CODEC_MASK,
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode_columns
from topicfs.storage.model import NO_TIMESTAMP, ProducerId, TimestampType
from topicfs.storage.validation.batches import NO_LIMIT, AppendRules, Incoming

WHOLE_BATCH_BYTES = 2**31 - 1
"""Size limit while a batch is encoded again, so that it stays one batch. The topic's limit is checked afterwards."""

APPEND_BYTES = 2 * MAX_CONTENT_BYTES
"""Limit of the inflated bytes of all compressed batches in one append; the last batch may exceed it."""

_SHOWN = 5
"""Largest number of invalid records that an error names."""


def convert(
    batches: bytearray, incoming: Sequence[Incoming], rules: AppendRules, now: int
) -> tuple[bytearray, Sequence[Incoming] | None]:
    """Return the batches and their headers, if the batches may be appended with nothing changed but their headers.

    If records had to be encoded again, return the new batches and None: the caller must check the new batches.
    Raises InvalidTimestampError and InvalidRecordError with all invalid records, and RecordTooLargeError for records
    that inflate beyond the bounds of decoding. After an error, nothing is changed.
    """
    looked, left, encodes = list[_Converted](), APPEND_BYTES, False
    for batch in incoming:
        if batch.attributes & CONTROL_MASK:
            looked.append(_Converted(batch.max_timestamp, None))
            continue
        columns = _records(batches, batch, left)
        left -= columns.size_bytes if batch.attributes & CODEC_MASK else 0
        _check_times(columns, rules, now)
        _check_keys(columns, rules)
        if _wants_encoding(columns, batch, rules):  # Encoding the batch sets its largest timestamp.
            looked.append(_Converted(batch.max_timestamp, _encoded(columns, batch, rules)))
            encodes = True
        else:
            looked.append(_Converted(columns.time_bounds()[1], None))
    if encodes:
        whole = bytearray().join(
            batches[batch.position : batch.position + batch.size_bytes]
            if one.encoded is None
            else one.encoded
            for batch, one in zip(incoming, looked, strict=True)
        )
        return whole, None
    true: list[Incoming] | None = None
    for index, (largest, _) in enumerate(looked):
        batch = incoming[index]
        # With LogAppendTime both times are equal, because the header's time is then the time of all records.
        if largest != batch.max_timestamp:
            set_max_timestamp(batches, batch.position, largest, TimestampType.CREATE_TIME)
            true = true or list(incoming)
            true[index] = batch._replace(max_timestamp=largest)
    return batches, true or incoming


class _Converted(NamedTuple):
    """The result for one batch, without its decoded records, which may take many times more memory."""

    max_timestamp: int
    encoded: bytearray | None
    """The batch, encoded again; None if it does not change."""


def _records(batches: bytearray, batch: Incoming, left: int) -> Columns:
    """Decode a batch's records; a compressed batch may inflate to at most `left` bytes, even if that is 0."""
    start, end = batch.position, batch.position + batch.size_bytes
    limit = min(max(left, 0), MAX_CONTENT_BYTES)
    try:
        return decode(batches, start, end, check_crc=False, max_content_bytes=limit)[0]
    except errors.OversizeBatchError as error:
        cause = f"batch at position {error.position}: {error.cause}"
        if limit < MAX_CONTENT_BYTES:
            cause += ", in one append with those before it; append less at a time"
        raise errors.RecordTooLargeError(cause) from error
    except errors.CorruptBatchError as error:
        raise errors.InvalidRecordError(f"not a record batch: {error}") from error


def _check_times(columns: Columns, rules: AppendRules, now: int) -> None:
    if rules.stamps_append_time:
        return
    earliest = -NO_LIMIT - 1 if rules.before_max_ms == NO_LIMIT else now - rules.before_max_ms
    latest = now + rules.after_max_ms
    least, most = columns.time_bounds()
    if earliest <= least and most <= latest:  # The usual case, without an object for each record.
        return
    bad = [
        index
        for index, timestamp in enumerate(columns.timestamps)
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest
    ]
    if bad:
        timestamp = columns.timestamps[bad[0]]
        name, limit = (
            ("message.timestamp.before.max.ms", rules.before_max_ms)
            if timestamp < earliest
            else ("message.timestamp.after.max.ms", rules.after_max_ms)
        )
        raise errors.InvalidTimestampError(
            f"{_named(bad)}: timestamp {timestamp} is further from now ({now}) than {name}={limit}",
            tuple(bad),
        )


def _check_keys(columns: Columns, rules: AppendRules) -> None:
    if not rules.needs_keys:
        return
    bad = [index for index, length in enumerate(columns.key_lengths) if length < 0]
    if bad:
        raise errors.InvalidRecordError(
            f"{_named(bad)} without a key, and the topic is compacted", tuple(bad)
        )


def _named(indexes: Sequence[int]) -> str:
    shown = ", ".join(str(index) for index in indexes[:_SHOWN])
    more = f" and {len(indexes) - _SHOWN} more" if len(indexes) > _SHOWN else ""
    return f"record {shown}{more}"


def _wants_encoding(columns: Columns, batch: Incoming, rules: AppendRules) -> bool:
    codec = batch.attributes & CODEC_MASK
    if rules.codec is not None and rules.codec != codec:
        return True
    return codec != Codec.NONE and not columns.is_numbered_from(batch.base_offset)


def _encoded(columns: Columns, batch: Incoming, rules: AppendRules) -> bytearray:
    stamp = BatchStamp(
        codec=Codec(batch.attributes & CODEC_MASK) if rules.codec is None else rules.codec,
        compression_level=rules.compression_level,
        timestamp_type=TimestampType((batch.attributes & TIMESTAMP_TYPE_MASK) >> 3),
        producer_id=ProducerId(batch.producer_id),
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=bool(batch.attributes & TRANSACTIONAL_MASK),
    )
    return encode_columns(columns, stamp, max_batch_bytes=WHOLE_BATCH_BYTES)[0]
