"""Compression of whole batches: only the length, the codec in the attributes and the checksum change."""

from __future__ import annotations

import struct

from topicfs.storage.codec.batch import scan, seal
from topicfs.storage.codec.binary.fields import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
)
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import Codec

_LENGTH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">H")


def compress_batches(
    batches: bytearray, codec: Codec, *, level: int | None, max_batch_bytes: int
) -> bytearray | None:
    """Return adjacent batches with their records compressed, in a new buffer; checksums are not checked.

    None if one of them is not an uncompressed v2 batch with records, or is larger than `max_batch_bytes`.
    """
    found = scan(batches)
    if found.stop < len(batches):
        return None
    written = bytearray()
    for header in found:
        if header.magic != CURRENT_MAGIC or header.attributes & CODEC_MASK or header.record_count <= 0:
            return None
        if header.size_bytes > max_batch_bytes:
            return None
        start, records = len(written), header.position + HEADER_SIZE
        with memoryview(batches) as view:
            content = deflate(codec, view[records : header.end_position], level=level)
            written += view[header.position : records]
        written += content
        _LENGTH.pack_into(written, start + LENGTH_POSITION, HEADER_SIZE + len(content) - LOG_OVERHEAD)
        _ATTRIBUTES.pack_into(written, start + ATTRIBUTES_POSITION, header.attributes | codec)
        seal(written, start, len(written))
    return written
