"""Tests of the batch header: golden bytes made by Kafka's classes, and each fault that a header can have."""

from __future__ import annotations

import struct

import pytest

from tests.doubles.headers import headers
from topicfs.storage.codec.batch import (
    assign_offsets,
    assign_one,
    assign_plain,
    find_end,
    find_offset,
    read_header,
    scan,
    seal,
    set_append_time,
    verify_checksum,
)
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.headers import Codec, sequence_plus
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.counts.topic_counts import TopicCounts
from topicfs.storage.errors import CorruptBatchError, TornBatchError
from topicfs.storage.model import Header, Record, TimestampType

GOLDEN = bytes.fromhex(
    "0000000000000064000000570000000902184946160000000000020000018bcfe568000000018bcfe56805"
    "0000000000000007000300000005000000032e000000066b65790a76616c7565040468310278046832010c"
    "000a020101000c001304000000"
)
"""A batch with base offset 100, leader epoch 9, producer 7 with epoch 3, sequence 5, and three records."""

RECORDS = [
    Record(100, 1700000000000, b"key", b"value", (Header(b"h1", b"x"), Header(b"h2", None))),
    Record(101, 1700000000005, None, None),
    Record(102, 1699999999990, b"", b""),
]

COMPACTED_BEFORE = bytes.fromhex(
    "000000000000000000000042ffffffff02287790cd0000000000010000018bcfe568000000018bcfe5680a"
    "0000000000000007000300000005000000021000000002610231000e00140202620100"
)
COMPACTED_AFTER = bytes.fromhex(
    "000000000000000000000048ffffffff02fb4ea86a0040000000010000018bd50d4aa00000018bcfe5680a"
    "0000000000000007000300000005000000021600bf8abf520002610231001400ab8abf520202620100"
)
COMPACTED_AWAY = bytes.fromhex(
    "000000000000000000000031ffffffff023651c1c1000000000001ffffffffffffffff0000018bcfe5680a"
    "000000000000000700030000000500000000"
)
COMPACTED_RECORDS = [
    Record(0, 1700000000000, b"a", b"1"),
    Record(1, 1700000000010, b"b", None),
]
PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5}


