"""Tests of the limits on decoding a batch: even a small batch may contain millions of records."""

from __future__ import annotations

import gzip
import struct
import zlib

import lz4.block
import pytest

from tests.doubles.hostile import SHORTEST_RECORD, empty_headers, record, sealed
from tests.doubles.records import old_entry
from tests.storage.codec.strategies import COMPRESSING
from topicfs.storage.codec.binary.fields import CONTROL_MASK, TRANSACTIONAL_MASK
from topicfs.storage.codec.columns import decode, decode_each
from topicfs.storage.codec.compression.bounds import (
    MAX_CONTENT_BYTES,
    MAX_HEADERS,
    MAX_MEMBERS,
    MAX_PARTS,
    MAX_RECORDS,
)
from topicfs.storage.codec.compression.codecs import deflate, inflate
from topicfs.storage.codec.compression.snappy_blocks import XERIAL_HEADER
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import CorruptBatchError, OversizeBatchError
from topicfs.storage.model import AbortedTransaction, Offset, ProducerId

LZ4_HEADER = bytes.fromhex("04224d18604082")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_content_is_inflated_up_to_a_bound(codec):
    """If the inflated content is one byte too long, OversizeBatchError is raised with the batch's position."""
    content = deflate(codec, bytes(1000))
    assert bytes(1000) == inflate(codec, content, limit=1000)
    with pytest.raises(OversizeBatchError, match="more than 999 bytes inflated") as caught:
        inflate(codec, content, limit=999, position=7)
    assert 7 == caught.value.position


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decode_has_a_default_limit(codec):
    """`decode` inflates at most MAX_CONTENT_BYTES unless it is given another limit."""
    batch = sealed(bytes(MAX_CONTENT_BYTES + 1), codec=codec)
    with pytest.raises(OversizeBatchError, match=f"more than {MAX_CONTENT_BYTES} bytes inflated"):
        decode(batch)


def test_a_plain_batch_has_the_same_bound():
    """An uncompressed batch has the same limit: if it is larger than 64 MiB, it is not decoded."""
    value = bytes(MAX_CONTENT_BYTES - 61 - 13)
    largest = sealed(record(value))
    assert MAX_CONTENT_BYTES == len(largest)
    assert len(value) == decode(largest)[0].value_lengths[0]
    with pytest.raises(OversizeBatchError, match="a batch of 67108865 bytes; at most 67108864 are decoded"):
        decode(sealed(record(value + b"x")))


@pytest.mark.parametrize(
    ("codec", "part", "most", "kind"),
    [
        (Codec.GZIP, gzip.compress(b"", mtime=0), MAX_MEMBERS, "members"),
        (Codec.SNAPPY, struct.pack(">i", 1) + b"\0", MAX_PARTS, "blocks"),
        (Codec.LZ4, struct.pack("<I", 1) + lz4.block.compress(b"", store_size=False), MAX_PARTS, "blocks"),
    ],
)
def test_content_comes_in_a_bounded_number_of_parts(codec, part, most, kind):
    """The number of members or blocks in the content is limited, because even an empty member or block costs time."""
    before = {Codec.SNAPPY: XERIAL_HEADER, Codec.LZ4: LZ4_HEADER}.get(codec, b"")
    after = bytes(4) if codec is Codec.LZ4 else b""
    assert b"" == inflate(codec, before + part * most + after)
    with pytest.raises(OversizeBatchError, match=f"more than {most} {kind}"):
        inflate(codec, before + part * (most + 1) + after)


