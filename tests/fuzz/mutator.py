"""Hostile batches with valid checksums, drawn from a seed.

The batches have record counts, lengths, headers, codecs, times, deltas, attributes and producers that no client sends.
Some contain compression bombs, even nested ones. No checksum detects any of this.
"""

from __future__ import annotations

import struct
from random import Random
from typing import TypeAlias

from tests.doubles.hostile import SHORTEST_RECORD, empty_headers, record, sealed
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_HEADERS, MAX_RECORDS
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.compression.snappy_blocks import XERIAL_HEADER
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import varint

CODECS = tuple(Codec)
Content: TypeAlias = tuple[bytes, int]
"""The bytes of records, and the number of records in them."""


class Mutator:
    """Makes hostile batches from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def log(self) -> list[bytearray]:
        """Return a few batches for a round; one of them may be repeated many times."""
        chosen = self._random
        batches = [self.batch() for _ in range(chosen.randint(1, 3))]
        again = chosen.choice(batches)
        if chosen.random() < 0.4:
            batches += [again] * chosen.choice((1, 2, 4) if len(again) > 2000 else (1, 5, 12))
        return batches

    def batch(self) -> bytearray:
        chosen = self._random
        codec = chosen.choice(CODECS)
        content, count = self._content(large=codec is not Codec.NONE)
        if chosen.random() < 0.15:
            count = chosen.choice((0, -1, count + 1, 2**31 - 1, MAX_RECORDS, MAX_RECORDS + 1))
        delta = chosen.choice((None, None, None, 0, 2**31 - 1, max(count, 0) % 2**31))
        return sealed(
            content,
            count=count,
            codec=codec,
            compressed=self._framing(codec, content),
            attributes=chosen.choice((0, 0, 0, 0, 0x08, 0x10, 0x20, 0x30, 0x40, 0x80, 0x7F80)),
            last_delta=None if delta is None and count < 2**31 else delta or 0,
            timestamps=(self._time(), self._time()),
            producer=chosen.choice(
                ((-1, -1, -1), (-1, -1, -1), (7, 0, 0), (7, 3, 2**31 - 1), (2**62, -5, 9))
            ),
        )

    def _time(self) -> int:
        return self._random.choice((0, -1, 1_700_000_000_000, 2**63 - 1, -(2**63), 10**15))

    def _framing(self, codec: Codec, content: bytes) -> bytes | None:
        """Return a stream in an unusual form (empty parts, many parts, random bytes), or None for the usual form."""
        chosen, kind = self._random, self._random.random()
        if codec is Codec.NONE or kind < 0.7:
            return None
        whole = deflate(codec, content[: 2**20])
        if kind < 0.8:
            return whole[: chosen.randrange(len(whole) + 1)] + chosen.randbytes(chosen.randrange(40))
        if kind < 0.9 and codec is not Codec.LZ4:
            part = (
                XERIAL_HEADER + struct.pack(">i", 1) + b"\0" if codec is Codec.SNAPPY else deflate(codec, b"")
            )
            return part * chosen.choice((10, 4096, 40_000)) + whole
        if codec is Codec.LZ4:  # Empty blocks of the maximum size.
            return bytes.fromhex("04224d18607073") + struct.pack("<I", 1) * 1 + b"\0" * chosen.choice((1, 5))
        return deflate(codec, whole)  # A bomb within a bomb contains no records.

    def _content(self, *, large: bool) -> Content:
        """Return the bytes of records and the number of records in them."""
        chosen = self._random
        most = MAX_CONTENT_BYTES if large else 900_000
        size = chosen.choice(
            (0, 1, 100, 5000, 200_000, 900_000, 20 * 2**20, 60 * 2**20, MAX_CONTENT_BYTES + 9)
        )
        size = min(size, most + 9)
        filler = chosen.choice((b"\0", b"x", b"\xff", b"\n", b"\t", b"\\", b'"', b"\xc3\xa9"))
        text = filler * (size // len(filler))
        makers = (
            self._values,
            self._key,
            self._headers,
            self._records,
            self._named,
            self._several,
            self._broken,
        )
        return chosen.choice(makers)(text)

    @staticmethod
    def _values(text: bytes) -> Content:
        return record(text), 1

    @staticmethod
    def _key(text: bytes) -> Content:
        return record(b"last") + record(b"v", key=text, delta=1), 2

    def _headers(self, text: bytes) -> Content:
        most = self._random.choice((1, 1000, MAX_HEADERS, MAX_HEADERS + 1, len(text)))
        return record(headers=empty_headers(min(len(text) // 2, most))), 1

    def _records(self, text: bytes) -> Content:
        most = self._random.choice((10, 100_000, MAX_RECORDS, 2 * MAX_RECORDS))
        count = max(min(len(text) // 7, most), 1)
        return SHORTEST_RECORD * count, count

    @staticmethod
    def _named(text: bytes) -> Content:
        half = varint(len(text) // 2) + text[: len(text) // 2]
        return record(headers=varint(1) + half + half), 1

    def _several(self, text: bytes) -> Content:
        count = self._random.randint(1, 50)
        return b"".join(record(text[: len(text) // count], delta=delta) for delta in range(count)), count

    def _broken(self, text: bytes) -> Content:
        """Return a record with one changed byte."""
        data = bytearray(record(text[:5000]))
        data[self._random.randrange(min(len(data), 12))] = self._random.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(data), 1
