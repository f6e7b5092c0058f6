"""Tests of headers of all formats, byte for byte as Kafka's classes wrote them, and of invalid headers."""

from __future__ import annotations

import struct
import zlib

import pytest
from crc32c import crc32c

from topicfs.storage.codec.batch import read_header, scan, verify_checksum
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.errors import CorruptBatchError, TornBatchError
from topicfs.storage.model import Header, Offset, ProducerId, Record, Timestamp

TIME = Timestamp(1_700_000_000_000)


def test_a_batch_without_records_is_its_header():
    """Row 129: a batch without records has 61 bytes. Each field and the checksum are at their positions."""
    stamp = BatchStamp(leader_epoch=15, producer_id=ProducerId(23423), producer_epoch=145, base_sequence=983)
    batch = encode([], stamp, base_offset=Offset(37), last_offset=Offset(53), max_timestamp=TIME)
    assert 61 == len(batch)
    fields = struct.unpack(">qiibIhiqqqhii", batch)
    checksum = crc32c(bytes(batch[21:]))
    assert (37, 49, 15, 2, checksum, 0, 16, -1, TIME, 23423, 145, 983, 0) == fields


@pytest.mark.parametrize(
    ("golden", "checksum", "computed"),
    [
        ("000000000000000a000000101fecd70a0000000000016b0000000176", 535615242, zlib.crc32),
        ("000000000000000a00000018cf056e6e01000000000000000001000000016b0000000176", 3473239662, zlib.crc32),
        (
            (
                "0000000000000032000000420000000402cc367bda0030000000000000018bcfe568000000018bcfe56800000000"
                "00000030390002ffffffff000000012000000008000000010c00000000000600"
            ),
            3426122714,
            crc32c,
        ),
    ],
    ids=["v0", "v1", "v2"],
)
def test_checksums_of_every_format(golden, checksum, computed):
    """Row 138: v0 and v1 have a CRC-32 from the magic on, v2 a CRC-32C from the attributes on."""
    data = bytes.fromhex(golden)
    header = read_header(data)
    verify_checksum(data, header)
    assert checksum == header.checksum == computed(data[21 if header.magic == 2 else 16 :])


@pytest.mark.parametrize("codec", Codec)
def test_a_checksum_covers_what_is_compressed(codec):
    """Row 138: with each codec the checksum covers the compressed bytes."""
    batch = encode([Record(Offset(0), TIME, b"k", b"v" * 100)], BatchStamp(codec=codec))
    assert read_header(batch).checksum == crc32c(bytes(batch[21:]))


def header_of(size: int, magic: int = 2, total: int = 200) -> bytes:
    """Return a buffer whose first batch declares `size` bytes after its length field."""
    data = bytearray(total)
    struct.pack_into(">i", data, 8, size)
    data[16] = magic
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (header_of(188), 200),
        (header_of(49, total=61), 61),
        (header_of(189), TornBatchError),
        (header_of(48), CorruptBatchError),
        (header_of(-1), CorruptBatchError),
        (header_of(-(2**31)), CorruptBatchError),
        (header_of(2**31 - 1), TornBatchError),
        (header_of(188, magic=3), CorruptBatchError),
        (header_of(188, magic=255), CorruptBatchError),
        (header_of(14, magic=0), 26),
        (header_of(13, magic=0), CorruptBatchError),
        (header_of(22, magic=1), 34),
        (header_of(21, magic=1), CorruptBatchError),
        (header_of(188)[:16], TornBatchError),
        (header_of(188)[:17], TornBatchError),
        (header_of(188)[:1], TornBatchError),
    ],
)
def test_the_size_of_the_next_batch(data, expected):
    """Row 138: the size of the next batch includes the prefix of 12 bytes.

    A batch with an impossible size or format is damaged. A batch that is cut off is torn.
    """
    if isinstance(expected, int):
        assert expected == read_header(data).size_bytes
    else:
        with pytest.raises(expected):
            read_header(data)


def test_nothing_has_no_next_batch():
    """Row 138: an empty buffer means the end of the data, not damage."""
    assert (0, None) == (len(scan(b"")), scan(b"").problem)


@pytest.mark.parametrize("name", [b"", b"\xff\xfe", "é".encode(), b"x" * 1000])
def test_a_headers_name_may_be_anything_but_null(name):
    """Row 133: a header's name may be empty, but not null."""
    record = Record(Offset(0), TIME, None, None, (Header(name, None), Header(name, b"")))
    assert [record] == list(decode(encode([record]))[0])
