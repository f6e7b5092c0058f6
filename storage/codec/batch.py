"""Finds, checks and patches record batches of format v2 (see `headers`) in a buffer.

This module is compiled by Cython, and runs uncompiled with the same results. Bounds are checked by hand; a buffer
must not change while it is read.
"""

from __future__ import annotations

import struct
import zlib

import cython

from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.codec.headers import Batches, BatchHeader
from topicfs.storage.errors import CorruptBatchError, TornBatchError
from topicfs.storage.model import MAX_OFFSET, Buffer, Offset, TimestampType

if cython.compiled:
    from cython.cimports.topicfs.storage.codec.binary import fields, memory
    from cython.cimports.topicfs.storage.codec.binary.short_crc import has_short_crc32c, three_crc32c_fit
    from cython.cimports.topicfs.storage.counts.topic_counts import TopicCounts
else:
    from topicfs.storage.codec.binary import fields, memory
    from topicfs.storage.counts.topic_counts import TopicCounts

_LOW_32_BITS = cython.declare(cython.longlong, 2**32 - 1)
_OFFSET_END = cython.declare(cython.longlong, MAX_OFFSET + 1)
"""From this base offset on, the last offset or the end offset of a batch might overflow int64."""

_SIDE_BY_SIDE = cython.declare(cython.longlong, has_short_crc32c() * 64 * 1024 if cython.compiled else 0)
"""Size up to which three checksums are computed in parallel. For larger batches the library of CRC-32C is as fast."""

_LEADER_EPOCH = struct.Struct(">i")
_BASE_OFFSET = struct.Struct(">q")
_CHECKSUM = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">H")
_PRODUCER = struct.Struct(">qhi")


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, without verifying the checksum. Raises TornBatchError, CorruptBatchError."""
    batches = scan(data, position, max_batches=1)
    if batches.problem is not None:
        raise batches.problem
    if not len(batches):
        raise TornBatchError(position, "no batch begins here: the data ends")
    return batches[0]


def find_end(data: Buffer) -> tuple[int, Offset]:
    """Return the end of the adjacent whole batches at the start of `data`, and the last offset of the last batch.

    The end is the same as `scan(data).stop`, but is found faster. If there is no batch, the offset is -1.
    """
    view: memoryview = memory.flat_view(data)
    octets: cython.p_uchar = memory.octets_of(view)
    stop: cython.Py_ssize_t = len(view)
    at: cython.Py_ssize_t = 0
    last_offset: cython.longlong = -1
    size: cython.longlong = _size_at(octets, at, stop)
    while size > 0:
        offset: cython.longlong = _last_offset_at(octets, at)
        if offset < 0:
            break
        last_offset = offset
        at += size
        size = _size_at(octets, at, stop)
    return at, Offset(last_offset)


def find_offset(data: Buffer, offset: cython.longlong, room: cython.Py_ssize_t) -> int:
    """Return the position of the first batch whose last offset is at or above `offset`; only headers are read.

    The batches are adjacent and take `room` bytes. `data` may have only the first part of these bytes, so the
    returned position may be beyond `data`. The search stops at a batch that is torn or damaged, or whose header is
    cut off, and returns the position of that batch.
    """
    view: memoryview = memory.flat_view(data)
    octets: cython.p_uchar = memory.octets_of(view)
    stop: cython.Py_ssize_t = len(view) - fields.HEADER_SIZE
    at: cython.Py_ssize_t = 0
    while at <= stop and 0 <= _last_offset_at(octets, at) < offset:
        size: cython.longlong = _size_at(octets, at, room)
        if size <= 0:
            break
        at += size
    return at


def verify_checksum(data: Buffer, header: BatchHeader) -> None:
    """Raise CorruptBatchError if the checksum of `header`'s batch does not match its bytes."""
    batches = scan(data, header.position, header.end_position, check_crc=True, max_batches=1)
    if batches.problem is not None:
        raise batches.problem


