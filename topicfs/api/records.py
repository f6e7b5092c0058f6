"""The records of users: created in bulk from columns, and converted to columns when they are appended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import NamedTuple, TypeAlias

from topicfs.formats.records import RecordRange, merged, record_slices
from topicfs.storage import model
from topicfs.storage.codec.records import Columns, columns_of
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Partition
from topicfs.storage.errors import InvalidRecordError, InvalidTimestampError
from topicfs.storage.model import NO_TIMESTAMP, Buffer, Isolation, Offset, Timestamp

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
CHUNK_RECORDS = 256
"""Records per chunk. The objects of a larger chunk would not fit in the processor's cache."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Record(NamedTuple):
    """A record that was read, or that is to be appended. Immutable."""

    value: bytes | None
    """The payload; None makes the record a tombstone."""
    key: bytes | None = None
    headers: Headers = ()
    """Names with values, in order; a name may occur more than once."""
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970, UTC. -1: no timestamp; such a record gets the current time when it is appended."""
    topic: str = ""
    """The topic, partition and offset that the record was read from; appends ignore them."""
    partition: int = -1
    offset: int = -1


class Appended(NamedTuple):
    """Where a record or batch was appended."""

    partition: int
    offset: int | None
    """Offset of the first record. None if the append went through a mount, whose daemon does not report the offset."""


_new = partial(tuple.__new__, Record)


def chunks(wanted: RecordRange, isolation: Isolation) -> Iterator[list[Record]]:
    """Yield the records of a range, some hundreds at a time, to fit in the processor's cache."""
    for partition, columns, start, end in record_slices(wanted, isolation):
        for first in range(start, end, CHUNK_RECORDS):
            yield _records_of(partition, columns, first, min(first + CHUNK_RECORDS, end))


def _records_of(partition: Partition, columns: Columns, first: int, last: int) -> list[Record]:
    """Return the records [first, last); each column is decoded in one pass."""
    headers: Iterable[Headers] = repeat(())
    if any(columns.header_lengths[first:last]):
        headers = [_headers(columns.headers(index)) for index in range(first, last)]
    made = zip(
        columns.values(first, last),
        columns.keys(first, last),
        headers,
        columns.timestamps[first:last].tolist(),
        repeat(partition.topic),
        repeat(partition.number),
        columns.offsets[first:last].tolist(),
        strict=False,
    )
    return list(map(_new, made))


def _headers(headers: Iterable[model.Header]) -> Headers:
    return tuple((header.key.decode("utf-8", "surrogateescape"), header.value) for header in headers)


def records_between(ranges: Sequence[RecordRange], isolation: Isolation) -> Iterator[Record]:
    """Yield the records of all ranges; several partitions are merged by time."""
    if len(ranges) == 1:
        for chunk in chunks(ranges[0], isolation):
            yield from chunk
        return
    for topic, partition, record in merged(ranges, isolation):
        yield with_place(record, topic, partition, record.offset)


def with_place(record: model.Record, topic: str, partition: int, offset: int) -> Record:
    """Convert a record of the engine to a record for users."""
    headers = _headers(record.headers)
    return Record(record.value, record.key, headers, record.timestamp, topic, partition, offset)


def appended_columns(records: Iterable[Record | Buffer]) -> Columns:
    """Convert records to columns for an append; plain bytes are values. Raises TypeError, InvalidRecordError."""
    now = system_clock()
    return columns_of([_checked(record, Offset(index), now) for index, record in enumerate(records)])


def _checked(record: Record | Buffer, offset: Offset, now: Timestamp) -> model.Record:
    given = record if isinstance(record, Record) else Record(octets(record, "a value"))
    timestamp = given.timestamp
    if type(timestamp) is not int:
        raise TypeError(f"{timestamp!r}: a timestamp is an int of milliseconds, or, for append, a datetime")
    if not -1 <= timestamp < 2**63:
        raise InvalidTimestampError(
            f"{timestamp!r}: a timestamp is milliseconds since 1970, from 0 to 2^63 - 1"
        )
    headers = []
    for name, value in pairs(given.headers):
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be text, not {type(name).__name__}")
        try:
            encoded = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidRecordError(f"{name!r}: a header's name contains half a surrogate pair") from None
        headers.append(model.Header(encoded, octets(value, "the value of a header")))
    return model.Record(
        offset,
        now if timestamp == NO_TIMESTAMP else Timestamp(timestamp),
        octets(given.key, "a key"),
        octets(given.value, "a value"),
        tuple(headers),
    )


def pairs(headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return headers as pairs, in order; also accepts a mapping. Raises TypeError for other values."""
    found = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    if not all(isinstance(one, tuple | list) and len(one) == 2 for one in found):
        raise TypeError("headers must be pairs, as in [('source', b'shop')], or a dict")
    return found


def octets(value: object, what: str) -> bytes | None:
    """Return `value` as immutable bytes, or None. Raises TypeError unless `value` is None or a bytes-like object."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"{what} must be bytes or None, not {type(value).__name__}; encode text first: text.encode()"
    )


def milliseconds(moment: datetime) -> Timestamp:
    """Return a time as milliseconds since 1970, rounded up. Raises ValueError for a time without a zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment}: a time must have a zone; write datetime.now(UTC), or .astimezone()")
    return Timestamp(-((_EPOCH - moment) // _MILLISECOND))
