"""Compressed batches in every form that a compression library may write, and in some invalid forms."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import cramjam
import lz4.block
import lz4.frame
import zstandard

from tests.doubles.records import record
from topicfs.storage.codec.batch import seal
from topicfs.storage.codec.binary.fields import HEADER_SIZE, LENGTH_POSITION, LOG_OVERHEAD
from topicfs.storage.codec.compression.lz4_frame import xxh32
from topicfs.storage.codec.compression.snappy_blocks import XERIAL_HEADER
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import encode

_RANDOM = random.Random(7)
RECORDS = [record(offset, b"k%d" % offset, _RANDOM.randbytes(40)) for offset in range(8)]
BATCH = encode(RECORDS)
CONTENT = bytes(BATCH[HEADER_SIZE:])
"""The uncompressed records of one batch."""
_FIRST, _SECOND = CONTENT[:200], CONTENT[200:]
_EMPTY = b""
_SKIPPABLE = struct.pack("<II", 0x184D2A50, 5) + b"skip!"
"""A frame that readers of zstd and lz4 must skip."""


def batch_of(codec: Codec, content: bytes) -> bytearray:
    """Return a batch of RECORDS whose compressed content is `content`."""
    batch = bytearray(BATCH[:HEADER_SIZE]) + content
    struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - LOG_OVERHEAD)
    struct.pack_into(">h", batch, 21, int(codec))
    seal(batch, 0, len(batch))
    return batch


def gzip_member(data: bytes, flags: int = 0, extra: bytes = b"", header_crc: bool = False) -> bytes:
    """Return a gzip member; `flags`, `extra` and `header_crc` set parts of its header that few writers use."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(4) + b"\x00\x03" + extra
    if header_crc:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    squeezed = zlib.compressobj(wbits=-15)
    body = squeezed.compress(data) + squeezed.flush()
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


def _stored_member(data: bytes, blocks: int) -> bytes:
    """Return a gzip member of `blocks` empty stored blocks and one stored block with `data`."""
    length = struct.pack("<HH", len(data), len(data) ^ 0xFFFF)
    body = b"\x00\x00\x00\xff\xff" * blocks + b"\x01" + length + data
    return gzip_member(b"")[:10] + body + struct.pack("<II", zlib.crc32(data), len(data))


def _gzip_variants() -> dict[str, bytes]:
    whole, first, second = gzip.compress(CONTENT), gzip.compress(_FIRST), gzip.compress(_SECOND)
    large = gzip_member(_FIRST, flags=4, extra=struct.pack("<H", 60_000) + _RANDOM.randbytes(60_000))
    return {
        "one member": whole,
        "one byte behind it": whole + b"x",
        "18 bytes behind it": whole + b"x" * 18,
        "19 bytes behind it": whole + b"x" * 19,
        "100 zeros behind it": whole + bytes(100),
        "20,000 bytes behind it": whole + b"x" * 20_000,
        "a cut magic behind it": whole + b"\x1f",
        "a magic behind it": whole + b"\x1f\x8b",
        "a cut header behind it": whole + second[:9],
        "a magic and 30 bytes behind it": whole + b"\x1f\x8b" + b"x" * 30,
        "a header and damaged data behind it": whole + second[:10] + b"\xff" * 40,
        "a cut member behind it": whole + second[:-9],
        "two members": first + second,
        "two members and bytes behind them": first + second + b"x" * 30,
        "a large member and a small one": large + second,
        "a member whose first 4 bytes are in Java's buffer": _stored_member(_FIRST, 1595) + second,
        "a member whose first 19 bytes are in Java's buffer": _stored_member(_FIRST, 1592) + second,
        "a second member cut after its header": whole + second[:10],
        "a header with a cut name behind it": whole + gzip_member(_SECOND, 8, b"name")[:14],
        "a header with a wrong checksum behind it": whole + gzip_member(_SECOND, 2, b"\x01\x02"),
        "a header with a cut extra field behind it": whole + gzip_member(_SECOND, 4, b"\xff\x00abc"),
        "another method behind it": whole + b"\x1f\x8b\x07" + second[3:],
        "an empty member before": gzip.compress(_EMPTY) + whole,
        "an empty member behind": whole + gzip.compress(_EMPTY),
        "an empty member and bytes behind": whole + gzip.compress(_EMPTY) + b"x",
        "content behind the records": gzip.compress(CONTENT + b"x"),
        "a member of one byte too many behind": whole + gzip.compress(b"x"),
        "a wrong checksum": whole[:-8] + b"\x00" * 4 + whole[-4:],
        "a wrong length": whole[:-4] + b"\x00" * 4,
        "a cut trailer": whole[:-3],
        "no trailer": whole[:-8],
        "a name and a comment": gzip_member(CONTENT, 8 | 16, b"name\0comment\0"),
        "an extra field": gzip_member(CONTENT, 4, b"\x03\x00abc"),
        "a header checksum": gzip_member(CONTENT, 2, header_crc=True),
        "a wrong header checksum": gzip_member(CONTENT, 2, b"\x01\x02"),
        "reserved flags": gzip_member(CONTENT, 0xE0),
    }


