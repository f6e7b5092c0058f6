"""Tests of the four codecs in Kafka's framings: round trips, batches of a real broker, and malformed bytes."""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.codec_variants import RECORDS, REFUSED, VARIANTS, batch_of
from tests.storage.codec.strategies import COMPRESSING
from topicfs.storage.codec.batch import read_header, scan, seal
from topicfs.storage.codec.compression import lz4_frame
from topicfs.storage.codec.compression.codecs import deflate, inflate
from topicfs.storage.codec.compression.snappy_blocks import XERIAL_BLOCK_BYTES
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Record

VECTORS = Path(__file__).parents[2] / "vectors"
CONTENT = b"abcdefghij" * 20_000
GOLDEN_LZ4_HEADER = "04224d18" + "6040" + "82"


@given(st.sampled_from(Codec), st.binary(max_size=2000), st.integers(0, 60))
def test_contents_round_trip(codec, piece, times):
    """Inflating the result of `deflate` returns the original content, short or long."""
    content = piece * times

    assert content == inflate(codec, deflate(codec, content))


def test_a_batch_without_records_is_never_compressed():
    """A batch emptied by compaction has 61 bytes and no codec."""
    emptied = encode([], BatchStamp(codec=Codec.ZSTD), base_offset=5, last_offset=9)

    assert (61, Codec.NONE) == (len(emptied), read_header(emptied).codec)
    assert 0 == len(decode(emptied)[0])


def test_control_batches_are_never_compressed():
    """Encoding a compressed control batch raises ValueError."""
    with pytest.raises(ValueError, match="control"):
        encode(RECORDS, BatchStamp(control=True, transactional=True, codec=Codec.GZIP))


def test_plain_and_compressed_batches_alternate():
    """Each compressed batch has its own columns, but adjacent plain batches share columns."""
    codecs = [Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.NONE, Codec.ZSTD]
    data = b"".join(
        encode([Record(n, n, None, b"%d" % n)], BatchStamp(codec=codec)) for n, codec in enumerate(codecs)
    )

    found = decode(data)

    assert [[0, 1], [2], [3], [4], [5]] == [columns.offsets.tolist() for columns in found]
    assert [2, 1, 1, 1, 1] == [len(columns.batches) for columns in found]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_levels_are_taken(codec):
    """Content that was compressed at any level is inflated to the same bytes."""
    for level in (1, 6):
        assert CONTENT == inflate(codec, deflate(codec, CONTENT, level=level))


@pytest.mark.parametrize(
    "partition", ["kafka/log-dirs/g-gzip-0", "kafka/log-dirs/g-lz4-0", "kafka/log-dirs/g-zstd-0"]
)
def test_broker_batches_equal_their_dump(partition):
    """The offset, time and sizes of each record equal those that the broker's own dump tool printed."""
    directory = VECTORS / partition
    dump = (VECTORS / "kafka" / "dump" / f"{directory.name}.log.txt").read_text()
    pattern = r"^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)"
    expected = [tuple(map(int, fields)) for fields in re.findall(pattern, dump, re.MULTILINE)]

    found = []
    for log in sorted(directory.glob("*.log")):
        for columns in decode(log.read_bytes()):
            found += zip(
                columns.offsets,
                columns.timestamps,
                columns.key_lengths,
                columns.value_lengths,
                strict=True,
            )

    assert expected == found
    assert expected


def test_broker_made_snappy_has_the_xerial_frame():
    """Snappy content is read from a broker's xerial frames and from librdkafka's bare blocks."""
    heads = set()
    for topic in ("snappy-0", "codecs-0"):
        for log in sorted((VECTORS / "broker-made" / "log-dirs" / topic).glob("*.log")):
            data = log.read_bytes()
            for header in scan(data):
                if header.codec is Codec.SNAPPY:
                    heads.add(data[header.position + 61 :][:7] == b"\x82SNAPPY")
            decode(data)

    assert {True, False} == heads


def test_snappy_is_written_in_blocks_of_32_kib():
    """Snappy is written with magic, version 1, compatible version 1, and blocks of at most 32 KiB."""
    written = deflate(Codec.SNAPPY, CONTENT)

    assert bytes.fromhex("82534e415050590000000001" + "00000001") == written[:16]
    position, sizes = 16, []
    while position < len(written):
        (length,) = struct.unpack_from(">i", written, position)
        sizes.append(cramjam.snappy.decompress_raw_len(written[position + 4 : position + 4 + length]))
        position += 4 + length
    assert [XERIAL_BLOCK_BYTES] * 6 + [len(CONTENT) % XERIAL_BLOCK_BYTES] == sizes


def test_zstd_frames_without_a_content_size():
    """A zstd frame without a content size, as Java's streams write it, is read."""
    stream = zstandard.ZstdCompressor().compressobj()
    written = stream.compress(CONTENT) + stream.flush()

    assert CONTENT == inflate(Codec.ZSTD, written)