def assign_offsets(batch: bytearray, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Write a batch's base offset and leader epoch, as a leader does; the checksum covers neither of them."""
    _BASE_OFFSET.pack_into(batch, position, base_offset)
    _LEADER_EPOCH.pack_into(batch, position + fields.LEADER_EPOCH_POSITION, leader_epoch)


def assign_plain(
    batches: bytearray,
    *,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    max_batch_bytes: cython.longlong,
    latest_timestamp: cython.longlong,
) -> list[tuple[int, int, int]] | None:
    """Write base offsets and leader epochs, as a leader does, into adjacent batches that this codec just made.

    Return size, last offset and max timestamp of each batch. Return None and change nothing if a batch is not plain
    v2 (it has a producer, or attributes besides the codec), is larger than `max_batch_bytes`, or is later than
    `latest_timestamp`. Checksums and records are not checked.
    """
    octets: cython.p_uchar = memory.writable(batches)
    end: cython.Py_ssize_t = len(batches)
    at: cython.Py_ssize_t = 0
    while at < end:
        size: cython.longlong = _plain_size(octets, at, end, latest_timestamp)
        if not 0 < size <= max_batch_bytes:
            return None
        at += size
    return _assigned(octets, end, base_offset, leader_epoch)


def assign_one(
    batch: bytearray,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    max_batch_bytes: cython.longlong,
    latest_timestamp: cython.longlong,
    counts: TopicCounts,
) -> tuple[int, int] | None:
    """Do what `assign_plain` does, for one batch and in a third of the time. Count the append as small in `counts`."""
    octets: cython.p_uchar = memory.writable(batch)
    end: cython.Py_ssize_t = len(batch)
    if end > max_batch_bytes or _plain_size(octets, 0, end, latest_timestamp) != end:
        return None
    _put_integer(octets, 0, base_offset, 8)
    _put_integer(octets, fields.LEADER_EPOCH_POSITION, leader_epoch, 4)
    last_offset_delta: cython.longlong = _int32(octets, fields.LAST_OFFSET_DELTA_POSITION)
    counts.small_appends += 1
    counts.records += last_offset_delta + 1
    counts.bytes_appended += end
    return base_offset + last_offset_delta, _int64(octets, fields.MAX_TIMESTAMP_POSITION)


@cython.cfunc
@cython.exceptval(check=False)
def _plain_size(
    octets: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, latest_timestamp: cython.longlong
) -> cython.longlong:
    """Return the size of the batch at `at` if it is plain v2 and not later than `latest_timestamp`; otherwise 0."""
    size: cython.longlong = _size_at(octets, at, end)
    if size < fields.HEADER_SIZE:
        return 0
    count: cython.longlong = _int32(octets, at + fields.RECORD_COUNT_POSITION)
    if (
        octets[at + fields.MAGIC_POSITION] != fields.CURRENT_MAGIC
        or octets[at + fields.ATTRIBUTES_POSITION] != 0
        or octets[at + fields.ATTRIBUTES_POSITION + 1] > fields.CODEC_MASK
        or count <= 0
        or _int32(octets, at + fields.LAST_OFFSET_DELTA_POSITION) != count - 1
        or _int64(octets, at + fields.MAX_TIMESTAMP_POSITION) > latest_timestamp
        or _int64(octets, at + fields.PRODUCER_ID_POSITION) != -1
    ):
        return 0
    return size


@cython.cfunc
def _assigned(
    octets: cython.p_uchar, end: cython.Py_ssize_t, offset: cython.longlong, leader_epoch: cython.longlong
) -> list:  # type: ignore[type-arg] # Cython takes no parameters here
    placed: list[tuple[int, int, int]] = []
    at: cython.Py_ssize_t = 0
    while at < end:
        size: cython.longlong = _size_at(octets, at, end)
        _put_integer(octets, at, offset, 8)
        _put_integer(octets, at + fields.LEADER_EPOCH_POSITION, leader_epoch, 4)
        offset += _int32(octets, at + fields.RECORD_COUNT_POSITION)
        placed.append((size, offset - 1, _int64(octets, at + fields.MAX_TIMESTAMP_POSITION)))
        at += size
    return placed


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_integer(
    target: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.void:
    """Write `value` as a big-endian two's complement integer of `size` bytes."""
    index: cython.int
    for index in range(size):
        target[at + index] = (value >> (8 * (size - 1 - index))) & 0xFF


def set_append_time(batch: bytearray, position: int, timestamp: int) -> None:
    """Set the batch at `position` to LogAppendTime and `timestamp`, and update its checksum.

    The base timestamp and the records' deltas stay as the producer wrote them, because readers ignore them in a batch
    with LogAppendTime.
    """
    set_max_timestamp(batch, position, timestamp, TimestampType.LOG_APPEND_TIME)


def set_max_timestamp(batch: bytearray, position: int, timestamp: int, kind: TimestampType) -> None:
    """Write the batch's max timestamp, timestamp type and checksum."""
    header = read_header(batch, position)
    attributes = (header.attributes & ~fields.TIMESTAMP_TYPE_MASK) | (kind << 3)
    _ATTRIBUTES.pack_into(batch, position + fields.ATTRIBUTES_POSITION, attributes)
    _BASE_OFFSET.pack_into(batch, position + fields.MAX_TIMESTAMP_POSITION, timestamp)
    seal(batch, position, header.end_position)


def set_producer(
    batch: bytearray, position: int, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Write the producer fields of the batch at `position`, and its checksum."""
    header = read_header(batch, position)
    _PRODUCER.pack_into(
        batch, position + fields.PRODUCER_ID_POSITION, producer_id, producer_epoch, base_sequence
    )
    seal(batch, position, header.end_position)


def seal(batch: bytearray, position: int, end: int) -> None:
    """Compute and write the checksum of the batch in [position, end)."""
    with memoryview(batch) as view:
        checksum = crc32c(view[position + fields.ATTRIBUTES_POSITION : end])
    _CHECKSUM.pack_into(batch, position + fields.CHECKSUM_POSITION, checksum)


def scan(
    data: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = False,
    max_batches: int | None = None,
) -> Batches:
    """Return the headers of the adjacent batches in `data[start:end]`, including the old formats.

    The scan stops at the first torn or damaged batch, and reports it in `problem` instead of raising an exception. It
    also stops after `max_batches`, with which a caller limits memory (120 bytes per batch).
    """
    view: memoryview = memory.flat_view(data)
    octets: cython.p_uchar = memory.octets_of(view)
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = len(view) if end is None else end
    if at < 0 or stop > len(view) or at > stop:
        raise ValueError(f"[{at}, {stop}) is not within {len(view)} bytes")
    limit: cython.Py_ssize_t = stop - at if max_batches is None else max_batches
    rows: memoryview = memory.new_int64s(fields.ROW_SIZE * _count_batches(octets, at, stop, limit))
    row: cython.p_longlong = memory.int64s_of(rows)
    capacity: cython.Py_ssize_t = len(rows)
    used: cython.Py_ssize_t = 0
    cause: str | None = None
    # All rows below `sound` have valid checksums. It stays up to three rows behind `used`, while the bytes of
    # these batches are still in the processor's cache.
    sound: cython.Py_ssize_t = 0 if check_crc else capacity
    while used < capacity:
        size: cython.longlong = _size_at(octets, at, stop)
        if size <= 0 or not _fill_row(octets, at, size, row, used):
            cause = "offsets out of range"
            break
        at += size
        used += fields.ROW_SIZE
        if used - sound == 3 * fields.ROW_SIZE:
            sound = _first_mismatch(view, row, sound, used)
            if sound < used:
                break
    if sound < used:
        sound = _first_mismatch(view, row, sound, used)
    if sound < used:
        used, at = sound, row[sound]
        cause = _checksum_mismatch(view, row, sound)
    if cause is not None:
        return Batches(rows[:used], at, CorruptBatchError(at, cause))
    return Batches(
        rows, at, _remainder(octets, at, stop) if at < stop and used < fields.ROW_SIZE * limit else None
    )


@cython.cfunc
def sound_rows(
    view: memoryview, at: cython.Py_ssize_t, end: cython.Py_ssize_t, row: cython.p_longlong
) -> cython.Py_ssize_t:
    """Check the next one to three batches of [at, end), write their rows to `row`, and return the batches' end.

    `row` has space for three rows and one more integer, which gets the number of integers in the rows. Return 0 if a
    batch is torn or damaged; checksums are verified. Callers scan many batches and keep none of them.
    """
    octets: cython.p_uchar = memory.octets_of(view)
    used: cython.Py_ssize_t = 0
    while used < 3 * fields.ROW_SIZE and at < end:
        size: cython.longlong = _size_at(octets, at, end)
        if size <= 0 or not _fill_row(octets, at, size, row, used):
            return 0
        at += size
        used += fields.ROW_SIZE
    row[3 * fields.ROW_SIZE] = used
    return at if _first_mismatch(view, row, 0, used) == used else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(octets: cython.p_uchar, at: cython.Py_ssize_t) -> cython.int:
    if cython.compiled:
        # With a single pointer and constant indexes, the C compiler generates a load and a byte swap.
        here: cython.p_uchar = octets + at
        return cython.cast(
            cython.int,
            (cython.cast(cython.uint, here[0]) << 24)
            | (cython.cast(cython.uint, here[1]) << 16)
            | (cython.cast(cython.uint, here[2]) << 8)
            | here[3],
        )
    return int.from_bytes(octets[at : at + 4], "big", signed=True)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(octets: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return cython.cast(
            cython.longlong,
            (cython.cast(cython.ulonglong, cython.cast(cython.uint, _int32(octets, at))) << 32)
            | cython.cast(cython.uint, _int32(octets, at + 4)),
        )
    return int.from_bytes(octets[at : at + 8], "big", signed=True)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_at(octets: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Return the size of the whole batch at `at`; 0: torn, -1: invalid size or magic (kafka-storage.md#batch-scan)."""
    if end - at <= fields.MAGIC_POSITION + 1:
        return 0
    length: cython.longlong = _int32(octets, at + fields.LENGTH_POSITION)
    magic: cython.int = octets[at + fields.MAGIC_POSITION]
    smallest: cython.int = fields.SMALLEST_LENGTH
    if magic < fields.CURRENT_MAGIC:
        smallest = fields.SMALLEST_LENGTH_V1 if magic == 1 else fields.SMALLEST_LENGTH_V0
    if length < smallest or magic > fields.CURRENT_MAGIC:
        return -1
    size: cython.longlong = length + fields.LOG_OVERHEAD
    return size if size <= end - at else 0


@cython.cfunc
@cython.exceptval(check=False)
def _count_batches(
    octets: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    at: cython.Py_ssize_t = start
    count: cython.Py_ssize_t = 0
    while count < limit:
        size: cython.longlong = _size_at(octets, at, end)
        if size <= 0:
            break
        at += size
        count += 1
    return count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fill_row(
    octets: cython.p_uchar,
    at: cython.Py_ssize_t,
    size: cython.longlong,
    row: cython.p_longlong,
    to: cython.Py_ssize_t,
) -> cython.bint:
    """Write the header at `at` into the row that begins at `to`; return False if its offsets are invalid."""
    base_offset: cython.longlong = _int64(octets, at)
    if octets[at + fields.MAGIC_POSITION] < fields.CURRENT_MAGIC:
        return _fill_legacy_row(octets, at, size, row, to)
    delta: cython.longlong = _int32(octets, at + fields.LAST_OFFSET_DELTA_POSITION)
    row[to + fields.POSITION] = at
    row[to + fields.SIZE_BYTES] = size
    row[to + fields.BASE_OFFSET] = base_offset
    row[to + fields.LEADER_EPOCH] = _int32(octets, at + fields.LEADER_EPOCH_POSITION)
    row[to + fields.MAGIC] = fields.CURRENT_MAGIC
    row[to + fields.CHECKSUM] = _int32(octets, at + fields.CHECKSUM_POSITION) & _LOW_32_BITS
    row[to + fields.ATTRIBUTES] = (octets[at + fields.ATTRIBUTES_POSITION] << 8) | octets[
        at + fields.ATTRIBUTES_POSITION + 1
    ]
    row[to + fields.BASE_TIMESTAMP] = _int64(octets, at + fields.BASE_TIMESTAMP_POSITION)
    row[to + fields.MAX_TIMESTAMP] = _int64(octets, at + fields.MAX_TIMESTAMP_POSITION)
    row[to + fields.PRODUCER_ID] = _int64(octets, at + fields.PRODUCER_ID_POSITION)
    row[to + fields.PRODUCER_EPOCH] = _int16(octets, at + fields.PRODUCER_EPOCH_POSITION)
    row[to + fields.BASE_SEQUENCE] = _int32(octets, at + fields.BASE_SEQUENCE_POSITION)
    row[to + fields.RECORD_COUNT] = _int32(octets, at + fields.RECORD_COUNT_POSITION)
    row[to + fields.RECORD_END] = 0
    if base_offset < 0 or delta < 0 or base_offset >= _OFFSET_END:
        return False
    row[to + fields.LAST_OFFSET] = base_offset + delta
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _last_offset_at(octets: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    """Return the last offset of the batch at `at`; -1 if its offsets are invalid."""
    base_offset: cython.longlong = _int64(octets, at)
    delta: cython.longlong = 0
    if octets[at + fields.MAGIC_POSITION] == fields.CURRENT_MAGIC:
        delta = _int32(octets, at + fields.LAST_OFFSET_DELTA_POSITION)
    return base_offset + delta if 0 <= base_offset < _OFFSET_END and delta >= 0 else -1


@cython.cfunc
@cython.exceptval(check=False)
def _fill_legacy_row(
    octets: cython.p_uchar,
    at: cython.Py_ssize_t,
    size: cython.longlong,
    row: cython.p_longlong,
    to: cython.Py_ssize_t,
) -> cython.bint:
    """Write the row of a v0 or v1 entry, which stores its last offset (kafka-storage.md#message-sets)."""
    offset: cython.longlong = _int64(octets, at)
    magic: cython.int = octets[at + fields.MAGIC_POSITION]
    attributes: cython.int = octets[at + fields.LEGACY_ATTRIBUTES_POSITION]
    compressed: cython.bint = attributes & fields.CODEC_MASK != 0
    timestamp: cython.longlong = _int64(octets, at + fields.LEGACY_TIMESTAMP_POSITION) if magic == 1 else -1
    row[to + fields.POSITION] = at
    row[to + fields.SIZE_BYTES] = size
    row[to + fields.BASE_OFFSET] = offset
    row[to + fields.LAST_OFFSET] = offset
    row[to + fields.LEADER_EPOCH] = -1
    row[to + fields.MAGIC] = magic
    row[to + fields.CHECKSUM] = _int32(octets, at + fields.LEGACY_CHECKSUM_POSITION) & _LOW_32_BITS
    row[to + fields.ATTRIBUTES] = attributes
    row[to + fields.BASE_TIMESTAMP] = timestamp
    row[to + fields.MAX_TIMESTAMP] = timestamp
    row[to + fields.PRODUCER_ID] = -1
    row[to + fields.PRODUCER_EPOCH] = -1
    row[to + fields.BASE_SEQUENCE] = -1
    row[to + fields.RECORD_COUNT] = -1 if compressed else 1
    row[to + fields.RECORD_END] = 0
    return 0 <= offset < _OFFSET_END


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int16(octets: cython.p_uchar, at: cython.Py_ssize_t) -> cython.int:
    value: cython.int = (octets[at] << 8) | octets[at + 1]
    return value - 0x10000 if value >= 0x8000 else value


@cython.cfunc
def _first_mismatch(
    view: memoryview, row: cython.p_longlong, at: cython.Py_ssize_t, used: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the index in `row`, from `at` on, of the first row with a wrong checksum; `used` if all are right."""
    while at < used:
        if at + 30 < used and _three_fit(memory.octets_of(view), row, at):
            at += 3 * fields.ROW_SIZE
        elif _checksum(view, row, at) == row[at + fields.CHECKSUM]:
            at += fields.ROW_SIZE
        else:
            break
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _three_fit(octets: cython.p_uchar, row: cython.p_longlong, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether three adjacent batches have valid checksums; False if one is large or of an old format."""
    if cython.compiled:
        one: cython.p_longlong = row + at
        two: cython.p_longlong = one + fields.ROW_SIZE
        three: cython.p_longlong = two + fields.ROW_SIZE
        if (
            max(one[fields.SIZE_BYTES], two[fields.SIZE_BYTES], three[fields.SIZE_BYTES]) > _SIDE_BY_SIDE
            or min(one[fields.MAGIC], two[fields.MAGIC], three[fields.MAGIC]) < fields.CURRENT_MAGIC
        ):
            return False
        return three_crc32c_fit(
            octets + one[fields.POSITION] + fields.ATTRIBUTES_POSITION,
            one[fields.SIZE_BYTES] - fields.ATTRIBUTES_POSITION,
            one[fields.CHECKSUM],
            octets + two[fields.POSITION] + fields.ATTRIBUTES_POSITION,
            two[fields.SIZE_BYTES] - fields.ATTRIBUTES_POSITION,
            two[fields.CHECKSUM],
            octets + three[fields.POSITION] + fields.ATTRIBUTES_POSITION,
            three[fields.SIZE_BYTES] - fields.ATTRIBUTES_POSITION,
            three[fields.CHECKSUM],
        )
    return False


@cython.cfunc
def _checksum(view: memoryview, row: cython.p_longlong, to: cython.Py_ssize_t) -> cython.longlong:
    """Return the checksum computed from the batch's bytes."""
    at: cython.Py_ssize_t = row[to + fields.POSITION]
    end: cython.Py_ssize_t = at + row[to + fields.SIZE_BYTES]
    if row[to + fields.MAGIC] == fields.CURRENT_MAGIC:
        return memory.checksum_of(view, at + fields.ATTRIBUTES_POSITION, end)
    return zlib.crc32(memory.part_of(view, at + fields.MAGIC_POSITION, end))


@cython.cfunc
def _checksum_mismatch(view: memoryview, row: cython.p_longlong, to: cython.Py_ssize_t) -> str:
    """Return a message about a wrong checksum: the stored and the computed one, and the batch's offsets."""
    return (
        f"checksum is {row[to + fields.CHECKSUM]:#010x}, but its bytes have {_checksum(view, row, to):#010x} "
        f"(offsets {row[to + fields.BASE_OFFSET]} to {row[to + fields.LAST_OFFSET]})"
    )


@cython.cfunc
def _remainder(octets: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> CorruptBatchError:
    """Return the error for the remaining bytes at `at`, which are not a whole batch."""
    if _size_at(octets, at, end) == 0:
        return TornBatchError(at, f"the batch ends after {end - at} bytes, before its declared size")
    return CorruptBatchError(
        at,
        f"length {_int32(octets, at + fields.LENGTH_POSITION)} and magic {octets[at + fields.MAGIC_POSITION]} are invalid",
    )
