"""Tests of the formats v0 and v1: golden entries, wrappers, and contradictions."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import old_entry as entry
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import decode, encode
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Record

V1 = bytes.fromhex("000000000000000a00000018cf056e6e01000000000000000001000000016b0000000176")
V0 = bytes.fromhex("000000000000000a000000101fecd70a0000000000016b0000000176")


def wrapper(offset, inner, *, codec=Codec.GZIP, magic=1, attributes=0, timestamp=0):
    """Return a compressed message set."""
    compressed = bytearray(deflate(codec, inner))
    if codec is Codec.LZ4 and magic == 0:
        compressed[6] = 0x1A
    return entry(offset, bytes(compressed), magic=magic, attributes=codec | attributes, timestamp=timestamp)


def records_of(data):
    """Return all records of `data` in order."""
    return [record for columns in decode(data) for record in columns]


@pytest.mark.parametrize(("data", "timestamp"), [(V1, 1), (V0, -1)])
def test_golden_entries(data, timestamp):
    """The golden entries have offset 10, key k and value v. The v0 entry has no time."""
    assert [Record(10, timestamp, b"k", b"v")] == records_of(data)


def test_the_helper_of_these_tests_writes_the_golden_entries():
    """The helper `entry` writes the bytes that Kafka's classes wrote."""
    assert V1 == entry(10, b"v", key=b"k", timestamp=1)
    assert V0 == entry(10, b"v", key=b"k", magic=0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_of_every_codec(codec, magic):
    """Wrappers are read with each codec. Their messages have absolute offsets in v0, and relative offsets in v1.

    In v0 the wrong checksum of an LZ4 frame's header is accepted.
    """
    inner = b"".join(entry(n if magic else 40 + n, b"v%d" % n, magic=magic, timestamp=n) for n in range(3))

    found = records_of(wrapper(42, inner, codec=codec, magic=magic, timestamp=2))

    assert [40, 41, 42] == [record.offset for record in found]
    assert [b"v0", b"v1", b"v2"] == [record.value for record in found]
    assert ([0, 1, 2] if magic else [-1, -1, -1]) == [record.timestamp for record in found]


def test_a_compacted_wrapper_keeps_its_gaps():
    """Relative offsets 0, 2 and 7 in a wrapper with offset 100 keep their gaps."""
    inner = b"".join(entry(n, b"v") for n in (0, 2, 7))

    assert [93, 95, 100] == [record.offset for record in records_of(wrapper(100, inner))]


def test_wrapper_offset_zero_counts_from_zero():
    """Row 141: if a wrapper has offset 0, the offsets of its records are counted from 0.

    An old librdkafka wrote such wrappers.
    """
    inner = b"".join(entry(n, b"v") for n in range(3))

    (columns,) = decode(wrapper(0, inner))

    assert [0, 1, 2] == columns.offsets.tolist()
    assert (0, 2, 3) == (
        columns.batches[0].base_offset,
        columns.batches[0].last_offset,
        columns.batches[0].record_count,
    )


def test_append_time_of_the_wrapper_is_that_of_all():
    """If bit 3 of a wrapper's attributes is set, all its records have the wrapper's timestamp."""
    inner = b"".join(entry(n, b"v", timestamp=n) for n in range(2))

    found = records_of(wrapper(1, inner, attributes=0x08, timestamp=777))

    assert [777, 777] == [record.timestamp for record in found]


def test_formats_mix_in_one_segment():
    """A segment that has v0, v1 and v2 entries after an upgrade can be read."""
    data = entry(0, b"a", magic=0) + entry(1, None, key=b"b") + encode([Record(2, 5, None, b"c")])

    assert [(0, b"a"), (1, None), (2, b"c")] == [(record.offset, record.value) for record in records_of(data)]


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (wrapper(1, b"".join(entry(n, b"v") for n in range(3))), "below 2"),
        (wrapper(5, entry(0, b"v"), codec=Codec.ZSTD), "zstd"),
        (wrapper(5, entry(0, b"v"), codec=Codec.ZSTD, magic=0), "zstd"),
        (wrapper(5, wrapper(0, entry(0, b"v"))), "or another wrapper"),
        (wrapper(5, entry(0, b"v", magic=0)), "another format"),
        (wrapper(5, b""), "an empty wrapper"),
        (wrapper(5, entry(0, b"v")[:-1]), "does not fit"),
        (wrapper(5, entry(0, b"v") + b"123"), "inside its header"),
        (entry(5, None, attributes=1), "without a value"),
        (entry(5, b"no gzip", attributes=1), "gzip"),
        (wrapper(5, entry(-1, b"v", magic=0), magic=0), "out of range"),
        (wrapper(5, entry(4, b"v") + entry(2, b"v")), "do not ascend"),
        (wrapper(5, entry(5, b"v", magic=0) + entry(5, b"v", magic=0), magic=0), "do not ascend"),
    ],
)
def test_wrappers_that_contradict_themselves(data, cause):
    """Row 141: each contradiction is refused with its cause and the wrapper's position."""
    with pytest.raises(CorruptBatchError, match=cause) as caught:
        decode(b"xx" + data, 2)

    assert 2 == caught.value.position


@pytest.mark.parametrize(
    ("key_length", "value_length"), [(2, 1), (-2, 1), (1, 0), (1, 2), (1, -2), (2**31 - 1, 1), (1, 2**31 - 1)]
)
def test_lengths_that_do_not_fit_their_entry(key_length, value_length):
    """Lengths of key and value that do not fill the entry exactly are refused."""
    body = bytes([0, 0]) + struct.pack(">i", key_length) + b"k" + struct.pack(">i", value_length) + b"v"
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body

    with pytest.raises(CorruptBatchError):
        decode(data)


@pytest.mark.parametrize("data", [V0, V1])
def test_a_flipped_bit_is_found_by_the_checksum(data):
    """The CRC-32, which begins at the magic, detects each flipped bit."""
    for position in range(18, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 4
        with pytest.raises(CorruptBatchError, match="checksum"):
            decode(damaged)


@given(st.sampled_from([0, 1]), st.binary(max_size=120))
def test_random_content_stays_inside_the_buffer(magic, data):
    """A reader stays inside the buffer even if an entry or a wrapper contains random bytes."""
    body = bytes([magic, 0]) + data
    plain = struct.pack(">qiI", 7, len(body) + 4, zlib.crc32(body)) + body
    for candidate in (plain, wrapper(7, data, magic=magic), wrapper(7, plain, magic=magic)):
        try:
            found = records_of(candidate)
        except CorruptBatchError:
            continue
        assert all(len(record.value or b"") <= len(candidate) + len(data) for record in found)
