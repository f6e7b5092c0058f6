"""Tests of encoding records to batches and decoding them: round trips, limits, and malformed records."""

from __future__ import annotations

import mmap
import random
import struct
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.codec.strategies import record_lists
from topicfs.storage.codec.batch import read_header, scan, seal, verify_checksum
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import (
    BatchStamp,
    columns_of,
    decode,
    encode,
    encode_columns,
    encode_lines,
    read_varint,
    varint,
)
from topicfs.storage.errors import CorruptBatchError, RecordTooLargeError, TornBatchError
from topicfs.storage.model import Header, Record, TimestampType


def values(batches):
    """Return the values of all records of `batches`."""
    return [record.value for batch in batches for columns in decode(batch) for record in columns]


@given(record_lists(max_size=8), st.integers(0, 9), st.integers(0, 9))
def test_many_keys_and_values_are_those_of_each_record(records, first, last):
    """`keys` and `values` return the same as `key` and `value` of each record. An invalid range raises IndexError."""
    (columns,) = decode(encode(records))
    if not first <= last <= len(columns):
        for column in (columns.keys, columns.values):
            with pytest.raises(IndexError):
                column(first, last)
        return
    assert [columns.key(index) for index in range(first, last)] == columns.keys(first, last)
    assert [columns.value(index) for index in range(first, last)] == columns.values(first, last)


@pytest.mark.parametrize("bounds", [(-1, 1), (0, 2**31), (0, 2**63 - 1), (-(2**63), 0)])
def test_a_range_beyond_the_records_is_refused(bounds):
    """Ranges outside the columns raise IndexError, even with 64-bit numbers."""
    columns = columns_of([Record(0, 0, b"k", None)])
    for column in (columns.keys, columns.values):
        with pytest.raises(IndexError):
            column(*bounds)


@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-64, "7f"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_golden_varints(value, octets):
    """Row 134: a number is zigzag-encoded, with seven bits in each byte, the lowest bits first.

    A varint takes up to five bytes, and a varlong up to ten.
    """
    data = bytes.fromhex(octets)
    assert data == varint(value)
    assert (value, len(data)) == read_varint(data, max_size=len(data))


@pytest.mark.parametrize(
    ("octets", "max_size"),
    [("", 5), ("80", 5), ("ffffffffff01", 5), ("8080808080", 5), ("ffffffffffffffffffff01", 10)],
)
def test_a_number_too_long_or_cut_off_is_refused(octets, max_size):
    """Row 134: a varint of more than five bytes, a varlong of more than ten, or a number without an end is refused."""
    with pytest.raises(CorruptBatchError):
        read_varint(bytes.fromhex(octets), max_size=max_size)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value):
    """Each 64-bit number is decoded as it was encoded."""
    assert (value, len(varint(value))) == read_varint(varint(value), max_size=10)


@given(record_lists(), st.sampled_from(Codec))
def test_records_round_trip(records, codec):
    """Rows 133 and 138: gaps, any timestamps, nulls, empty values and headers are decoded as they were encoded.

    The checksum covers the compressed bytes.
    """
    batch = encode(records, BatchStamp(codec=codec))
    header = read_header(batch)

    assert codec is header.codec
    verify_checksum(batch, header)
    assert crc32c(bytes(batch[21:])) == header.checksum
    assert records == [record for columns in decode(batch) for record in columns]


@given(record_lists(max_size=5), record_lists(max_size=5))
def test_a_span_of_batches_is_one_set_of_columns(first, second):
    """Adjacent batches share columns, and `record_end` returns where each batch ends."""
    data = b"before" + encode(first) + encode(second, BatchStamp(producer_id=5, producer_epoch=1))

    (columns,) = decode(data, 6)

    assert first + second == list(columns)
    assert [len(first), len(first) + len(second)] == [batch.record_end for batch in columns.batches]
    assert [6, 6 + len(encode(first))] == [batch.position for batch in columns.batches]
    assert [-1, 5] == columns.batches.column("producer_id").tolist()


@given(record_lists(), st.integers(300, 5000))
def test_columns_split_at_the_largest_batch(records, max_batch_bytes):
    """No batch exceeds the limit, and each batch is as large as possible.

    The next record would not fit the batch. The offsets in a batch begin at 0 and have no gaps.
    """
    try:
        batches = encode_columns(columns_of(records), max_batch_bytes=max_batch_bytes)
    except RecordTooLargeError:
        assert any(len(encode([record])) > max_batch_bytes for record in records)
        return

    parts = [list(columns) for batch in batches for columns in decode(batch)]
    assert [record[1:] for record in records] == [record[1:] for part in parts for record in part]
    for batch, part in zip(batches, parts, strict=True):
        assert len(batch) <= max_batch_bytes
        assert list(range(len(part))) == [record.offset for record in part]
    for part, following in pairwise(parts):
        more = [*part, following[0]._replace(offset=len(part))]
        assert len(encode(more)) > max_batch_bytes


