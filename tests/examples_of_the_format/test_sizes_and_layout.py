"""The examples by which articles show what a record, an index and a fresh partition take on disk."""

from __future__ import annotations

import pytest

from storage.codec.batch import assign_offsets
from storage.codec.records import encode, varint
from storage.coordinators.placement import coordinator_partition
from storage.disk.native import NativeFileSystem
from storage.inspect.dump.files import dump
from storage.inspect.dump.options import DumpOptions
from storage.manager import open_engine
from storage.model import Offset, Record, Timestamp

NOW = Timestamp(1_700_000_000_000)


def records(*pairs: tuple[bytes, bytes]) -> list[Record]:
    return [Record(Offset(at), NOW, key, value) for at, (key, value) in enumerate(pairs)]


def test_one_record_key1_value1_takes_78_bytes():
    """61 bytes of batch header and 17 of record."""
    assert 61 + 17 == len(encode(records((b"key1", b"value1"))))


def test_two_records_in_one_batch_take_95_bytes():
    """The header is paid once: 61 + 17 + 17."""
    assert 61 + 17 + 17 == len(encode(records((b"key1", b"value1"), (b"key2", b"value2"))))


def test_both_stand_so_in_the_log(tmp_path):
    """Appending a batch adds exactly its bytes to the segment."""
    engine = open_engine(tmp_path / "data")
    try:
        partition = engine.create_topic("t").partitions()[0]
        partition.append(encode(records((b"key1", b"value1"))))
        assert 78 == partition.status().log_bytes
        partition.append(encode(records((b"key1", b"value1"), (b"key2", b"value2"))))
        assert 78 + 95 == partition.status().log_bytes
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("number", "zigzag", "size"),
    [(4, 8, 1), (0, 0, 1), (-1, 1, 1), (63, 126, 1), (64, 128, 2), (-65, 129, 2), (2**31 - 1, 2**32 - 2, 5)],
)
def test_the_size_of_a_zigzag_varint_comes_from_its_leading_zeros(number, zigzag, size):
    """V = (n << 1) ^ (n >> 31); (38 - leading zeros) / 7 + leading zeros / 32: 4 is 8, has 28 zeros, takes 1 byte."""
    value = ((number << 1) ^ (number >> 31)) & 0xFFFF_FFFF
    leading_zeros = 32 - value.bit_length()
    assert (zigzag, size) == (value, (38 - leading_zeros) // 7 + leading_zeros // 32)
    assert size == len(varint(number))


def test_a_fresh_partition_on_disk(tmp_path):
    """Preallocated indexes, an epoch checkpoint of 8 bytes once written, 43 bytes of metadata."""
    data = tmp_path / "data"
    engine = open_engine(data)
    try:
        engine.create_topic("t").partitions()[0].append(encode(records((b"key1", b"value1"))))
        sizes = {path.name: path.stat().st_size for path in (data / "t-0").iterdir()}
        assert 10_485_760 == sizes["00000000000000000000.index"]
        assert 10_485_756 == sizes["00000000000000000000.timeindex"]
        assert 43 == sizes["partition.metadata"]
        assert b"0\n1\n0 0\n" == (data / "t-0" / "leader-epoch-checkpoint").read_bytes()
    finally:
        engine.close()


def test_the_group_test_consumer_group_lives_in_partition_31_of_50():
    """The hash code of the string, modulo the partitions of __consumer_offsets."""
    assert 31 == coordinator_partition("test-consumer-group", 50)


@pytest.mark.parametrize(("value_size", "batch_size"), [(282, 375), (32, 123)])
def test_a_group_metadata_record_as_dumped(tmp_path, value_size, batch_size):
    """KeySize 23 (a type and a group of 19 letters) with a value of 282 makes 375 bytes; the empty group's 32, 123."""
    key = b"\0\2" + b"\0\x13" + b"test-consumer-group"
    batch = encode([Record(Offset(0), NOW, key, b"g" * value_size)])
    assign_offsets(batch, 0, base_offset=0, leader_epoch=0)
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(batch)
    lines = [line.text for line in dump([str(segment)], DumpOptions(deep_iteration=True), NativeFileSystem())]
    assert f" position: 0 CreateTime: {NOW} size: {batch_size} magic: 2 compresscodec: none crc: " in lines[2]
    assert (
        f"| offset: 0 CreateTime: {NOW} keySize: 23 valueSize: {value_size} sequence: -1 headerKeys: []"
        == lines[3]
    )
