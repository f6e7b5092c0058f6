"""The codecs of record batches, in Kafka's framings (kafka-storage.md#compression).

    gzip    one or more members of RFC 1952
    snappy  82 53 4e 41 50 50 59 00 │ int32 1 │ int32 1 │ { int32 length │ raw block of at most 32 KiB input } …
            (xerial's stream); a single raw block is read too, because librdkafka writes it
    lz4     one frame of independent 64 KiB blocks: see `lz4_frame`
    zstd    plain frames

Bytes after a whole stream are read, ignored or refused, as by Kafka's Java libraries
(kafka-storage.md#what-readers-accept).

The inflated size and the number of parts are limited, so that a small batch cannot exhaust memory or time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Protocol, TypeAlias, cast

from topicfs.storage.codec.compression.bounds import (
    MAX_CONTENT_BYTES,
    MAX_MEMBERS,
    MAX_PARTS,
    OversizeContentError,
)
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import CorruptBatchError, OversizeBatchError
from topicfs.storage.model import Buffer

_Parts: TypeAlias = Iterator[bytes | memoryview]


class CodecModule(Protocol):
    """The module of a codec; it calls the codec's library."""

    DEFAULT_LEVEL: int
    """Kafka's default level."""
    FAULTS: tuple[type[Exception], ...]
    """The exceptions that the library raises for invalid compressed bytes."""

    def parts(self, data: memoryview, limit: int, magic: int, /) -> _Parts:
        """Yield the decompressed content part by part. Raises OversizeContentError or one of FAULTS."""

    def compress(self, data: Buffer, level: int) -> bytes:
        """Return the data compressed as Kafka's producers do it."""


_MODULES = {
    Codec.GZIP: "gzip_members",
    Codec.SNAPPY: "snappy_blocks",
    Codec.LZ4: "lz4_frame",
    Codec.ZSTD: "zstd_frames",
}


@cache
def _module(codec: Codec) -> CodecModule:
    """Import a codec's module on first use, because most commands need at most one of the libraries."""
    return cast("CodecModule", import_module(f"{__package__}.{_MODULES[codec]}"))


USUAL_PART_BYTES = 16 * 1024
"""Producers usually write blocks and members that inflate to at least this size. Therefore `parts_within` allows one
part for each 16 KiB of its limit.
"""
SMALL_PARTS = 16
"""Number of parts that even the smallest limit allows."""


def inflate(
    codec: Codec, data: Buffer, *, position: int = 0, limit: int = MAX_CONTENT_BYTES, magic: int = 2
) -> bytes | memoryview:
    """Return the inflated records of a batch of format `magic`. Raises CorruptBatchError, OversizeBatchError."""
    most, kind = parts_within(limit), "blocks"
    if codec is Codec.GZIP:
        most, kind = min(most, MAX_MEMBERS), "members"
    view = memoryview(data).cast("B")
    faults: tuple[type[Exception], ...] = ()
    parts: _Parts = iter((view,))
    if codec is not Codec.NONE:
        module = _module(codec)
        parts, faults = module.parts(view, limit, magic), module.FAULTS
    fault = CorruptBatchError
    try:
        return _whole([*_bounded(parts, limit, most, kind)])
    except OversizeContentError as error:
        fault, cause = OversizeBatchError, str(error)
    except faults as error:
        cause = str(error)
    # Raised outside the handlers: an error raised inside a handler would keep all inflated content in memory
    # as long as the error exists.
    raise fault(position, f"{codec.label}: {cause}")


def parts_within(limit: int) -> int:
    """Return how many parts content of at most `limit` bytes may have.

    Parts are limited because even an empty part costs microseconds.
    """
    return (
        MAX_PARTS
        if limit >= MAX_CONTENT_BYTES
        else min(MAX_PARTS, max(SMALL_PARTS, limit // USUAL_PART_BYTES))
    )


def deflate(codec: Codec, data: Buffer, *, level: int | None = None) -> bytes:
    """Return `data` compressed by `codec`, at `level` or else at Kafka's default level; snappy has no levels."""
    if codec is Codec.NONE:
        return bytes(data)
    module = _module(codec)
    return module.compress(data, module.DEFAULT_LEVEL if level is None else level)


def _whole(parts: list[bytes | memoryview]) -> bytes | memoryview:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _bounded(parts: _Parts, limit: int, most: int, kind: str) -> _Parts:
    """Yield the parts; raise OversizeContentError when their number or total size exceeds its bound."""
    size = 0
    for number, part in enumerate(parts):
        size += len(part)
        if size > limit:
            raise OversizeContentError(f"more than {limit} bytes inflated")
        if number >= most:
            raise OversizeContentError(f"more than {most} {kind}")
        yield part