def test_sequences_count_on_over_the_batches_of_one_call():
    """A producer's second batch continues the sequence of the first."""
    records = [Record(i, 0, None, b"x" * 100) for i in range(10)]
    stamp = BatchStamp(producer_id=9, producer_epoch=0, base_sequence=2**31 - 3)

    batches = encode_columns(columns_of(records), stamp, max_batch_bytes=500)

    assert [2**31 - 3, 1, 5] == [read_header(batch).base_sequence for batch in batches]


LINES = st.lists(st.binary(max_size=300).map(lambda line: line.replace(b"\n", b"")), max_size=50)


@given(LINES, st.integers(400, 3000))
def test_lines_round_trip(lines, max_batch_bytes):
    """Each line, even an empty one, becomes a value. Each batch fits the limit and is full."""
    text = b"".join(line + b"\n" for line in lines)

    batches = encode_lines(text, timestamp=1234, max_batch_bytes=max_batch_bytes)

    assert lines == values(batches)
    assert all(len(batch) <= max_batch_bytes for batch in batches)
    assert batches == encode_columns(
        columns_of([Record(i, 1234, None, line) for i, line in enumerate(lines)]),
        max_batch_bytes=max_batch_bytes,
    )


def test_lines_of_one_byte_make_the_batch_grow():
    """Lines that are shorter than the first estimate make the batch's buffer grow."""
    batches = encode_lines(b"a\n" * 5000 + b"\n" * 5000, timestamp=0)

    assert [b"a"] * 5000 + [b""] * 5000 == values(batches)
    assert 1 == len(batches)


def test_a_line_too_long_is_named():
    """The error for a line that is too long has its number, counted over all batches of the call."""
    text = b"short\n" * 100 + b"x" * 200 + b"\n"

    with pytest.raises(RecordTooLargeError, match="line 101 does not fit a batch of 200 bytes"):
        encode_lines(text, timestamp=0, max_batch_bytes=200)


@pytest.mark.parametrize("limit", [0, 60, 61, 68])
def test_a_limit_below_the_smallest_batch_refuses_the_first_line(limit):
    """A limit below 69 bytes (61 of the header, 8 of a record) refuses the first line."""
    with pytest.raises(RecordTooLargeError, match="line 1 "):
        encode_lines(b"a\n", timestamp=0, max_batch_bytes=limit)
    assert 1 == len(encode_lines(b"a\n", timestamp=0, max_batch_bytes=69))


def test_text_without_a_last_lf_is_the_callers_fault():
    """Text without a final LF raises ValueError, as the caller must pass whole lines."""
    with pytest.raises(ValueError, match="no LF"):
        encode_lines(b"a\nb", timestamp=0)


def test_no_text_makes_no_batch():
    """If there are no records, no batch is written."""
    assert [] == encode_lines(b"", timestamp=0)
    assert [] == encode_columns(columns_of([]))


@pytest.mark.parametrize(
    ("offsets", "bounds"),
    [
        ((5, 5), {}),
        ((5, 4), {}),
        ((-1,), {}),
        ((0, 2**31), {}),
        ((5,), {"base_offset": 6}),
        ((5,), {"last_offset": 4}),
        ((), {}),
        ((), {"base_offset": 3}),
        ((), {"base_offset": 3, "last_offset": 2}),
    ],
)
def test_offsets_that_fit_no_batch_are_refused(offsets, bounds):
    """Offsets must ascend from `base_offset` to at most `last_offset`, and span less than 2^31.

    A batch without records needs both of these arguments.
    """
    with pytest.raises(ValueError):
        encode([Record(offset, 0, None, b"") for offset in offsets], **bounds)


def test_stamp_sets_the_attribute_bits_and_producer_fields():
    """The stamp sets timestamp type, transactional and control bits, producer, epoch and sequence."""
    stamp = BatchStamp(
        leader_epoch=4,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        producer_id=12345,
        producer_epoch=2,
        base_sequence=77,
        transactional=True,
    )
    header = read_header(encode([Record(3, 10, None, b""), Record(4, 20, None, b"")], stamp))

    assert (4, 12345, 2, 77, 78) == (
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
    )
    assert TimestampType.LOG_APPEND_TIME is header.timestamp_type
    assert header.is_transactional
    assert not header.is_control