def test_golden_batch_is_read_field_by_field():
    """Each field of the golden batch has the value that kafka-storage.md#a-batch-in-bytes shows."""
    header = read_header(GOLDEN)

    assert (0, len(GOLDEN), 100, 102, 9, 2) == header[:6]
    assert 0x18494616 == header.checksum
    assert 0 == header.attributes
    assert (1700000000000, 1700000000005) == (header.base_timestamp, header.max_timestamp)
    assert (7, 3, 5, 3) == (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    assert (103, len(GOLDEN)) == (header.end_offset, header.end_position)
    assert 7 == header.last_sequence
    assert (Codec.NONE, TimestampType.CREATE_TIME) == (header.codec, header.timestamp_type)
    assert not header.is_control
    assert not header.is_transactional
    assert header.delete_horizon_ms is None
    verify_checksum(GOLDEN, header)


def test_golden_batch_is_written_byte_for_byte():
    """Encoding the same three records gives the golden bytes."""
    assert GOLDEN == encode(RECORDS, BatchStamp(leader_epoch=9, **PRODUCER))


def test_golden_batch_gives_its_records_back():
    """Keys, values, nulls, empty values, headers and negative time deltas are decoded as they were encoded."""
    (columns,) = decode(GOLDEN)

    assert RECORDS == list(columns)


def test_tombstone_pass_before_and_after():
    """Row 137: the delete horizon replaces the base timestamp, but the records keep their times."""
    stamp = BatchStamp(**PRODUCER)
    horizon = 1700000100000 + 86400000

    assert COMPACTED_BEFORE == encode(COMPACTED_RECORDS, stamp)
    assert COMPACTED_AFTER == encode(
        COMPACTED_RECORDS, BatchStamp(**PRODUCER, delete_horizon_ms=horizon), max_timestamp=1700000000010
    )
    assert horizon == read_header(COMPACTED_AFTER).delete_horizon_ms
    assert COMPACTED_RECORDS == list(decode(COMPACTED_AFTER)[0])


def test_batch_emptied_by_compaction():
    """Rows 129 and 136: an emptied batch has 61 bytes, and keeps its offset range, producer and largest timestamp."""
    emptied = encode([], BatchStamp(**PRODUCER), base_offset=0, last_offset=1, max_timestamp=1700000000010)

    assert COMPACTED_AWAY == emptied
    (columns,) = decode(emptied)
    assert 0 == len(columns)
    assert 2 == columns.batches[0].end_offset


def test_offsets_and_epoch_are_assigned_outside_the_checksum():
    """Row 132: assigning offset and epoch changes only these two fields, so the checksum stays valid."""
    batch = bytearray(b"\xee" * 5 + GOLDEN)

    assign_offsets(batch, 5, base_offset=7_000_000_000, leader_epoch=12)

    header = read_header(batch, 5)
    verify_checksum(batch, header)
    assert (7_000_000_000, 7_000_000_002, 12) == (header.base_offset, header.last_offset, header.leader_epoch)
    assert GOLDEN[16:] == batch[5 + 16 :]


OWN = encode([Record(77, 1000, None, b"one"), Record(78, 900, b"k", b"two")])
LIMITS = {"max_batch_bytes": len(OWN), "latest_timestamp": 1000}


def test_plain_batches_get_their_offsets_together():
    """`assign_plain` changes batches just as `assign_offsets` changes each batch alone.

    `assign_plain` returns size, last offset and largest timestamp of each batch.
    """
    batches, alone = OWN + OWN, [bytearray(OWN), bytearray(OWN)]
    placed = assign_plain(batches, base_offset=2**40, leader_epoch=7, **LIMITS)
    for number, batch in enumerate(alone):
        assign_offsets(batch, 0, base_offset=2**40 + 2 * number, leader_epoch=7)
    assert alone[0] + alone[1] == batches
    assert [(len(OWN), 2**40 + 1, 1000), (len(OWN), 2**40 + 3, 1000)] == placed


def test_one_plain_batch_gets_its_offset():
    """`assign_one` changes a batch just as `assign_plain` does, and adds the append to the topic's counts.

    `assign_one` changes nothing if its argument has two batches.
    """
    batch, among, counts = bytearray(OWN), bytearray(OWN), TopicCounts(None)
    (placed,) = assign_plain(among, base_offset=2**40, leader_epoch=7, **LIMITS)
    assert (placed[1:], among) == (assign_one(batch, 2**40, 7, len(OWN), 1000, counts), batch)
    assert assign_one(OWN + OWN, 5, 7, 2 * len(OWN), 1000, counts) is None
    assert (1, 2, len(OWN)) == (counts.small_appends, counts.records, counts.bytes_appended)


@pytest.mark.parametrize(
    "other",
    [
        bytearray(GOLDEN),
        encode([Record(0, 1000, None, b"v")], BatchStamp(transactional=True)),
        encode([Record(0, 1000, None, b"v")], BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME)),
        encode([Record(0, 1001, None, b"v")]),
        encode([Record(0, 1000, None, b"v" * len(OWN))]),
        encode([Record(0, 1000, None, b"v"), Record(2, 1000, None, b"v")]),
        encode([], base_offset=0, last_offset=0),
        OWN[:-1],
        OWN[:16] + b"\x01" + OWN[17:],
        OWN[:30],
    ],
    ids=[
        "producer",
        "transaction",
        "append-time",
        "late",
        "large",
        "thinned",
        "empty",
        "torn",
        "old-format",
        "short",
    ],
)
def test_an_append_that_is_not_plain_is_left_unchanged(other: bytearray):
    """If any batch of the append is not plain, no batch is changed."""
    batches = OWN + other
    before = bytes(batches)

    assert assign_plain(batches, base_offset=5, leader_epoch=7, **LIMITS) is None
    assert before == batches
    alone = bytearray(other)
    assert assign_one(alone, 5, 7, len(OWN), 1000, TopicCounts(None)) is None
    assert other == alone


