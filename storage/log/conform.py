"""Bringing a client's batches into the form that their topic wants: the part of an append that reads records.

What a header says is checked against the records; a batch is encoded anew only where its codec is not the topic's,
or where a compressed one numbers its records otherwise than 0, 1, 2 … (kafka-storage.md §4.1). Other levels of the
same codec are left alone. Control batches pass as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.codec.batch import set_max_timestamp
from storage.codec.columns import Columns, decode
from storage.codec.headers import CODEC_MASK, CONTROL_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK, Codec
from storage.codec.records import encode_columns
from storage.codec.stamp import BatchStamp
from storage.errors import CorruptBatchError, InvalidRecordError, InvalidTimestampError
from storage.log.append import AppendRules, Incoming
from storage.model import NO_TIMESTAMP, ProducerId, TimestampType

WHOLE_BATCH_BYTES = 2**31 - 1
"""A batch encoded anew stays one batch, whatever its size; that is checked afterwards."""

_SHOWN = 5
"""How many bad records an error names."""


def conform(
    batches: bytearray, incoming: Sequence[Incoming], rules: AppendRules, now: int
) -> tuple[bytearray, Sequence[Incoming] | None]:
    """The batches as they may enter the log, and what is true of them.

    They are those that came, perhaps with a corrected largest timestamp; or new ones and None, to be read and checked as
    those that came were.

    Raises InvalidTimestampError, InvalidRecordError, each naming all records at fault; nothing is changed then.
    """
    decoded = [None if batch.attributes & CONTROL_MASK else _records(batches, batch) for batch in incoming]
    for batch, columns in zip(incoming, decoded, strict=True):
        if columns is not None:
            _check_times(columns, batch, rules, now)
            _check_keys(columns, rules)
    anew = [
        None
        if columns is None or not _wants_encoding(columns, batch, rules)
        else _encoded(columns, batch, rules)
        for batch, columns in zip(incoming, decoded, strict=True)
    ]
    if any(data is not None for data in anew):
        whole = bytearray().join(
            batches[batch.position : batch.position + batch.size_bytes] if data is None else data
            for batch, data in zip(incoming, anew, strict=True)
        )
        return whole, None
    true: list[Incoming] | None = None
    for index, columns in enumerate(decoded):
        if columns is None:
            continue
        batch, largest = incoming[index], max(columns.timestamps, default=NO_TIMESTAMP)
        # Never so of a batch marked LogAppendTime: the header's time is that of all its records.
        if largest != batch.max_timestamp:
            set_max_timestamp(batches, batch.position, largest, TimestampType.CREATE_TIME)
            true = true or list(incoming)
            true[index] = batch._replace(max_timestamp=largest)
    return batches, true or incoming


def _records(batches: bytearray, batch: Incoming) -> Columns:
    try:
        return decode(batches, batch.position, batch.position + batch.size_bytes, check_crc=False)[0]
    except CorruptBatchError as error:
        raise InvalidRecordError(f"not a record batch: {error}") from error


def _check_times(columns: Columns, batch: Incoming, rules: AppendRules, now: int) -> None:
    if rules.stamps_append_time or batch.attributes & TIMESTAMP_TYPE_MASK:
        return
    earliest, latest = now - rules.before_max_ms, now + rules.after_max_ms
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
        raise InvalidTimestampError(
            f"{_named(bad)}: timestamp {timestamp} is further from now ({now}) than {name}={limit}",
            tuple(bad),
        )


def _check_keys(columns: Columns, rules: AppendRules) -> None:
    if not rules.needs_keys:
        return
    bad = [index for index, length in enumerate(columns.key_lengths) if length < 0]
    if bad:
        raise InvalidRecordError(f"{_named(bad)} without a key, and the topic is compacted", tuple(bad))


def _named(indexes: Sequence[int]) -> str:
    shown = ", ".join(str(index) for index in indexes[:_SHOWN])
    more = f" and {len(indexes) - _SHOWN} more" if len(indexes) > _SHOWN else ""
    return f"record {shown}{more}"


def _wants_encoding(columns: Columns, batch: Incoming, rules: AppendRules) -> bool:
    codec = batch.attributes & CODEC_MASK
    if rules.codec is not None and rules.codec != codec:
        return True
    first = batch.base_offset
    return codec != Codec.NONE and any(
        offset != first + index for index, offset in enumerate(columns.offsets)
    )


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
