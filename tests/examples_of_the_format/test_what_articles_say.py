"""Tests of statements in articles about batches, appends and recovery, with the bytes that this project writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from pathlib import Path

import pytest

import topicfs
from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.logs import LogOnDisk
from tests.doubles.records import batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import read_header, seal
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.indexes.offset_index import OffsetIndex
from topicfs.storage.indexes.time_index import TimeIndex
from topicfs.storage.model import Offset
from topicfs.storage.partitioning import coordinator_partition, java_string_hash, partition_of_key

NOW = 1_700_000_000_000
HEADER_BYTES = 61
CHECKSUM_AT, COVERED_FROM = 17, 21
UNCOVERED = (*range(8), *range(12, 16))
"""Positions that the checksum does not cover: base offset and leader epoch, which a leader sets after the producer
has computed the checksum.
"""


def marked(attributes: int) -> bytearray:
    """Return a batch of one record with these attribute bits and a matching checksum."""
    data = batch(b"v", timestamp=NOW)
    data[COVERED_FROM : COVERED_FROM + 2] = attributes.to_bytes(2, "big")
    seal(data, 0, len(data))
    return data


def test_attribute_bit_6_makes_the_base_timestamp_a_delete_horizon():
    """Attribute bit 6 makes the base timestamp the time after which the batch's tombstones may be removed."""
    assert [None, NOW] == [read_header(marked(bits)).delete_horizon_ms for bits in (0, 1 << 6)]


@pytest.mark.parametrize("at", UNCOVERED)
def test_the_checksum_covers_neither_the_base_offset_nor_the_leader_epoch(at: int):
    """A leader sets base offset and leader epoch in place, and the producer's checksum stays valid."""
    data = batch(b"v", timestamp=NOW)
    data[at] ^= 1
    assert [b"v"] == [record.value for record in decode(data)[0]]


def test_the_checksum_covers_every_byte_from_the_attributes_on():
    """A flipped bit from the attributes on, or in the checksum itself, is detected as corruption."""
    whole = batch(b"v", timestamp=NOW)
    for at in range(CHECKSUM_AT, len(whole)):
        data = bytearray(whole)
        data[at] ^= 1
        with pytest.raises(CorruptBatchError):
            decode(data)


@pytest.mark.parametrize(("value_bytes", "length_bytes"), [(1, 1), (57, 1), (58, 2), (8_184, 2), (8_185, 3)])
def test_a_record_begins_with_a_varint_of_its_size_and_a_byte_of_attributes(value_bytes, length_bytes):
    """A record begins with its size, which is a varint of one to five bytes, and with an attributes byte of 0."""
    data = batch(b"v" * value_bytes)
    record = data[HEADER_BYTES:]
    zigzag = sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(record[:length_bytes]))
    assert len(record) - length_bytes == zigzag >> 1
    assert 0 == record[length_bytes]


def test_the_header_has_the_largest_time_of_its_records_and_the_first():
    """The header has the time of the first record and the largest time, because times in a batch need not ascend."""
    header = read_header(batch(b"a", b"b", b"c", timestamp=[NOW + 5, NOW + 9, NOW + 7]))
    assert (NOW + 5, NOW + 9) == (header.base_timestamp, header.max_timestamp)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_offsets_are_assigned_without_recompression(codec: Codec):
    """Record offsets are relative to the base offset, so a leader stores the bytes from the magic on unchanged."""
    on_disk = LogOnDisk()
    on_disk.clock.advance(NOW)
    on_disk.log.append(batch(b"before", timestamp=NOW))
    sent = batch(b"a" * 100, b"b" * 100, timestamp=NOW, stamp=BatchStamp(codec=codec))
    taken = bytes(sent)
    assert 1 == on_disk.log.append(sent).base_offset
    kept = bytes(on_disk.log.read(Offset(1), max_bytes=1000).data)
    assert taken[16:] == kept[16:]
    assert [1, 2] == [record.offset for record in decode(kept)[0]]