def test_gzip_members_longer_and_shorter_than_a_stride_are_one_content():
    """Gzip members that are longer or shorter than the reader's step of 64 KiB are read as one content."""
    noise = b"".join(struct.pack(">I", zlib.crc32(b"%d" % number)) for number in range(60_000))
    parts = [b"a", noise, b"", noise[:70_000], b"end"]
    members = b"".join(gzip.compress(part) for part in parts)
    assert b"".join(parts) == inflate(Codec.GZIP, members)
    with pytest.raises(CorruptBatchError, match="ends early"):
        inflate(Codec.GZIP, members[:-1])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_has_a_bounded_number_of_records(codec):
    """The number of records is limited: a few kilobytes may contain millions of records, which take 64 bytes each."""
    content = SHORTEST_RECORD * (MAX_RECORDS + 1)
    with pytest.raises(
        OversizeBatchError, match=f"{MAX_RECORDS + 1} records in a batch; at most {MAX_RECORDS}"
    ):
        decode(sealed(content, count=MAX_RECORDS + 1, codec=codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_record_has_a_bounded_number_of_headers(codec):
    """A record may have MAX_HEADERS headers. A record with one more header is refused as oversize.

    A number of headers that cannot fit the record's bytes is refused as corrupt.
    """
    (columns,) = decode(sealed(record(headers=empty_headers(MAX_HEADERS)), codec=codec))
    assert 4 * MAX_HEADERS == len(columns.header_spans(0))
    with pytest.raises(OversizeBatchError, match=f"more than {MAX_HEADERS} headers"):
        decode(sealed(record(headers=empty_headers(MAX_HEADERS + 1)), codec=codec))
    with pytest.raises(CorruptBatchError, match="headers do not fit") as caught:
        decode(sealed(record(headers=empty_headers(MAX_HEADERS + 1)[:-2]), codec=codec))
    assert not isinstance(caught.value, OversizeBatchError)


def test_a_wrapper_of_an_old_format_has_a_bounded_number_of_messages():
    """The number of messages in a wrapper is limited, because they are read one by one."""

    def wrapper(count):
        inside = b"".join(old_entry(offset, b"", magic=0) for offset in range(count))
        return old_entry(MAX_PARTS, deflate(Codec.GZIP, inside), magic=0, attributes=Codec.GZIP)

    assert MAX_PARTS == len(decode(wrapper(MAX_PARTS))[0])
    too_many = wrapper(MAX_PARTS + 1)
    with pytest.raises(OversizeBatchError, match=f"more than {MAX_PARTS} messages"):
        decode(too_many)
    with pytest.raises(OversizeBatchError, match="more than 100 bytes inflated"):
        decode(too_many, max_content_bytes=100)


@pytest.mark.parametrize(
    ("attributes", "aborted"),
    [
        (TRANSACTIONAL_MASK, (AbortedTransaction(ProducerId(3), Offset(0)),)),
        (TRANSACTIONAL_MASK | CONTROL_MASK, ()),
    ],
)
def test_hidden_batches_are_not_inflated(attributes, aborted):
    """Batches of markers and of aborted transactions are listed without being inflated."""
    batch = sealed(bytes(1000), codec=Codec.GZIP, attributes=attributes, producer=(3, 0, 0))
    (columns,) = decode(batch, aborted=aborted, max_content_bytes=1)
    assert (0, 1, len(batch)) == (len(columns), len(columns.batches), columns.batches.stop)
    with pytest.raises(OversizeBatchError):
        decode(batch, control=True, max_content_bytes=1)


def test_decode_each_returns_the_batches_before_a_fault():
    """`decode_each` returns the valid batches before a fault, and then raises the same error as `decode`."""
    sound = sealed(record(b"a")) + sealed(record(b"b"), codec=Codec.GZIP) + sealed(record(b"c"))
    assert [len(columns) for columns in decode(sound)] == [len(columns) for columns in decode_each(sound)]
    for fault in (sealed(bytes(2000), codec=Codec.GZIP), sealed(record())[:-1]):
        found = []
        with pytest.raises(CorruptBatchError) as caught:
            found.extend(columns.value(0) for columns in decode_each(sound + fault, max_content_bytes=1000))
        assert ([b"a", b"b", b"c"], len(sound)) == (found, caught.value.position)


def test_the_size_of_columns():
    """The size of columns is eight 64-bit numbers per record, plus the size of the uncompressed batches.

    For a compressed batch the size of the inflated content is added.
    """
    content = record(b"a" * 100) + record(b"b", delta=1)
    plain, packed = sealed(content, count=2), sealed(content, count=2, codec=Codec.ZSTD)
    sizes = [columns.size_bytes for columns in decode(plain + packed + plain + plain)]
    assert [128 + len(plain), 128 + len(content), 256 + 2 * len(plain)] == sizes


def test_within_limits_the_bytes_of_records():
    """`within` returns records until their keys, values and headers together exceed the limit.

    `within` returns at least one record.
    """
    content = b"".join(
        record(b"v" * size, key=b"k", headers=b"\2\2n\2x", delta=delta)
        for delta, size in enumerate([4, 5, 90, 0])
    )
    (columns,) = decode(sealed(content, count=4))
    taken = [10, 11, 96, 6]
    for first in range(4):
        for most in (0, 9, 10, 20, 21, 102, 1000):
            last = columns.within(first, most)
            assert sum(taken[first:last]) <= most or last == first + 1
            assert last == 4 or sum(taken[first : last + 1]) > most


def test_blocks_of_a_zstd_frame_are_counted_up_to_a_bound():
    """The number of blocks in a zstd frame is limited, because a batch may have millions of blocks of three bytes."""
    head = b"\x28\xb5\x2f\xfd\x00\x68"
    assert b"" == inflate(Codec.ZSTD, head + bytes(3) * (MAX_PARTS - 1) + b"\x01\x00\x00")
    with pytest.raises(OversizeBatchError, match=f"more than {MAX_PARTS} blocks"):
        inflate(Codec.ZSTD, head + bytes(3) * MAX_PARTS + b"\x01\x00\x00")


def test_bytes_after_a_gzip_member_are_not_parsed():
    """Bytes after the last gzip member are skipped without being parsed, whatever their first bytes are."""
    content = gzip.compress(b"value") + b"\x1f\x8b\x08\x18" + b"x" * (32 * 2**20)
    assert b"value" == inflate(Codec.GZIP, content)
