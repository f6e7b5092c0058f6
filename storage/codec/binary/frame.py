"""Reads single fields of a batch from bytes that may be cut off or damaged; the other fields are not checked."""

from __future__ import annotations

import struct

from topicfs.storage.codec.binary.fields import (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    CHECKSUM_POSITION,
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    SMALLEST_LENGTH,
    SMALLEST_LENGTH_V0,
    SMALLEST_LENGTH_V1,
)
from topicfs.storage.model import Buffer

_OFFSET_SIZE = 8
_LENGTH = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")

FRAME_SIZE = MAGIC_POSITION + 1
"""Size of the prefix that gives a batch's length and format."""
_SMALLEST_LENGTHS = (SMALLEST_LENGTH_V0, SMALLEST_LENGTH_V1, SMALLEST_LENGTH)
"""Smallest value of the length field, by format."""


def base_offset_at(data: Buffer, position: int) -> int:
    """Return the base offset; if the data ends inside the field, return the number that the available bytes form."""
    at = position + BASE_OFFSET_POSITION
    return int.from_bytes(data[at : at + _OFFSET_SIZE], "big", signed=True)


def size_at(data: Buffer, position: int) -> int | None:
    """Return the batch's size, read from its first FRAME_SIZE bytes; None if these bytes fit no known format."""
    length: int = _LENGTH.unpack_from(data, position + LENGTH_POSITION)[0]
    magic = data[position + MAGIC_POSITION]
    return None if magic > CURRENT_MAGIC or length < _SMALLEST_LENGTHS[magic] else length + LOG_OVERHEAD


def end_at(data: Buffer, position: int) -> int:
    """Return where a damaged batch ends according to its length field; the end of the data if the field is invalid."""
    if position + LENGTH_POSITION + _LENGTH.size > len(data):
        return len(data)
    length: int = _LENGTH.unpack_from(data, position + LENGTH_POSITION)[0]
    end = position + LOG_OVERHEAD + length
    return end if position + HEADER_SIZE <= end <= len(data) else len(data)


def is_plain_at(data: Buffer, position: int) -> bool:
    """Return whether the header is of format v2 and names no codec."""
    return data[position + MAGIC_POSITION] == CURRENT_MAGIC and not (
        data[position + ATTRIBUTES_POSITION + 1] & CODEC_MASK
    )


def checksum_at(data: Buffer, position: int) -> int | None:
    """Return the checksum in the header at `position`; None if `data` has no whole header there."""
    if not 0 <= position <= len(data) - HEADER_SIZE:
        return None
    checksum: int = _CHECKSUM.unpack_from(data, position + CHECKSUM_POSITION)[0]
    return checksum