def test_control_batches_are_listed_without_records():
    """The records of control batches are skipped, unless `control` asks for them."""
    control = BatchStamp(transactional=True, control=True)
    data = (
        encode([Record(0, 0, None, b"a")])
        + encode([Record(1, 0, b"\0\0\0\1", b"")], control)
        + encode([Record(2, 0, None, b"b")])
    )

    (hidden,) = decode(data)
    (shown,) = decode(data, control=True)

    assert [0, 2] == hidden.offsets.tolist()
    assert [1, 1, 2] == [batch.record_end for batch in hidden.batches]
    assert [0, 1, 2] == shown.offsets.tolist()


def test_columns_find_the_first_record_as_late():
    """`find_time` searches from an offset on, and returns the first record with the given time or a later time.

    The times need not ascend.
    """
    records = [Record(offset, time, None, b"v") for offset, time in ((10, 5), (20, 9), (30, 7), (40, -1))]
    (columns,) = decode(encode(records))

    asked = [(5, 0), (6, 0), (8, 21), (7, 21), (10, 0), (-1, 31), (-1, 41)]
    assert [0, 1, 4, 2, 4, 3, 4] == [columns.find_time(time, offset) for time, offset in asked]


def test_columns_have_bounds_of_their_times():
    """`time_bounds` returns the smallest and the largest timestamp. A missing timestamp counts as -1."""

    def bounds(*times):
        records = [Record(number, time, None, b"v") for number, time in enumerate(times)]
        (columns,) = decode(encode(records, base_offset=0, last_offset=max(len(times) - 1, 0)))
        return columns.time_bounds()

    assert [(3, 9), (-1, 7), (4, 4), (-1, -1)] == [bounds(5, 9, 3), bounds(7, -1), bounds(4), bounds()]
    assert (0, 2**62) == bounds(2**62, 0)


def test_columns_are_numbered_without_gaps():
    """`is_numbered_from` accepts offsets that ascend by one from the given offset, and no others."""
    for offsets, expected in (((7, 8, 9), True), ((7, 9), False), ((8, 9), False), ((), True)):
        records = [Record(offset, 0, None, b"v") for offset in offsets]
        (columns,) = decode(encode(records, base_offset=7, last_offset=9))
        assert expected == columns.is_numbered_from(7)


def test_columns_index_and_find():
    """Negative indexes count from the end. `find` returns the first record at or after an offset."""
    records = [Record(offset, offset, None, b"%d" % offset) for offset in (10, 20, 30)]
    (columns,) = decode(encode(records))

    assert records[2] == columns.record(-1)
    assert [0, 0, 1, 1, 3] == [columns.find(offset) for offset in (0, 10, 11, 20, 31)]
    for read in (columns.record, columns.key, columns.value, columns.headers, columns.header_spans):
        for index in (3, -4):
            with pytest.raises(IndexError):
                read(index)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(data).cast("b")])
def test_any_buffer_is_decoded(kind):
    """Bytes, bytearrays and views, even views of signed bytes, are decoded."""
    records = [Record(200, 1, b"\xff", b"\x80", (Header(b"\xfe", b"\xff"),))]
    data = kind(bytes(encode(records)))

    assert 200 == read_header(data).base_offset
    assert records == list(decode(data)[0])


def test_a_mapped_file_is_decoded_in_place(tmp_path):
    """A read-only mapping is decoded without a copy, and the columns refer to the mapping."""
    path = tmp_path / "log"
    path.write_bytes(encode_lines(b"one\ntwo\n", timestamp=0)[0])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        (columns,) = decode(mapping)
        assert [b"one", b"two"] == [record.value for record in columns]
        assert mapping is columns.data.obj
        del columns


SAMPLE = bytes(
    encode(
        [
            Record(7, 1700000000000, b"key", b"value" * 30, (Header(b"h1", b"x"), Header(b"h2", None))),
            Record(9, 1700000000777, None, None),
            Record(2**20, 1600000000000, b"", b"", (Header(b"", b"y" * 70),)),
        ]
    )
)


def test_every_truncation_is_detected():
    """A batch that is cut off at any byte is torn. An empty buffer has no batch and no fault."""
    assert [] == decode(b"")
    for kept in range(1, len(SAMPLE)):
        with pytest.raises(TornBatchError):
            decode(SAMPLE[:kept])


