"""The zstd frames of a batch: see `codecs`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import zstandard

from topicfs.storage.codec.compression.bounds import MAX_PARTS, OversizeContentError
from topicfs.storage.model import Buffer

DEFAULT_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_STRIDE = 256 * 1024
"""Bytes read at a time from a frame that does not declare its content's size."""
_KEPT = 8
"""Number of decompressors, and of compressors, kept for reuse: making one takes longer than a small batch."""
_MAX_KEPT_DECOMPRESSOR_BYTES = 8 * 2**20
"""A decompressor with more memory is not kept; the window of a frame decides how much it uses."""

FAULTS: tuple[type[Exception], ...] = (ValueError, zstandard.ZstdError)

_DECOMPRESSORS: deque[zstandard.ZstdDecompressor] = deque(maxlen=_KEPT)
_COMPRESSORS: deque[zstandard.ZstdCompressor] = deque(maxlen=_KEPT)
"""Compressors of the default level."""


def _check_first_frame(data: memoryview, has_checksum: bool) -> None:
    """Raise ValueError if the first frame is incomplete: Java refuses such a frame, but zstandard does not.

    Java accepts later frames that are incomplete.
    """
    end = zstandard.frame_header_size(data)
    for _ in range(MAX_PARTS):
        head = int.from_bytes(data[end : end + 3], "little")
        repeated = head >> 1 & 3 == 1
        end += 3 + (1 if repeated else head >> 3)
        if head & 1 or end > len(data):
            break
    else:
        raise OversizeContentError(f"more than {MAX_PARTS} blocks")
    if end + 4 * has_checksum > len(data):
        raise ValueError("the frame ends early")


def parts(data: memoryview, limit: int, _magic: int) -> Iterator[bytes]:
    frame = zstandard.get_frame_parameters(data)
    if data[:4] == _ZSTD_MAGIC:
        _check_first_frame(data, frame.has_checksum)
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    room = limit + 1  # One byte more than allowed, so that the caller sees that the limit is exceeded.
    stride = min(frame.content_size + 1, room) if frame.content_size <= limit else _ZSTD_STRIDE
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while room > 0:
            part = reader.read(min(stride, room))
            yield part
            if len(part) < stride:
                break
            room -= len(part)
            stride = _ZSTD_STRIDE
    if decompressor.memory_size() <= _MAX_KEPT_DECOMPRESSOR_BYTES:
        _DECOMPRESSORS.append(decompressor)


def compress(data: Buffer, level: int) -> bytes:
    if level != DEFAULT_LEVEL:
        return zstandard.ZstdCompressor(level=level).compress(data)
    try:
        compressor = _COMPRESSORS.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    written = compressor.compress(data)
    _COMPRESSORS.append(compressor)
    return written