def test_append_time_overrides_every_record_and_is_sealed():
    """Row 132: LogAppendTime gives each record the largest timestamp, and does not change the base timestamp."""
    batch = bytearray(GOLDEN)

    set_append_time(batch, 0, 1800000000000)

    header = read_header(batch)
    verify_checksum(batch, header)
    assert TimestampType.LOG_APPEND_TIME is header.timestamp_type
    assert 1700000000000 == header.base_timestamp
    assert [1800000000000] * 3 == decode(batch)[0].timestamps.tolist()
    given = decode(GOLDEN)[0].timestamps.tolist()
    assert given == decode(batch, create_times=True)[0].timestamps.tolist()
    assert 1 < len(set(given))


@pytest.mark.parametrize(
    ("sequence", "delta", "expected"),
    [
        (0, 1, 1),
        (2**31 - 1, 1, 0),
        (2**31 - 10, 10, 0),
        (2**31 - 10, 15, 5),
        (0, -1, 2**31 - 1),
        (5, -10, 2**31 - 5),
    ],
)
def test_sequences_wrap_at_two_to_the_31(sequence, delta, expected):
    """Row 130: the sequence after 2^31-1 is 0, and the sequence before 0 is 2^31-1."""
    assert expected == sequence_plus(sequence, delta)


def test_last_sequence_wraps_inside_a_batch():
    """Row 130: the sequences of a batch may wrap around inside the batch."""
    records = [Record(i, 0, None, b"") for i in range(21)]
    stamp = BatchStamp(producer_id=1, producer_epoch=0, base_sequence=2**31 - 1 - 10)

    assert 9 == read_header(encode(records, stamp)).last_sequence


def test_every_truncation_is_torn():
    """Row 138: a batch cut off at any byte is torn, not corrupt."""
    for kept in range(len(GOLDEN)):
        with pytest.raises(TornBatchError) as caught:
            read_header(GOLDEN[:kept])
        assert 0 == caught.value.position
    with pytest.raises(TornBatchError):
        read_header(declaring(2**31 - 1))


def declaring(length: int, magic: int = 2, *, total: int = 200) -> bytes:
    """Return a buffer whose first batch declares `length` bytes after its length field."""
    data = bytearray(total)
    struct.pack_into(">i", data, 8, length)
    data[16] = magic
    return bytes(data)


@pytest.mark.parametrize(
    ("length", "magic", "total"), [(188, 2, 200), (49, 2, 61), (22, 1, 200), (14, 0, 200)]
)
def test_the_size_of_the_next_batch(length, magic, total):
    """Row 138: the size of the next batch includes the prefix of 12 bytes. The smallest batch of a format is read."""
    assert length + 12 == read_header(declaring(length, magic, total=total)).size_bytes


@pytest.mark.parametrize(
    ("length", "magic"), [(-(2**31), 2), (-1, 2), (0, 2), (13, 2), (48, 2), (21, 1), (13, 0)]
)
def test_length_that_no_batch_has_is_corrupt(length, magic):
    """Row 138: a declared length below the smallest batch of the format is corruption, not a torn write."""
    with pytest.raises(CorruptBatchError, match=f"length {length} ") as caught:
        read_header(declaring(length, magic))

    assert not isinstance(caught.value, TornBatchError)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_unknown_magic_is_corrupt(magic):
    """Row 138: a batch with a magic above 2 is corrupt."""
    batch = bytearray(GOLDEN)
    batch[16] = magic

    with pytest.raises(CorruptBatchError, match=f"magic {magic}"):
        read_header(batch)


@pytest.mark.parametrize(
    ("base_offset", "last_delta"), [(-1, 2), (-(2**63), 0), (0, -1), (2**63 - 1, 0), (2**63 - 2, 2**31 - 1)]
)
def test_offsets_that_no_log_has_are_corrupt(base_offset, last_delta):
    """Negative offsets and offsets beyond int64 in a header are corruption."""
    batch = bytearray(GOLDEN)
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 23, last_delta)

    with pytest.raises(CorruptBatchError, match="offsets out of range"):
        read_header(batch)


def test_checksum_mismatch_names_both_sums():
    """Row 131: the message names the stored checksum and the computed one."""
    batch = bytearray(GOLDEN)
    batch[-1] ^= 1

    with pytest.raises(CorruptBatchError, match="0x18494616"):
        verify_checksum(batch, read_header(batch))


