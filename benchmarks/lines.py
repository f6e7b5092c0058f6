"""The lines that benchmarks write and read: a block of numbered lines, repeated.

So the text of any log is known without being stored: its byte at position p is the block's byte at p modulo the
block's length, and the record at offset n is the block's line n modulo the number of lines. These lines compress far
better than real events, so benchmarks of compression use `varied_text`.
"""

from __future__ import annotations

import random

from crc32c import crc32c

LINE_BYTES = 100
"""Size of a line in bytes, including its newline."""
BLOCK_LINES = 10_000

BLOCK = b"".join(b"line %06d %s\n" % (number, b"." * (LINE_BYTES - 13)) for number in range(BLOCK_LINES))
"""The repeated block, a million bytes."""
assert len(BLOCK) == BLOCK_LINES * LINE_BYTES
READABLE = BLOCK * 3
"""Three copies of the block: they contain each piece of the text up to 1 MiB, and fit into the processor's cache."""


def line(offset: int) -> bytes:
    """Return the record at an offset, without its newline."""
    start = offset % BLOCK_LINES * LINE_BYTES
    return BLOCK[start : start + LINE_BYTES - 1]


def text(size: int, start: int = 0) -> bytes:
    """Return `size` bytes of text from position `start`."""
    place = start % len(BLOCK)
    return (BLOCK * ((place + size) // len(BLOCK) + 1))[place : place + size]


def checksum(size: int) -> int:
    """Return the CRC-32C of the first `size` bytes of a log's text."""
    found = 0
    for _ in range(size // len(BLOCK)):
        found = crc32c(BLOCK, found)
    return crc32c(BLOCK[: size % len(BLOCK)], found)


def varied_text(size: int) -> bytes:
    """Return lines of words and numbers, the same in each run.

    Codecs compress them to a third to a half of their size.
    """
    chooser = random.Random(7)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    words = [bytes(chooser.choices(letters, k=chooser.randint(3, 9))) for _ in range(2000)]
    several = []
    for number in range(size // LINE_BYTES):
        message = b" ".join(chooser.choices(words, k=12))
        line = b'{"id":%d,"user":"%08x","message":"%s' % (number, chooser.getrandbits(32), message)
        several.append(line[: LINE_BYTES - 3].ljust(LINE_BYTES - 3, b".") + b'"}\n')
    return b"".join(several)