def test_every_flipped_bit_is_detected_or_harmless():
    """A flipped bit after the checksum field, or in it, is detected.

    A flipped bit before the checksum field changes at most offset, epoch or length.
    """
    for bit in range(8 * len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit >= 8 * 21:
            with pytest.raises(CorruptBatchError, match=r"checksum|offsets out of range"):
                decode(damaged)
        else:
            read_what_can_be_read(damaged)


def test_flipped_bits_under_a_valid_checksum_stay_inside_the_buffer():
    """A batch with wrong bytes and a valid checksum is refused, or is decoded within the buffer."""
    for bit in range(8 * 21, 8 * len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[bit // 8] ^= 1 << bit % 8
        seal(damaged, 0, len(damaged))
        read_what_can_be_read(damaged)


@given(st.binary(max_size=200))
def test_random_bytes_of_records_stay_inside_the_buffer(records):
    """A reader stays inside the buffer even if random bytes follow a valid header."""
    count = len(records) // 7 or 1
    data = bytearray(SAMPLE[:61] + records)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    seal(data, 0, len(data))
    read_what_can_be_read(data)


@given(st.binary(max_size=300))
def test_random_bytes_stay_inside_the_buffer(data):
    """A reader of random bytes, even with a valid magic, stays inside the buffer."""
    mutable = bytearray(data)
    if len(mutable) > 16:
        mutable[16] = 2
    read_what_can_be_read(mutable)


def read_what_can_be_read(data):
    """Decode without checking checksums, and check that all records are inside the data and can be read."""
    scan(data)
    try:
        found = decode(data, check_crc=False)
    except CorruptBatchError:
        return
    for columns in found:
        assert all(0 <= at <= len(columns.data) for at in columns.key_positions)
        for record in columns:
            assert len(record.value or b"") + len(record.key or b"") <= len(data)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("0c00000001010000", "bytes remain"),
        ("0c000000010100ff", "bytes remain"),
        ("0e000000010100", "length"),
        ("0a0000000101", "1 records declared in"),
        ("0800000001", "1 records declared in"),
        ("ff0000000101", "1 records declared in"),
        ("0c000001010100", "outside its batch"),
        ("0c000002010100", "outside its batch"),
        ("0c000000030100", "key"),
        ("0c000000140100", "key"),
        ("0c000000010300", "value"),
        ("0c000000010c00", "value"),
        ("0c000000010101", "headers"),
        ("0c000000010102", "headers"),
        ("0e0000000101020000", "headers"),
        ("1000000001010202" + "01", "headers"),
        ("12000000010102020001" + "00", "bytes remain"),
        ("0c00ffffffffff", "number"),
    ],
)
def test_malformed_records_are_refused_with_a_cause(body, cause):
    """Row 133: wrong lengths, deltas, header counts and trailing bytes are refused, each with its own cause."""
    data = bytearray(encode([Record(0, 0, None, None)])[:61] + bytes.fromhex(body))
    struct.pack_into(">i", data, 8, len(data) - 12)
    seal(data, 0, len(data))

    with pytest.raises(CorruptBatchError, match=cause) as caught:
        decode(b"???" + data, 3)

    assert 3 == caught.value.position


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 4, 2**31 - 1])
def test_record_count_must_be_that_of_the_records(count, codec):
    """Row 131: a count that is negative, too small, too large, or impossible for the size is refused."""
    data = encode([Record(n, 0, None, b"v") for n in range(3)], BatchStamp(codec=codec))
    struct.pack_into(">i", data, 57, count)
    seal(data, 0, len(data))

    with pytest.raises(CorruptBatchError):
        decode(data)


def test_timestamps_wrap_as_java_adds_them():
    """A timestamp delta that overflows 64 bits wraps as in Java, in both builds."""
    records = [Record(0, -(2**63), None, b""), Record(1, 2**63 - 1, None, b"")]

    assert records == list(decode(encode(records))[0])


def test_decoding_names_the_bad_batch():
    """The error names the position of the bad batch among valid ones."""
    damaged = bytearray(SAMPLE)
    damaged[-1] ^= 1
    data = SAMPLE + damaged + SAMPLE

    with pytest.raises(CorruptBatchError) as caught:
        decode(data)

    assert len(SAMPLE) == caught.value.position
    assert 3 == sum(len(columns) for columns in decode(data, 0, len(SAMPLE)))


def test_many_batches_decode_alike_together_and_alone():
    """Decoding a thousand batches together gives the same records as decoding each batch alone."""
    chooser = random.Random(3)
    offset = 0
    batches = []
    for _ in range(1000):
        count = chooser.randrange(1, 5)
        batches.append(
            encode([Record(offset + i, offset, None, chooser.randbytes(20)) for i in range(count)])
        )
        offset += count

    together = list(decode(b"".join(batches))[0])

    assert together == [record for batch in batches for record in decode(batch)[0]]
