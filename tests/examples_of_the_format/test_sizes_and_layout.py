"""Tests of the sizes on disk of a record, an index and a new partition, as articles give them."""

from __future__ import annotations

import pytest

from tests.doubles.records import keyed
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode, varint


def test_one_record_key1_value1_takes_78_bytes():
    """A record key1/value1 takes 78 bytes: 61 for the batch header and 17 for the record."""
    assert 61 + 17 == len(encode(keyed((b"key1", b"value1"))))


def test_two_records_in_one_batch_take_95_bytes():
    """A batch of two records has one header: 61 + 17 + 17 bytes."""
    assert 61 + 17 + 17 == len(encode(keyed((b"key1", b"value1"), (b"key2", b"value2"))))


def test_an_append_adds_only_the_bytes_of_the_batch(tmp_path):
    """An append adds the bytes of the batch to the segment and no others."""
    engine = open_engine(tmp_path / "data")
    try:
        partition = engine.create_topic("t").partitions()[0]
        partition.append(encode(keyed((b"key1", b"value1"))))
        assert 78 == partition.status().log_bytes
        partition.append(encode(keyed((b"key1", b"value1"), (b"key2", b"value2"))))
        assert 78 + 95 == partition.status().log_bytes
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("number", "zigzag", "size"),
    [(4, 8, 1), (0, 0, 1), (-1, 1, 1), (63, 126, 1), (64, 128, 2), (-65, 129, 2), (2**31 - 1, 2**32 - 2, 5)],
)
def test_the_size_of_a_zigzag_varint_comes_from_its_leading_zeros(number, zigzag, size):
    """The size of a varint follows from the leading zeros of its zigzag number, (n << 1) ^ (n >> 31).

    Size = (38 - leading zeros) / 7 + leading zeros / 32. The number 4 takes 1 byte.
    """
    value = ((number << 1) ^ (number >> 31)) & 0xFFFF_FFFF
    leading_zeros = 32 - value.bit_length()
    assert (zigzag, size) == (value, (38 - leading_zeros) // 7 + leading_zeros // 32)
    assert size == len(varint(number))


def test_a_fresh_partition_on_disk(tmp_path):
    """A new partition has preallocated indexes, 43 bytes of metadata, and later an 8-byte epoch checkpoint."""
    data = tmp_path / "data"
    engine = open_engine(data)
    try:
        engine.create_topic("t").partitions()[0].append(encode(keyed((b"key1", b"value1"))))
        sizes = {path.name: path.stat().st_size for path in (data / "t-0").iterdir()}
        assert 10_485_760 == sizes["00000000000000000000.index"]
        assert 10_485_756 == sizes["00000000000000000000.timeindex"]
        assert 43 == sizes["partition.metadata"]
        assert b"0\n1\n0 0\n" == (data / "t-0" / "leader-epoch-checkpoint").read_bytes()
    finally:
        engine.close()