def test_scan_reads_adjacent_batches_and_stops_at_the_torn_one():
    """Row 140: `scan` returns the complete batches with their positions, and reports a torn batch as `problem`."""
    data = b"??" + GOLDEN * 3 + GOLDEN[:70]

    batches = scan(data, 2, check_crc=True)

    assert [2, 2 + len(GOLDEN), 2 + 2 * len(GOLDEN)] == [header.position for header in batches]
    assert [len(GOLDEN)] * 3 == batches.column("size_bytes").tolist()
    assert 2 + 3 * len(GOLDEN) == batches.stop
    assert isinstance(batches.problem, TornBatchError)
    assert batches.stop == batches.problem.position


def test_scan_without_checksums_passes_over_damage():
    """`scan` detects a wrong checksum only if `check_crc` is set."""
    damaged = bytearray(GOLDEN)
    damaged[-1] ^= 1
    data = GOLDEN + damaged + GOLDEN

    assert 3 == len(scan(data))
    assert 1 == len(scan(data, check_crc=True))


def test_scan_is_bounded_by_max_batches_and_by_end():
    """`scan` stops at `max_batches` or at the given end, and then reports no problem."""
    data = GOLDEN * 4

    limited = scan(data, max_batches=2)
    ended = scan(data, 0, len(GOLDEN))

    assert (2, 2 * len(GOLDEN), None) == (len(limited), limited.stop, limited.problem)
    assert (1, len(GOLDEN), None) == (len(ended), ended.stop, ended.problem)
    assert 0 == len(scan(b""))
    assert scan(b"").problem is None


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, len(GOLDEN) + 1), (3, 2)])
def test_scan_refuses_bounds_outside_the_buffer(start, end):
    """`scan` refuses bounds outside the buffer before it reads."""
    with pytest.raises(ValueError, match="not within"):
        scan(GOLDEN, start, end)


def test_headers_index_like_a_sequence():
    """Negative indexes count from the end. Indexes out of range raise IndexError."""
    batches = scan(GOLDEN * 2)

    assert batches[1] == batches[-1]
    for index in (2, -3):
        with pytest.raises(IndexError):
            batches[index]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (0x08, (TimestampType.LOG_APPEND_TIME, False, False)),
        (0x10, (TimestampType.CREATE_TIME, True, False)),
        (0x30, (TimestampType.CREATE_TIME, True, True)),
    ],
)
def test_attribute_bits(attributes, expected):
    """Bits 3, 4 and 5 are timestamp type, transactional and control."""
    batch = bytearray(GOLDEN)
    batch[22] = attributes
    header = read_header(batch)

    assert expected == (header.timestamp_type, header.is_transactional, header.is_control)


OLD_ENTRY = "000000000000000a00000018cf056e6e01000000000000000001000000016b0000000176"
"""A batch of format v1, whose checksum is a CRC-32."""


@pytest.mark.parametrize(
    ("entry", "timestamp"),
    [
        (OLD_ENTRY, 1),
        ("000000000000000a000000101fecd70a0000000000016b0000000176", -1),
    ],
)
def test_old_formats_are_listed_too(entry, timestamp):
    """Row 138: golden v1 and v0 entries are listed with offset and time, and their checksums are valid."""
    batches = scan(bytes.fromhex(entry), check_crc=True)

    assert batches.problem is None
    (header,) = batches
    assert (10, 10, 1) == (header.base_offset, header.last_offset, header.record_count)
    assert timestamp == header.max_timestamp
    assert (-1, -1, -1, -1) == (
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 900, 1023, 1024, 1025, 5000])
def test_short_checksums_are_the_librarys(size: int):
    """Checksums of short and of long batches are computed by different code, and equal those of the library."""
    batch = encode([Record(0, 0, None, bytes(range(256)) * 20 + b"tail"[: size % 4])])[: 61 + 9]
    batch += bytes(number * 7 % 251 for number in range(size))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    seal(batch, 0, len(batch))
    assert scan(batch, check_crc=True).problem is None
    batch[-1] ^= 1
    assert "checksum" in str(scan(batch, check_crc=True).problem)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 50, 900), (900, 50, 1), (70_000, 1, 2), (40_000, 39_999, 1)]
)
@pytest.mark.parametrize("damaged", range(6))
def test_checksums_of_neighbors_fail_each_by_itself(sizes: tuple[int, ...], damaged: int):
    """A wrong checksum is reported for the damaged batch and not for a neighbor.

    `scan` computes the checksums of three adjacent batches together.
    """
    batches = [encode([Record(0, 0, None, b"v" * size)]) for size in sizes * 2]
    position = sum(len(batch) for batch in batches[:damaged])
    batches[damaged][-1] ^= 1

    found = scan(b"".join(batches), check_crc=True)

    assert (damaged, position) == (len(found), found.stop)
    assert "checksum is" in found.problem.cause


