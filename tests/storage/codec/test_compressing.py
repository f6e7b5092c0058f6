"""Tests that compressing encoded batches gives the same bytes as encoding their records with the codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.codec.strategies import COMPRESSING, record_lists
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, compress_batches, decode, encode, encode_columns
from topicfs.storage.model import Record

LARGEST = 2**30


@given(st.lists(record_lists(), min_size=1, max_size=3), st.sampled_from(COMPRESSING))
def test_compressed_batches_are_those_of_encoding_again(lists, codec):
    """`compress_batches` writes the same bytes as encoding the records again with the codec."""
    plain, expected = bytearray(), bytearray()
    for records in lists:
        (batch,) = encode_columns(decode(encode(records))[0])
        plain += batch
        (again,) = encode_columns(decode(batch)[0], BatchStamp(codec=codec))
        expected += again

    assert expected == compress_batches(plain, codec, level=None, max_batch_bytes=LARGEST)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_level_is_taken(codec):
    """`compress_batches` uses the given level if the codec has levels."""
    batch = encode([Record(n, 0, None, b"value %d" % n) for n in range(50)])
    (expected,) = encode_columns(decode(batch)[0], BatchStamp(codec=codec, compression_level=1))

    assert expected == compress_batches(batch, codec, level=1, max_batch_bytes=LARGEST)


@pytest.mark.parametrize(
    "other",
    [
        encode([Record(0, 0, None, b"v")], BatchStamp(codec=Codec.GZIP)),
        encode([], base_offset=0, last_offset=3),
        encode([Record(0, 0, None, b"v")])[:-1],
        encode([Record(0, 0, None, b"v" * 1000)]),
    ],
    ids=["compressed", "empty", "torn", "large"],
)
def test_batches_that_cannot_be_compressed(other):
    """`compress_batches` returns None if any batch is compressed, empty, torn or too large."""
    plain = encode([Record(0, 0, None, b"v")])

    assert compress_batches(plain + other, Codec.ZSTD, level=None, max_batch_bytes=500) is None