@pytest.fixture
def switching() -> Iterator[None]:
    """Make threads switch as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switching")
def test_appends_of_many_threads_get_offsets_of_their_own(tmp_path):
    """Offsets are assigned under the log's lock, so each append returns its own offsets and none is assigned twice."""
    engine = open_engine(tmp_path / "data")
    try:
        partition = engine.create_topic("t").partitions()[0]

        def append(writer: int) -> list[tuple[int, str]]:
            answers = []
            for number in range(300):
                line = f"{writer} {number}"
                answers.append((int(append_lines(partition, f"{line}\n").base_offset), line))
            return answers

        with ThreadPoolExecutor(4) as threads:
            answers = sorted(answer for own in threads.map(append, range(4)) for answer in own)
        assert list(enumerate(read_lines(partition))) == answers
    finally:
        engine.close()


def test_a_recovery_keeps_sound_batches_above_the_high_watermark():
    """Recovery begins at the recovery point and ends at the first invalid batch, and ignores the high watermark."""
    disk = SimulatedDisk()
    partition = engine_on(disk).create_topic("t").partitions()[0]
    for number in range(4):
        append_lines(partition, f"{number}\n")
    disk.write_bytes(DATA / "replication-offset-checkpoint", b"0\n1\nt 0 1\n")
    # The engine is not closed, as in a killed process.
    disk.crash(keep=1.0)
    partition = engine_on(disk).topic("t").partitions()[0]
    assert ["0", "1", "2", "3"] == read_lines(partition)


def test_a_segments_bytes_are_shown_from_a_mapping_and_lines_are_not(tmp_path):
    """Files in `segments/` are served from a memory map of the log; text lines are rendered and exist in no file."""
    engine = open_engine(tmp_path / "data")
    try:
        partition = engine.create_topic("t").partitions()[0]
        append_lines(partition, "a\nb\n")
        content = partition.open_segment_file("00000000000000000000.log")
        assert isinstance(content.obj, mmap)
        assert (tmp_path / "data" / "t-0" / "00000000000000000000.log").read_bytes() == content
        assert b"a\nb\n" not in bytes(content)
    finally:
        content.release()
        engine.close()


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_both_indexes_are_searched_in_a_mapping(tmp_path: Path, kind: type[OffsetIndex | TimeIndex]):
    """Both index classes search a memory map, as a broker's index classes do."""
    index = kind(NativeFileSystem().open(tmp_path / "index", create=True), Offset(0), new_bytes=4096)
    index.append(*((Offset(5), 100) if kind is OffsetIndex else (NOW, Offset(5))))
    used, entries = index.slots.used()
    assert (1, mmap) == (entries, type(used.obj))
    used.release()


def test_keys_1_2_and_3_go_elsewhere_by_murmur2_than_by_their_hash_code():
    """murmur2 puts the keys 1, 2 and 3 into partitions 0, 2 and 2; their hash codes modulo 3 are 1, 2 and 0."""
    assert [1, 2, 0] == [(java_string_hash(key) & 0x7FFFFFFF) % 3 for key in "123"]
    assert [0, 2, 2] == [partition_of_key(key.encode(), 3) for key in "123"]


def test_a_coordinators_batch_has_no_producer_and_the_base_sequence_0(tmp_path: Path):
    """A commit's batch has base sequence 0, although it has no producer id. Other batches without one have -1."""
    with topicfs.open(tmp_path / "data") as topics:
        topics.create("t").append(b"v")
        with topics.group("g").join("t") as member:
            assert b"v" == next(iter(member)).value
            member.commit()
    name = "00000000000000000000.log"
    own = tmp_path / "data" / f"__consumer_offsets-{coordinator_partition('g')}" / name
    assert [(-1, -1), (-1, 0)] == [
        (header.producer_id, header.base_sequence)
        for header in (read_header(log.read_bytes()) for log in (tmp_path / "data" / "t-0" / name, own))
    ]


def test_a_reader_keeps_the_segments_with_which_it_began():
    """A reader keeps the segments with which it began, because a roll gives the log a new tuple of segments."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    began = on_disk.log.chain
    on_disk.log.appender.roll()
    on_disk.log.append(batch(b"b"))
    assert [(0,), (0, 1)] == [chain.base_offsets for chain in (began, on_disk.log.chain)]
    assert began.segments == on_disk.log.chain.segments[:1]