def test_lz4_is_written_with_kafkas_frame_header():
    """The LZ4 frame has FLG 60, BD 40, header checksum 82, and an end mark of four zeros."""
    written = deflate(Codec.LZ4, CONTENT)

    assert GOLDEN_LZ4_HEADER == written[:7].hex()
    assert bytes(4) == written[-4:]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_truncation_is_refused(codec):
    """Compressed content that is cut off is refused."""
    written = deflate(codec, b"abcdefghij" * 30)
    for kept in range(1, len(written)):
        if codec is Codec.SNAPPY and 16 <= kept < 20:
            continue  # A stream without blocks is complete, and up to 3 more bytes are ignored.
        with pytest.raises(CorruptBatchError, match=codec.label):
            inflate(codec, written[:kept], position=7)


@pytest.mark.parametrize(("codec", "name"), VARIANTS)
def test_each_variant_is_read_or_refused_as_by_kafka(codec, name):
    """Trailing bytes are ignored if Java's libraries ignore them. Content that these libraries refuse is refused."""
    batch = batch_of(codec, VARIANTS[codec, name])
    if name in REFUSED[codec]:
        with pytest.raises(CorruptBatchError):
            decode(batch)
    else:
        assert RECORDS == [record for columns in decode(batch) for record in columns]


@given(st.sampled_from(COMPRESSING), st.binary(max_size=100))
def test_any_bytes_are_refused_or_inflated_within_the_limit(codec, data):
    """Random bytes are refused or inflated within the limit, even if they follow a valid beginning."""
    beginnings = {
        Codec.GZIP: b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
        Codec.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
        Codec.LZ4: bytes.fromhex(GOLDEN_LZ4_HEADER),
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for content in (data, beginnings[codec] + data):
        with contextlib.suppress(CorruptBatchError):
            assert len(inflate(codec, content, limit=10_000)) <= 10_000


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_is_corrupt(number):
    """The codec numbers 5 to 7, which no codec has, are corruption."""
    batch = encode([Record(0, 0, None, b"v")])
    batch[22] = number
    seal(batch, 0, len(batch))

    with pytest.raises(CorruptBatchError, match=f"codec {number}"):
        decode(batch)
    with pytest.raises(CorruptBatchError, match=f"codec {number}"):
        _ = read_header(batch).codec


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32(data, digest):
    """XXH32 gives the published values for inputs shorter and longer than a stripe of 16 bytes."""
    assert digest == lz4_frame.xxh32(data)


def lz4_frame_of(flags: int, descriptor: int, *parts: bytes, content_size: bytes = b"") -> bytes:
    """Return an LZ4 frame with a valid header checksum."""
    header = bytes([flags, descriptor]) + content_size
    checksum = lz4_frame.xxh32(header) >> 8 & 0xFF
    return lz4_frame.MAGIC + header + bytes([checksum]) + b"".join(parts)


STORED_BLOCK = struct.pack("<I", 5 | 1 << 31) + b"hello"
END = bytes(4)


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (lz4_frame_of(0x40, 0x40, STORED_BLOCK, END), "linked"),
        (lz4_frame_of(0xA0, 0x40, STORED_BLOCK, END), "flags"),
        (lz4_frame_of(0x62, 0x40, STORED_BLOCK, END), "flags"),
        (lz4_frame_of(0x60, 0x30, STORED_BLOCK, END), "flags"),
        (lz4_frame_of(0x60, 0x41, STORED_BLOCK, END), "flags"),
        (lz4_frame_of(0x60, 0xC0, STORED_BLOCK, END), "flags"),
        (
            lz4_frame_of(0x60, 0x40, struct.pack("<I", 1 << 31 | 65537), bytes(65537), END),
            "more than the frame's limit",
        ),
        (lz4_frame_of(0x70, 0x40, STORED_BLOCK, b"\0\0\0\1", END), "block's checksum"),
        (lz4_frame_of(0x60, 0x40, STORED_BLOCK), "end mark"),
        (lz4_frame_of(0x60, 0x40, STORED_BLOCK[:-1]), "inside a block"),
        (lz4_frame_of(0x68, 0x40)[:9], "inside its header"),
        (b"\x05" + lz4_frame_of(0x60, 0x40, STORED_BLOCK, END)[1:], "no LZ4 frame"),
        (bytes.fromhex("04224d18604083") + STORED_BLOCK + END, "header's checksum"),
    ],
)
def test_lz4_frames_that_kafka_refuses(frame, cause):
    """Row 142: each malformed frame is refused with its cause."""
    with pytest.raises(CorruptBatchError, match=cause):
        inflate(Codec.LZ4, frame)


def test_the_lz4_header_checksum_is_ignored_in_the_oldest_format():
    """Row 142: in magic 0 a wrong header checksum of an LZ4 frame is ignored, because old writers computed it wrongly.

    In magic 1 and 2 the header checksum is verified.
    """
    quirk = bytes.fromhex("04224d1860401a") + STORED_BLOCK + END

    assert b"hello" == inflate(Codec.LZ4, quirk, magic=0)
    for magic in (1, 2):
        with pytest.raises(CorruptBatchError, match="header's checksum"):
            inflate(Codec.LZ4, quirk, magic=magic)