def test_a_wrong_checksum_in_an_old_format_is_found_between_new_batches():
    """A wrong CRC-32 of an old format is detected, although neighboring CRC-32C checksums are computed together."""
    entry = bytes.fromhex(OLD_ENTRY)
    wrong = entry[:-1] + bytes([entry[-1] ^ 1])
    batch = encode([Record(0, 0, None, b"v")])

    assert 3 == len(scan(batch + entry + batch, check_crc=True))
    assert scan(batch + batch + wrong + batch, check_crc=True).stop == 2 * len(batch)


def test_the_end_of_batches_is_found_without_reading_them_all():
    """`find_end` finds the same as `scan`: the end of the complete batches, and their last offset."""
    first = encode([Record(3, 0, None, b"v")])
    last = encode([Record(7, 0, None, b"v"), Record(9, 0, None, b"w")])
    impossible = bytearray(first)
    struct.pack_into(">q", impossible, 0, -5)
    whole = bytes(first + last)

    for rest in (b"", bytes(first[:-1]), bytes(impossible), bytes(20)):
        assert (len(whole), 9) == find_end(whole + rest) == (scan(whole + rest).stop, 9)
    assert find_end(b"") == find_end(first[:-1]) == find_end(impossible) == (0, -1)


def test_the_batch_of_an_offset_is_found_by_headers_alone():
    """`find_offset` reads only the headers of batches. The search ends at a bad header or at the end of the data."""
    batches = [bytes(encode([Record(offset, 0, None, b"v" * 99)])) for offset in (3, 5, 9)]
    size, data = len(batches[0]), b"".join(batches)
    impossible = b"\xff" + batches[1][1:]
    for held in (len(data), 2 * size + HEADER_SIZE):
        found = [find_offset(data[:held], offset, len(data)) for offset in (0, 3, 4, 5, 6, 9, 10)]
        assert [0, 0, size, size, 2 * size, 2 * size, 3 * size] == found
    assert 2 * size == find_offset(data[:-size], 6, len(data))
    assert 2 * size == find_offset(data[: 2 * size + HEADER_SIZE - 1], 10, len(data))
    assert 2 * size == find_offset(data, 10, len(data) - 1)
    assert size == find_offset(batches[0] + impossible + batches[2], 9, len(data))
    assert 0 == find_offset(b"", 0, 0)


@pytest.mark.parametrize(
    ("last_offsets", "lowest", "limit", "expected"),
    [
        ([], 0, 9, 0),
        ([3, 4, 9], 3, 9, 3),
        ([3, 4, 9], 4, 9, 0),
        ([3, 4, 10], 0, 9, 2),
        ([3, 3, 4], 0, 9, 1),
        ([3, 8, 5], 0, 9, 2),
        ([2**62, 2**62 + 1], 2**62, 2**62 + 2**31 - 1, 2),
        ([-1, 0], 0, 9, 0),
        ([2**63 - 1, 5], 2**63 - 1, 2**63 + 2**31, 1),
        ([5], 2**63, 2**63 + 2**31, 0),
    ],
)
def test_batches_are_counted_as_long_as_their_offsets_ascend(last_offsets, lowest, limit, expected):
    """Batches are counted up to the first batch whose offset is out of bounds or does not ascend."""
    found = headers({"last_offset": offset} for offset in last_offsets)
    assert expected == found.count_ascending(lowest, limit)


def test_the_largest_value_of_a_field():
    """`largest` returns a field's largest value in the first `count` batches, even if all values are negative."""
    found = headers({"leader_epoch": epoch, "producer_id": -1} for epoch in (-3, -7, 5, 4))
    assert [-3, -3, 5, 5] == [found.largest("leader_epoch", count) for count in (1, 2, 3, 4)]
    assert -1 == found.largest("producer_id", 4)
