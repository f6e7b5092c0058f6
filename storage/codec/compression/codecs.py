"""The codecs of record batches, in Kafka's framings (kafka-storage.md#compression).

    gzip    one or more members of RFC 1952
    snappy  82 53 4e 41 50 50 59 00 │ int32 1 │ int32 1 │ { int32 length │ raw block of at most 32 KiB input } …
            (xerial's stream); a bare raw block is read too, as librdkafka writes it
    lz4     one frame of independent 64 KiB blocks: see `lz4_frame`
    zstd    plain frames

What follows a whole stream is read, ignored or refused as Kafka's Java libraries do (kafka-storage.md#what-readers-accept).

What is inflated is bounded, and so is the number of parts it comes in: a small batch may fill neither the memory nor the time.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

import cramjam
import lz4.block
import lz4.frame
import zstandard
from isal import igzip_lib, isal_zlib
from zlib_ng import zlib_ng

from topicfs.storage.codec.binary.memory import release_vectors
from topicfs.storage.codec.compression import lz4_frame
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_MEMBERS, MAX_PARTS
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import CorruptBatchError, OversizeBatchError
from topicfs.storage.model import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024

_GZIP_MEMBER = 31
"""zlib's `wbits` for a 32 KiB window and a gzip header."""
_GZIP_HEADER = re.compile(rb"\x1f\x8b\x08.{7}", re.DOTALL)
_GZIP_TEXT = re.compile(rb"[^\0]*\0")
_GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT, _GZIP_HEADER_SUM = 4, 8, 16, 2
_GZIP_IGNORED = 18
"""Bytes behind a member that Java's reader does not look at when there are no more of them."""
_GZIP_STRIDE = 64 * 1024
"""Bytes given at once to members behind the first: what one leaves of them to the next is copied."""
_GZIP_FAST = 2
"""ISA-L's level where no other is asked for: output within four hundredths of zlib's default, several times as fast."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_STRIDE = 256 * 1024
"""Bytes taken of a frame at once that does not say its content's size."""
_KEPT = 8
"""Decompressors and compressors kept, each of which one thread uses at a time: making one takes longer than a small batch."""
_KEPT_BYTES = 8 * 2**20
"""A decompressor that takes more memory is not kept: the window of a frame decides that."""

_LENGTH = struct.Struct(">i")
_GZIP_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment] # its stub makes an instance of the class
_FAULTS = (
    ValueError,
    cramjam.DecompressionError,
    lz4.block.LZ4BlockError,
    _GZIP_ERROR,
    zstandard.ZstdError,
)

DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka's. Its LZ4 level 9 means the fast compressor; only levels that are set otherwise are levels."""


USUAL_PART_BYTES = 16 * 1024
"""Bytes that a block or member inflates to, at least, in what producers write: where less than MAX_CONTENT_BYTES are allowed, so are fewer parts."""
SMALL_PARTS = 16
"""Number of parts that is allowed in any case."""


class _OversizeError(Exception):
    """Inflated content that exceeds a bound."""


def inflate(
    codec: Codec,
    data: Buffer,
    *,
    position: int = 0,
    limit: int = MAX_CONTENT_BYTES,
    magic: int = 2,
) -> bytes | memoryview:
    """Return the content of a batch's compressed records.

    `position` is that of the batch, for the error; `magic` its format: in the oldest one LZ4's header checksum is not
    looked at. Raises CorruptBatchError for bytes that are not what the codec makes, OversizeBatchError where they make
    more than `limit` or consist of too many parts.
    """
    most, kind = parts_within(limit), "blocks"
    if codec is Codec.GZIP:
        most, kind = min(most, MAX_MEMBERS), "members"
    parts = _parts(codec, memoryview(data).cast("B"), limit, magic)
    fault = CorruptBatchError
    try:
        return _whole([*_bounded(parts, limit, most, kind)])
    except _OversizeError as error:
        fault, cause = OversizeBatchError, str(error)
    except _FAULTS as error:
        cause = str(error)
    # Outside of the handlers: an error raised inside one would keep all that was inflated alive as long as itself.
    raise fault(position, f"{codec.label}: {cause}")