def _xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _snappy_variants() -> dict[str, bytes]:
    first, second, whole, none = _raw(_FIRST), _raw(_SECOND), _raw(CONTENT), _raw(_EMPTY)
    magic = XERIAL_HEADER[:8]
    return {
        "one block": _xerial(whole),
        "a bare block": whole,
        "two blocks": _xerial(first, second),
        "two streams": _xerial(first) + _xerial(second),
        "an empty stream behind": _xerial(whole) + XERIAL_HEADER,
        "a block of nothing between": _xerial(first, none, second),
        "a block of nothing before": _xerial(none, whole),
        "a block of nothing behind": _xerial(whole, none),
        "a block of no bytes between": _xerial(first, _EMPTY, second),
        "a block of no bytes behind": _xerial(whole, _EMPTY),
        "one byte behind": _xerial(whole) + b"x",
        "a cut header behind": _xerial(whole) + magic[:6],
        "a cut version behind": _xerial(whole) + XERIAL_HEADER[:13],
        "another magic behind": _xerial(whole) + magic[:4] + b"x" * 12,
        "another magic, cut, behind": _xerial(whole) + magic[:4] + b"x" * 3,
        "another magic between": _xerial(first) + magic[:4] + b"x" * 12 + _xerial(second),
        "no block": XERIAL_HEADER,
        "three bytes behind": _xerial(whole) + b"xxx",
        "a negative length behind": _xerial(whole) + b"\xff\xff\xff\xff",
        "four bytes behind": _xerial(whole) + struct.pack(">i", 9),
        "a cut block behind": _xerial(whole) + struct.pack(">i", 9) + b"xxx",
        "version 2": magic + struct.pack(">ii", 2, 1) + _xerial(whole)[16:],
        "compatible with 2": magic + struct.pack(">ii", 1, 2) + _xerial(whole)[16:],
        "version 0": magic + struct.pack(">ii", 0, 1) + _xerial(whole)[16:],
        "a bare block and a byte behind": whole + b"x",
    }


def lz4_frame(*blocks: bytes, flags: int = 0x60, descriptor: int = 0x40, extra: bytes = b"") -> bytes:
    """Return an lz4 frame whose blocks are stored uncompressed."""
    head = bytes([flags, descriptor]) + extra
    body = b"".join(struct.pack("<I", len(block) | 1 << 31) + block for block in blocks)
    return b"\x04\x22\x4d\x18" + head + bytes([xxh32(head) >> 8 & 0xFF]) + body + bytes(4)


def _lz4_variants() -> dict[str, bytes]:
    whole, first, second = lz4_frame(CONTENT), lz4_frame(_FIRST), lz4_frame(_SECOND)
    squeezed = lz4.block.compress(CONTENT, store_size=False)
    checked = lz4.frame.compress(CONTENT, block_linked=False, block_checksum=True)
    return {
        "one frame": lz4.frame.compress(CONTENT, block_linked=False, store_size=False),
        "two blocks": lz4_frame(_FIRST, _SECOND),
        "two frames": first + second,
        "bytes behind": whole + b"x" * 30,
        "one byte behind": whole + b"x",
        "a frame behind": whole + second,
        "an empty frame before": lz4_frame() + whole,
        "an empty frame behind": whole + lz4_frame(),
        "a skippable frame before": _SKIPPABLE + whole,
        "a skippable frame behind": whole + _SKIPPABLE,
        "a skippable frame between": first + _SKIPPABLE + second,
        "no end mark": whole[:-4],
        "a cut end mark": whole[:-2],
        "a content size": lz4.frame.compress(CONTENT, block_linked=False, store_size=True),
        "a wrong content size": lz4_frame(CONTENT, flags=0x68, extra=struct.pack("<Q", 3)),
        "a content checksum": lz4.frame.compress(CONTENT, block_linked=False, content_checksum=True),
        "a wrong content checksum": lz4_frame(CONTENT, flags=0x64) + b"abcd",
        "no content checksum": lz4_frame(CONTENT, flags=0x64),
        "linked blocks": lz4_frame(CONTENT, flags=0x40),
        "an empty stored block behind": lz4_frame(CONTENT, b""),
        "an empty stored block and a checksum flag": lz4_frame(CONTENT, b"", flags=0x64)[:-4],
        "a cut content checksum": lz4_frame(CONTENT, flags=0x64) + b"abc",
        "block checksums": checked,
        "a wrong block checksum": checked[:-5] + bytes([checked[-5] ^ 1]) + checked[-4:],
        "a dictionary": lz4_frame(CONTENT, flags=0x61, extra=bytes(4)),
        "a reserved flag": lz4_frame(CONTENT, flags=0x62),
        "blocks of 4 MiB": lz4_frame(CONTENT, descriptor=0x70),
        "a wrong header checksum": whole[:6] + bytes([whole[6] ^ 1]) + whole[7:],
        "an empty stored block": lz4_frame(_FIRST, b"", _SECOND),
        "a compressed block": whole[:7] + struct.pack("<I", len(squeezed)) + squeezed + bytes(4),
    }


