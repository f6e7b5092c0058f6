"""Tests of topics and settings that are read from a cluster's metadata log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.directories.cluster_metadata import read_cluster_metadata
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, Record, Timestamp

DIRECTORY = Path("/metadata")

# Each record has frame version 1, type, version and fields. Strings and tags are encoded as in Kafka's
# flexible messages.
TOPIC = bytes.fromhex("01 02 00 07") + b"orders" + bytes(15) + b"\x07" + b"\x00"
OTHER_TOPIC = bytes.fromhex("01 02 00 06") + b"other" + bytes(15) + b"\x08" + b"\x00"
REMOVE_TOPIC = bytes.fromhex("01 09 00") + bytes(15) + b"\x07" + b"\x00"
SEGMENT_MS = (
    bytes.fromhex("01 04 00 02 07") + b"orders" + b"\x0b" + b"segment.ms" + b"\x05" + b"1000" + b"\x00"
)
NO_SEGMENT_MS = bytes.fromhex("01 04 00 02 07") + b"orders" + b"\x0b" + b"segment.ms" + b"\x00" + b"\x00"
RETENTION_MS = (
    bytes.fromhex("01 04 00 02 07") + b"orders" + b"\x0d" + b"retention.ms" + b"\x03" + b"-1" + b"\x00"
)
BROKER_SETTING = bytes.fromhex("01 04 00 04 02") + b"1" + b"\x0b" + b"segment.ms" + b"\x02" + b"5" + b"\x00"
NO_OP = bytes.fromhex("01 14 00 00")


def written(disk: SimulatedDisk, name: str, first: int, *values: bytes, end: bytes = b"") -> SimulatedDisk:
    """Write a file with one batch of `values`, followed by the bytes `end`."""
    records = [
        Record(Offset(first + number), Timestamp(0), None, value) for number, value in enumerate(values)
    ]
    disk.write_bytes(DIRECTORY / name, bytes(encode(records)) + end)
    return disk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    return disk


def test_topics_and_their_settings(disk: SimulatedDisk) -> None:
    """The last record of each setting counts. Settings of brokers and other records are skipped."""
    written(disk, f"{0:020d}.log", 0, NO_OP, TOPIC, SEGMENT_MS, RETENTION_MS, BROKER_SETTING, NO_SEGMENT_MS)
    image = read_cluster_metadata(disk, DIRECTORY)
    assert {"orders": "AAAAAAAAAAAAAAAAAAAABw"} == image.topic_ids
    assert {"orders": {"retention.ms": "-1"}} == image.settings


def test_a_removed_topic_takes_its_settings_along(disk: SimulatedDisk) -> None:
    """A record that removes a topic names the topic's ID, and removes the topic's settings as well."""
    written(disk, f"{0:020d}.log", 0, TOPIC, SEGMENT_MS, REMOVE_TOPIC, OTHER_TOPIC)
    image = read_cluster_metadata(disk, DIRECTORY)
    assert {"other": "AAAAAAAAAAAAAAAAAAAACA"} == image.topic_ids
    assert {} == image.settings


def test_a_snapshot_stands_for_what_is_before_it(disk: SimulatedDisk) -> None:
    """The newest snapshot is read first. Then the log is read from the snapshot's end offset on."""
    written(disk, f"{2:020d}-{1:010d}.checkpoint", 0, OTHER_TOPIC)
    written(disk, f"{4:020d}-{1:010d}.checkpoint", 0, TOPIC, RETENTION_MS)
    written(disk, f"{0:020d}.log", 0, OTHER_TOPIC, NO_OP, TOPIC, RETENTION_MS, SEGMENT_MS)
    image = read_cluster_metadata(disk, DIRECTORY)
    assert {"orders": "AAAAAAAAAAAAAAAAAAAABw"} == image.topic_ids
    assert {"orders": {"retention.ms": "-1", "segment.ms": "1000"}} == image.settings


def test_control_batches_and_a_torn_end_are_passed_over(disk: SimulatedDisk) -> None:
    """Raft's control batches are skipped, and the log may end within a batch after a kill."""
    leader_change = encode(
        [Record(Offset(0), Timestamp(0), bytes.fromhex("00000002"), bytes(8))],
        BatchStamp(control=True),
    )
    torn = bytes(encode([Record(Offset(2), Timestamp(0), None, TOPIC)]))[:-3]
    disk.write_bytes(
        DIRECTORY / f"{0:020d}.log",
        bytes(leader_change) + bytes(encode([Record(Offset(1), Timestamp(0), None, OTHER_TOPIC)])) + torn,
    )
    assert {"other": "AAAAAAAAAAAAAAAAAAAACA"} == read_cluster_metadata(disk, DIRECTORY).topic_ids


@pytest.mark.parametrize("value", [TOPIC[:-3], TOPIC + b"x", b"\xff" * 8, b""])
def test_a_record_that_cannot_be_read(disk: SimulatedDisk, value: bytes) -> None:
    """A malformed record raises CorruptionError with the file's name."""
    written(disk, f"{0:020d}.log", 0, value)
    with pytest.raises(CorruptionError, match=r"/metadata/0{20}.log: .* that cannot be read"):
        read_cluster_metadata(disk, DIRECTORY)
