"""The lines that benchmarks write and read: a block of numbered lines, over and over.

So the text of any log is known without keeping it: its byte at position p is the block's at p modulo its length, and
the record at offset n is the block's line n modulo their number. Such lines compress as no events do: what is
compressed has a varied text.
"""

from __future__ import annotations

import random

from crc32c import crc32c

LINE_BYTES = 100
"""With the newline."""
BLOCK_LINES = 10_000

BLOCK = b"".join(b"line %06d %s\n" % (number, b"." * (LINE_BYTES - 13)) for number in range(BLOCK_LINES))
"""A million bytes."""
assert len(BLOCK) == BLOCK_LINES * LINE_BYTES
READABLE = BLOCK * 3
"""Any span of up to a MiB of the text lies in it in one piece, and it stays in the processor's cache."""


def line(offset: int) -> bytes:
    """The record at an offset, without its newline."""
    start = offset % BLOCK_LINES * LINE_BYTES
    return BLOCK[start : start + LINE_BYTES - 1]


def text(size: int, start: int = 0) -> bytes:
    """`size` bytes of text from position `start`."""
    place = start % len(BLOCK)
    return (BLOCK * ((place + size) // len(BLOCK) + 1))[place : place + size]


def checksum(size: int) -> int:
    """CRC-32C of a log's first `size` bytes of text."""
    found = 0
    for _ in range(size // len(BLOCK)):
        found = crc32c(BLOCK, found)
    return crc32c(BLOCK[: size % len(BLOCK)], found)


def varied_text(size: int) -> bytes:
    """Lines of words and numbers, the same in each run; codecs bring them to between a third and a half."""
    chooser = random.Random(7)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    words = [bytes(chooser.choices(letters, k=chooser.randint(3, 9))) for _ in range(2000)]
    several = []
    for number in range(size // LINE_BYTES):
        message = b" ".join(chooser.choices(words, k=12))
        line = b'{"id":%d,"user":"%08x","message":"%s' % (number, chooser.getrandbits(32), message)
        several.append(line[: LINE_BYTES - 3].ljust(LINE_BYTES - 3, b".") + b'"}\n')
    return b"".join(several)