def parts_within(limit: int) -> int:
    """Return the most parts that content of at most `limit` bytes may have: each takes some microseconds, however few bytes it has."""
    return (
        MAX_PARTS
        if limit >= MAX_CONTENT_BYTES
        else min(MAX_PARTS, max(SMALL_PARTS, limit // USUAL_PART_BYTES))
    )


def deflate(codec: Codec, data: Buffer, *, level: int | None = None) -> bytes:
    """Return `data` compressed by `codec`, at Kafka's default level unless another is given (snappy has none)."""
    return _WRITERS[codec](data, DEFAULT_LEVELS.get(codec, 0) if level is None else level)


def _whole(parts: list[bytes | memoryview]) -> bytes | memoryview:
    """Return the parts in one piece; a single one is not copied."""
    return parts[0] if len(parts) == 1 else b"".join(parts)


_Parts: TypeAlias = Iterator[bytes | memoryview]


def _bounded(parts: _Parts, limit: int, most: int, kind: str) -> _Parts:
    """Pass the parts on, as long as they are not too many and not too large together. Raises _OversizeError."""
    size = 0
    for number, part in enumerate(parts):
        size += len(part)
        if size > limit:
            raise _OversizeError(f"more than {limit} bytes inflated")
        if number >= most:
            raise _OversizeError(f"more than {most} {kind}")
        yield part


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
    """Yield the content of each member. Anything else behind a member is ignored, as by Java's reader."""
    at, given = 0, len(data)  # The first member mostly is the only one, and gets all there is.
    while at < len(data) and (not at or _begins_member(data, at)):
        member = isal_zlib.decompressobj(_GZIP_MEMBER)
        parts: list[bytes] = []
        room = limit + 1  # One byte more than allowed, for the caller to see that it was too much.
        while not member.eof and room > 0:
            if at >= len(data):
                raise ValueError("the stream ends early")
            stride = data[at : at + given]
            try:
                parts.append(member.decompress(stride, room))
            finally:
                release_vectors()
            at += len(stride) - len(member.unused_data)
            room -= len(parts[-1])
        yield parts[0] if len(parts) == 1 else b"".join(parts)
        given = _GZIP_STRIDE


def _begins_member(data: memoryview, at: int) -> bool:
    """Return whether a whole header, with a right checksum if it has one, begins at `at`, behind another member."""
    if len(data) - at <= _GZIP_IGNORED or not (head := _GZIP_HEADER.match(data, at)):
        return False
    flags, end = data[at + 3], head.end()
    if flags & _GZIP_EXTRA:
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            text = _GZIP_TEXT.match(data, end)
            if text is None:
                return False
            end = text.end()
    if flags & _GZIP_HEADER_SUM:
        if zlib_ng.crc32(data[at:end]) & 0xFFFF != int.from_bytes(data[end : end + 2], "little"):
            return False
        end += 2
    return end <= len(data)


def _snappy_parts(data: memoryview, limit: int) -> _Parts:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(data, limit)
        return
    position = 0
    while len(data) - position >= _LENGTH.size:  # Fewer bytes at the end are ignored.
        # Streams may stand one after the other: four bytes of a header are looked at wherever a block is expected.
        if data[position : position + _LENGTH.size] == XERIAL_MAGIC[: _LENGTH.size]:
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise ValueError("the stream ends inside its header")
            continue
        block = data[position + _LENGTH.size :]
        length = _LENGTH.unpack_from(data, position)[0]
        if not 0 <= length <= len(block):
            raise ValueError("a block's length does not fit")
        yield _snappy_block(block[:length], limit)
        position += _LENGTH.size + length


def _snappy_block(block: memoryview, limit: int) -> memoryview:
    # The block declares its content's length, which is allocated before anything is looked at.
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > limit:
        raise _OversizeError(f"more than {limit} bytes inflated")
    return memoryview(cramjam.snappy.decompress_raw(block))


_DECOMPRESSORS: deque[zstandard.ZstdDecompressor] = deque(maxlen=_KEPT)
_COMPRESSORS: deque[zstandard.ZstdCompressor] = deque(maxlen=_KEPT)
"""Compressors of the default level."""


def _check_first_frame(data: memoryview, has_checksum: bool) -> None:
    """Raise ValueError if the first frame is cut off: its reader says nothing. Java's ignores a cut one behind a whole one."""
    end = zstandard.frame_header_size(data)
    for _ in range(MAX_PARTS):
        head = int.from_bytes(data[end : end + 3], "little")
        repeated = head >> 1 & 3 == 1
        end += 3 + (1 if repeated else head >> 3)
        if head & 1 or end > len(data):
            break
    else:
        raise _OversizeError(f"more than {MAX_PARTS} blocks")
    if end + 4 * has_checksum > len(data):
        raise ValueError("the frame ends early")


def _zstd_parts(data: memoryview, limit: int) -> _Parts:
    frame = zstandard.get_frame_parameters(data)
    if data[:4] == _ZSTD_MAGIC:
        _check_first_frame(data, frame.has_checksum)
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    room = limit + 1  # One byte more than allowed, for the caller to see that it was too much.
    stride = min(frame.content_size + 1, room) if frame.content_size <= limit else _ZSTD_STRIDE
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while room > 0:
            part = reader.read(min(stride, room))
            yield part
            if len(part) < stride:
                break
            room -= len(part)
            stride = _ZSTD_STRIDE
    if decompressor.memory_size() <= _KEPT_BYTES:
        _DECOMPRESSORS.append(decompressor)


def _write_gzip(data: Buffer, level: int) -> bytes:
    if level == DEFAULT_LEVELS[Codec.GZIP]:
        written = igzip_lib.compress(data, _GZIP_FAST, igzip_lib.COMP_GZIP)
        release_vectors()
        return written
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
    if level != DEFAULT_LEVELS[Codec.ZSTD]:
        return zstandard.ZstdCompressor(level=level).compress(data)
    try:
        compressor = _COMPRESSORS.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    written = compressor.compress(data)
    _COMPRESSORS.append(compressor)
    return written


_WRITERS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: lambda data, _level: bytes(data),
    Codec.GZIP: _write_gzip,
    Codec.SNAPPY: _write_snappy,
    Codec.LZ4: _write_lz4,
    Codec.ZSTD: _write_zstd,
}