def zstd_frame(data: bytes, **parameters: int) -> bytes:
    """Return a zstd frame, compressed with `parameters` of the zstandard library."""
    chosen = zstandard.ZstdCompressionParameters(**parameters)
    return zstandard.ZstdCompressor(compression_params=chosen).compress(data)


def _window(log: int, data: bytes = CONTENT) -> bytes:
    """Return a zstd frame of one stored block, whose header says that the window has 2^`log` bytes."""
    block = struct.pack("<I", len(data) << 3 | 1)[:3]
    return b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(log - 10) << 3]) + block + data


def _zstd_variants() -> dict[str, bytes]:
    whole, first, second, none = map(zstd_frame, (CONTENT, _FIRST, _SECOND, _EMPTY))
    checked = zstd_frame(CONTENT, write_checksum=1)
    windows = {f"a window of 2^{log}": _window(log) for log in (10, 23, 24, 26, 27, 28, 30, 31, 32, 41)}
    return windows | {
        "one frame": whole,
        "no content size": zstd_frame(CONTENT, write_content_size=0),
        "two frames": first + second,
        "two frames without sizes": zstd_frame(_FIRST, write_content_size=0)
        + zstd_frame(_SECOND, write_content_size=0),
        "an empty frame before": none + whole,
        "an empty frame between": first + none + second,
        "an empty frame behind": whole + none,
        "a skippable frame before": _SKIPPABLE + whole,
        "a skippable frame between": first + _SKIPPABLE + second,
        "a skippable frame behind": whole + _SKIPPABLE,
        "a cut skippable frame behind": whole + _SKIPPABLE[:-2],
        "one byte behind": whole + b"x",
        "100 bytes behind": whole + b"x" * 100,
        "100 zeros behind": whole + bytes(100),
        "a cut magic behind": whole + b"\x28\xb5",
        "a cut frame behind": whole + second[:-3],
        "a cut header behind": whole + second[:7],
        "a cut empty frame behind": whole + none[:-1],
        "two frames, the second's checksum cut": first + zstd_frame(_SECOND, write_checksum=1)[:-2],
        "two frames, the first's checksum cut": zstd_frame(_FIRST, write_checksum=1)[:-2] + second,
        "no last block": _window(23)[:6] + bytes([_window(23)[6] & 0xFE]) + _window(23)[7:],
        "a second frame behind the records": whole + second,
        "a cut frame": whole[:-3],
        "a checksum": checked,
        "a wrong checksum": checked[:-1] + bytes([checked[-1] ^ 1]),
        "a cut checksum": checked[:-2],
        "content behind the records": zstd_frame(CONTENT + b"x"),
        "a dictionary id": b"\x28\xb5\x2f\xfd\x01" + b"\x68" + b"\x05" + _window(23)[6:],
        "a reserved bit": b"\x28\xb5\x2f\xfd\x08" + b"\x68" + _window(23)[6:],
    }


VARIANTS: dict[tuple[Codec, str], bytes] = {
    (codec, name): content
    for codec, variants in (
        (Codec.GZIP, _gzip_variants()),
        (Codec.SNAPPY, _snappy_variants()),
        (Codec.LZ4, _lz4_variants()),
        (Codec.ZSTD, _zstd_variants()),
    )
    for name, content in variants.items()
}
"""The compressed contents by codec and name of the variant."""

REFUSED = {
    Codec.GZIP: {
        "a second member cut after its header",
        "a header and damaged data behind it",
        "a cut member behind it",
        "content behind the records",
        "a member of one byte too many behind",
        "a wrong checksum",
        "a wrong length",
        "a cut trailer",
        "no trailer",
        "a wrong header checksum",
    },
    Codec.SNAPPY: {
        "a block of no bytes between",
        "a block of no bytes behind",
        "a cut header behind",
        "a cut version behind",
        "another magic, cut, behind",
        "no block",
        "a negative length behind",
        "four bytes behind",
        "a cut block behind",
        "a bare block and a byte behind",
    },
    Codec.LZ4: {
        "two frames",
        "an empty frame before",
        "a skippable frame before",
        "a skippable frame between",
        "no end mark",
        "a cut end mark",
        "no content checksum",
        "a cut content checksum",
        "linked blocks",
        "an empty stored block",
        "an empty stored block and a checksum flag",
        "a wrong block checksum",
        "a dictionary",
        "a reserved flag",
        "a wrong header checksum",
    },
    Codec.ZSTD: {
        *(f"a window of 2^{log}" for log in (28, 30, 31, 32, 41)),
        "one byte behind",
        "100 bytes behind",
        "100 zeros behind",
        "a cut frame behind",
        "two frames, the first's checksum cut",
        "no last block",
        "a second frame behind the records",
        "a cut frame",
        "a wrong checksum",
        "a cut checksum",
        "content behind the records",
        "a dictionary id",
        "a reserved bit",
    },
}
"""The variants that Kafka 4.3.1 refuses to read, according to `tests/interop/test_codec_variants.py`.

Kafka reads all other variants.
"""
DEPENDS_ON_JAVA = {(Codec.GZIP, "a second member cut after its header")}
"""Variants that Kafka reads on Java 17.0.15 and refuses on Java 17.0.21; topicfs refuses them."""
