"""The codecs of record batches, in Kafka's framings (kafka-storage.md §2.4).

    gzip    one or more members of RFC 1952
    snappy  82 53 4e 41 50 50 59 00 │ int32 1 │ int32 1 │ { int32 length │ raw block of at most 32 KiB input } …
            (xerial's stream); a bare raw block is read too, as librdkafka writes it
    lz4     one frame of independent 64 KiB blocks: see `lz4_frame`
    zstd    plain frames

What is inflated is bounded: a small batch may not fill the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

import cramjam
import lz4.block
import lz4.frame
import zstandard
from zlib_ng import zlib_ng

from storage.codec import lz4_frame
from storage.codec.headers import Buffer, Codec
from storage.errors import CorruptBatchError

MAX_INFLATED_BYTES = 256 * 1024 * 1024
"""Of one batch: far above what a producer gathers in one, and far below what a bomb of 1 MB makes."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024

_GZIP_MEMBER = 31
"""zlib's `wbits` for a 32 KiB window and a gzip header."""

_LENGTH = struct.Struct(">i")
_ZLIB_ERROR: type[Exception] = zlib_ng.error  # type: ignore[assignment] # its stub makes an instance of the class
_FAULTS = (
    ValueError,
    cramjam.DecompressionError,
    lz4.block.LZ4BlockError,
    _ZLIB_ERROR,
    zstandard.ZstdError,
)

DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka's. Its LZ4 level 9 means the fast compressor; only levels that are set otherwise are levels."""


def inflate(
    codec: Codec,
    data: Buffer,
    *,
    position: int = 0,
    limit: int = MAX_INFLATED_BYTES,
    magic: int = 2,
) -> bytes:
    """The content of a batch's compressed records.

    `position` is that of the batch, for the error; `magic` its format: in the oldest one LZ4's header checksum is not
    looked at. Raises CorruptBatchError for bytes that are not what the codec makes, or that make more than `limit`.
    A zstd frame that is cut off gives what there is of it: its records then do not add up.
    """
    parts: list[bytes | memoryview] = []
    size = 0
    try:
        for part in _parts(codec, memoryview(data).cast("B"), limit, magic):
            size += len(part)
            if size > limit:
                raise ValueError(f"more than {limit} bytes inflated")
            parts.append(part)
    except _FAULTS as error:
        raise CorruptBatchError(position, f"{codec.label}: {error}") from None
    return b"".join(parts)


def deflate(codec: Codec, data: Buffer, *, level: int | None = None) -> bytes:
    """`data` as `codec` writes it, at Kafka's default level unless told otherwise (snappy has none)."""
    return _WRITERS[codec](data, DEFAULT_LEVELS.get(codec, 0) if level is None else level)


_Parts: TypeAlias = Iterator[bytes | memoryview]


def _parts(codec: Codec, data: memoryview, limit: int, magic: int) -> _Parts:
    if codec is Codec.GZIP:
        return _gzip_parts(data, limit)
    if codec is Codec.SNAPPY:
        return _snappy_parts(data, limit)
    if codec is Codec.LZ4:
        return lz4_frame.blocks(data, check_header=magic > 0)
    if codec is Codec.ZSTD:
        return _zstd_parts(data, limit)
    return iter((data,))


def _gzip_parts(data: memoryview, limit: int) -> _Parts:
    rest: bytes | memoryview = data
    while len(rest):
        member = zlib_ng.decompressobj(_GZIP_MEMBER)
        # One byte more than allowed, for whoever counts to see that it was too much.
        yield member.decompress(rest, limit + 1)
        if not member.eof:
            raise ValueError("the stream ends early, or is too long")
        rest = member.unused_data


def _snappy_parts(data: memoryview, limit: int) -> _Parts:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(data, limit)
        return
    position = 0
    while position < len(data):
        # Streams may stand one after the other: a header is expected wherever a block is.
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise ValueError("the stream ends inside its header")
            continue
        block = data[position + _LENGTH.size :]
        length = _LENGTH.unpack_from(data, position)[0] if len(data) - position >= _LENGTH.size else -1
        if not 0 <= length <= len(block):
            raise ValueError("a block's length does not fit")
        yield _snappy_block(block[:length], limit)
        position += _LENGTH.size + length


def _snappy_block(block: memoryview, limit: int) -> memoryview:
    # The block declares its content's length, which is allocated before anything is looked at.
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > limit:
        raise ValueError(f"more than {limit} bytes inflated")
    return memoryview(cramjam.snappy.decompress_raw(block))


def _zstd_parts(data: memoryview, limit: int) -> _Parts:
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        yield reader.read(limit + 1)


def _write_gzip(data: Buffer, level: int) -> bytes:
    member = zlib_ng.compressobj(level, zlib_ng.DEFLATED, _GZIP_MEMBER)
    return member.compress(data) + member.flush()


def _write_snappy(data: Buffer, _level: int) -> bytes:
    view = memoryview(data).cast("B")
    parts: list[bytes | memoryview] = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _write_lz4(data: Buffer, level: int) -> bytes:
    return lz4.frame.compress(
        data,
        compression_level=0 if level == DEFAULT_LEVELS[Codec.LZ4] else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )


def _write_zstd(data: Buffer, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


_WRITERS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: lambda data, _level: bytes(data),
    Codec.GZIP: _write_gzip,
    Codec.SNAPPY: _write_snappy,
    Codec.LZ4: _write_lz4,
    Codec.ZSTD: _write_zstd,
}
