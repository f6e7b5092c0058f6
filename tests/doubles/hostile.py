"""Batches that no producer makes: the header may declare anything, the content is arbitrary, the checksum is right."""

from __future__ import annotations

import struct

from topicfs.storage.codec.batch import seal
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import varint

HEADER = struct.Struct(">qiibIhiqqqhii")
SHORTEST_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
"""A record of seven bytes, at offset delta 0: a null key, a null value, no headers."""


def record(
    value: bytes | None = b"v", *, delta: int = 0, key: bytes | None = None, headers: bytes = b"\0"
) -> bytes:
    """Return one record as it is encoded in a batch; `headers` are bytes that begin with the number of headers."""
    body = b"\0\0" + varint(delta) + _field(key) + _field(value) + headers
    return varint(len(body)) + body


def _field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def empty_headers(count: int) -> bytes:
    """Return `count` headers of two bytes each: an empty name and a null value."""
    return varint(count) + b"\0\1" * count


def sealed(
    content: bytes,
    *,
    count: int = 1,
    codec: Codec = Codec.NONE,
    compressed: bytes | None = None,
    attributes: int = 0,
    base_offset: int = 0,
    last_delta: int | None = None,
    timestamps: tuple[int, int] = (0, 0),
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """Return a batch with any content and a right checksum; `compressed` replaces the output of `codec`."""
    body = (deflate(codec, content) if codec else content) if compressed is None else compressed
    header = HEADER.pack(
        base_offset,
        49 + len(body),
        0,
        2,
        0,
        codec | attributes,
        max(count - 1, 0) if last_delta is None else last_delta,
        *timestamps,
        *producer,
        count,
    )
    batch = bytearray(header + body)
    seal(batch, 0, len(batch))
    return batch
