"""The snappy blocks of a batch, in xerial's framing or bare: see `codecs`."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from topicfs.storage.codec.compression.bounds import OversizeContentError
from topicfs.storage.model import Buffer

DEFAULT_LEVEL = 0
"""Snappy has no levels."""
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024

_LENGTH = struct.Struct(">i")
FAULTS: tuple[type[Exception], ...] = (ValueError, cramjam.DecompressionError)


def parts(data: memoryview, limit: int, _magic: int) -> Iterator[memoryview]:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _block(data, limit)
        return
    position = 0
    while len(data) - position >= _LENGTH.size:  # Up to three bytes at the end are ignored.
        # If another stream follows, its header is where the length of a block would be.
        if data[position : position + _LENGTH.size] == XERIAL_MAGIC[: _LENGTH.size]:
            position += len(XERIAL_HEADER)
            if position > len(data):
                raise ValueError("the stream ends inside its header")
            continue
        block = data[position + _LENGTH.size :]
        length = _LENGTH.unpack_from(data, position)[0]
        if not 0 <= length <= len(block):
            raise ValueError("a block's length does not fit")
        yield _block(block[:length], limit)
        position += _LENGTH.size + length


def _block(block: memoryview, limit: int) -> memoryview:
    # A block declares the length of its content, which the library allocates before it reads the block.
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > limit:
        raise OversizeContentError(f"more than {limit} bytes inflated")
    return memoryview(cramjam.snappy.decompress_raw(block))


def compress(data: Buffer, _level: int) -> bytes:
    view = memoryview(data).cast("B")
    written: list[bytes | memoryview] = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        written += (_LENGTH.pack(len(block)), block)
    return b"".join(written)
