"""LZ4 frames as Kafka reads them (kafka-storage.md#lz4-frames).

    magic 04 22 4d 18 │ FLG │ BD │ [content size, 8 bytes] │ header checksum │ blocks │ 0 (4 bytes) │ [content checksum]
    FLG   bits 7-6 version 1, 5 blocks are independent, 4 block checksums, 3 content size, 2 content checksum, 1 zero
    BD    bits 6-4 largest block: 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB; all other bits are zero
    block length (4 bytes, little-endian; bit 31: stored, not compressed) │ bytes │ [checksum]

The library's own frame reader is not used, because Kafka's rules differ: linked blocks are refused, and the content
checksum is ignored. The header checksum of the oldest format (magic 0) was computed over the wrong bytes, so it is
not checked. Only a block with its own checksum is passed to the library's reader, as a frame of this single block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import lz4.block
import lz4.frame

from topicfs.storage.model import Buffer

DEFAULT_LEVEL = 9
"""Kafka's default level, which selects the fast compressor; any other value is passed to the library as a level."""
FAULTS: tuple[type[Exception], ...] = (ValueError, lz4.block.LZ4BlockError)
MAGIC = b"\x04\x22\x4d\x18"
STORED = 1 << 31

_VERSION = 0x40
_INDEPENDENT = 0x20
_BLOCK_CHECKSUMS = 0x10
_CONTENT_SIZE = 0x08
_CONTENT_CHECKSUM = 0x04
_LARGEST_BLOCK = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LENGTH = struct.Struct("<I")


def parts(frame: memoryview, _limit: int, magic: int) -> Iterator[bytes | memoryview]:
    """Yield the content of the frame's blocks. `magic` 0: ignore the header checksum, which is wrong in that format."""
    return blocks(frame, check_header=magic > 0)


def compress(data: Buffer, level: int) -> bytes:
    return lz4.frame.compress(
        data,
        compression_level=0 if level == DEFAULT_LEVEL else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )


def blocks(frame: memoryview, *, check_header: bool = True) -> Iterator[bytes | memoryview]:
    """Yield the content of the frame's blocks, one after the other.

    Raises ValueError or lz4.block.LZ4BlockError for an invalid frame. An empty stored block also marks the end. Bytes
    after the end mark are ignored, but if the header announces a content checksum, its bytes must exist.
    """
    flags, largest, position = _read_header(frame, check_header=check_header)
    while True:
        length = _length_at(frame, position)
        position += _LENGTH.size
        if length in {0, STORED}:
            if flags & _CONTENT_CHECKSUM and len(frame) - position < _LENGTH.size:
                raise ValueError("the frame ends inside its content checksum")
            return
        stored = length & STORED != 0
        length &= STORED - 1
        if length > largest:
            raise ValueError(f"a block of {length} bytes, more than the frame's limit of {largest}")
        block = frame[position : position + length]
        if len(block) < length:
            raise ValueError("the frame ends inside a block")
        position += length
        if flags & _BLOCK_CHECKSUMS:
            start, position = position - length - _LENGTH.size, position + _LENGTH.size
            if position > len(frame):
                raise ValueError("the frame ends inside a block's checksum")
            yield _checked(frame[start:position], frame[5])
        else:
            yield block if stored else lz4.block.decompress(block, uncompressed_size=largest)


def _checked(block: memoryview, descriptor: int) -> bytes:
    """Return the content of a block that begins with its length and ends with its checksum."""
    head = bytes([_VERSION | _INDEPENDENT | _BLOCK_CHECKSUMS, descriptor])
    frame = b"".join((MAGIC, head, bytes([_header_checksum(head)]), block, _LENGTH.pack(0)))
    try:
        return lz4.frame.decompress(frame)
    except RuntimeError as error:
        raise ValueError(f"a block's checksum does not match: {error}") from None


def _length_at(frame: memoryview, position: int) -> int:
    if len(frame) - position < _LENGTH.size:
        raise ValueError("the frame ends without its end mark")
    length: int = _LENGTH.unpack_from(frame, position)[0]
    return length


def _read_header(frame: memoryview, *, check_header: bool) -> tuple[int, int, int]:
    """Return the flags, the size of the largest block and the position of the first block."""
    if len(frame) < 7 or frame[:4] != MAGIC:
        raise ValueError("no LZ4 frame begins here")
    flags, descriptor = frame[4], frame[5]
    if flags >> 6 != 1 or flags & 0x02 or descriptor & 0x8F or descriptor >> 4 not in _LARGEST_BLOCK:
        raise ValueError(f"unknown frame flags {flags:#04x} {descriptor:#04x}")
    if not flags & _INDEPENDENT:
        raise ValueError("linked blocks, which Kafka does not read")
    end = 6 + (8 if flags & _CONTENT_SIZE else 0)
    if len(frame) <= end:
        raise ValueError("the frame ends inside its header")
    if check_header and frame[end] != _header_checksum(bytes(frame[4:end])):
        raise ValueError("the frame header's checksum does not match")
    return flags, _LARGEST_BLOCK[descriptor >> 4], end + 1


_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=64)
def _header_checksum(header: bytes) -> int:
    """Return the checksum byte that ends a frame's header. Cached, because most headers of a log are the same."""
    return xxh32(header) >> 8 & 0xFF


def xxh32(data: memoryview | bytes) -> int:
    """Return the 32-bit xxHash with seed 0 of a few header bytes (XXH32 of the xxHash specification)."""
    position = len(data) // 16 * 16
    if position:
        lanes = [(_PRIMES[0] + _PRIMES[1]) & _MASK, _PRIMES[1], 0, -_PRIMES[0] & _MASK]
        for words in struct.iter_unpack("<4I", data[:position]):
            lanes = [
                _rotated((lane + word * _PRIMES[1]) & _MASK, 13) * _PRIMES[0] & _MASK
                for lane, word in zip(lanes, words, strict=True)
            ]
        digest = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        digest = _PRIMES[4]
    digest += len(data)
    while len(data) - position >= 4:
        digest += _LENGTH.unpack_from(data, position)[0] * _PRIMES[2]
        digest = _rotated(digest & _MASK, 17) * _PRIMES[3]
        position += 4
    for octet in data[position:]:
        digest = _rotated((digest + octet * _PRIMES[4]) & _MASK, 11) * _PRIMES[0]
    digest &= _MASK
    digest = (digest ^ digest >> 15) * _PRIMES[1] & _MASK
    digest = (digest ^ digest >> 13) * _PRIMES[2] & _MASK
    return digest ^ digest >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
