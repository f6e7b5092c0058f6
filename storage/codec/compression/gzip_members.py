"""The gzip members of a batch (RFC 1952), read as Java reads them: see `codecs`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from isal import igzip_lib, isal_zlib
from zlib_ng import zlib_ng

from topicfs.storage.codec.binary.memory import release_vectors
from topicfs.storage.model import Buffer

DEFAULT_LEVEL = -1
_GZIP_MEMBER = 31
"""zlib's `wbits` for a 32 KiB window and a gzip header."""
_GZIP_HEADER = re.compile(rb"\x1f\x8b\x08.{7}", re.DOTALL)
_GZIP_TEXT = re.compile(rb"[^\0]*\0")
_GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT, _GZIP_HEADER_SUM = 4, 8, 16, 2
_GZIP_STRIDE = 64 * 1024
"""Number of compressed bytes that the decompressor of each member after the first gets at a time. The decompressor
copies the bytes after its member's end, so a larger number would copy more.
"""
_GZIP_FAST = 2
"""ISA-L's level for Kafka's default: several times as fast as zlib's, with output of nearly the same size."""

FAULTS: tuple[type[Exception], ...] = (ValueError, isal_zlib.error)  # type: ignore[assignment] # its stub makes an instance of the class


def parts(data: memoryview, limit: int, _magic: int) -> Iterator[bytes]:
    """Yield the content of each member. Like Java, ignore bytes after a member that do not begin another member."""
    at, given = 0, len(data)  # There is usually only one member, so it gets all the data at once.
    while at < len(data) and (not at or _begins_member(data, at)):
        member = isal_zlib.decompressobj(_GZIP_MEMBER)
        found: list[bytes] = []
        room = limit + 1  # One byte more than allowed, so that the caller sees that the limit is exceeded.
        while not member.eof and room > 0:
            if at >= len(data):
                raise ValueError("the stream ends early")
            stride = data[at : at + given]
            try:
                found.append(member.decompress(stride, room))
            finally:
                release_vectors()
            at += len(stride) - len(member.unused_data)
            room -= len(found[-1])
        yield found[0] if len(found) == 1 else b"".join(found)
        given = _GZIP_STRIDE


def _begins_member(data: memoryview, at: int) -> bool:
    """Return whether another member begins at `at`: a whole header, with a right checksum if it has one."""
    if not (head := _GZIP_HEADER.match(data, at)):
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


def compress(data: Buffer, level: int) -> bytes:
    if level == DEFAULT_LEVEL:
        written = igzip_lib.compress(data, _GZIP_FAST, igzip_lib.COMP_GZIP)
        release_vectors()
        return written
    member = zlib_ng.compressobj(level, zlib_ng.DEFLATED, _GZIP_MEMBER)
    return member.compress(data) + member.flush()
