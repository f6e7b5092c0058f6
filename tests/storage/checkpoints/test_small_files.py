"""Tests of atomic replacement, offset checkpoints, partition.metadata, meta.properties, and the clean marker."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean, mark_clean, remove_mark
from topicfs.storage.checkpoints.identifiers import decode_id, encode_id, new_id
from topicfs.storage.checkpoints.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    read_meta_properties,
    write_meta_properties,
)
from topicfs.storage.checkpoints.offset_checkpoint import decode_offsets, read_offsets, write_offsets
from topicfs.storage.checkpoints.partition_metadata import (
    decode_partition_metadata,
    read_topic_id,
    write_topic_id,
)
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, Timestamp, TopicPartition

DATA = Path("/data")
FILE = DATA / "recovery-point-offset-checkpoint"
TOPIC_ID = "1EvPSKI_SvihSIy3lMKMvg"
META_PROPERTIES = b"""#
#Sat Nov 21 04:03:27 UTC 2026
node.id=1
directory.id=MMIwBAUIVlUP3MeynQaJLA
version=1
cluster.id=_uqHDrtZRiWyQpGqbURDug
"""


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    disk.sync_directory(Path("/"))
    return disk


@pytest.mark.parametrize("seed", range(20))
def test_atomic_write_survives_power_loss(seed: int) -> None:
    """A crash after any step of `write_atomically` leaves either the old or the new content."""
    for steps in range(6):
        disk = SimulatedDisk(seed=seed)
        disk.make_directory(DATA)
        disk.sync_directory(Path("/"))
        write_atomically(disk, FILE, b"old" * 700)
        for operation in ("write_bytes", "open", "truncate", "pwrite", "sync", "rename", "sync_directory")[
            steps:
        ]:
            disk.fail(operation, times=9)
        with pytest.raises(OSError, match="Input/output"):
            write_atomically(disk, FILE, b"new" * 900)
        disk.crash()
        assert disk.read_bytes(FILE) in (b"old" * 700, b"new" * 900)


def test_atomic_write_is_durable(disk: SimulatedDisk) -> None:
    """After `write_atomically` has returned, the new content survives any crash."""
    write_atomically(disk, FILE, b"old")
    write_atomically(disk, FILE, b"new")
    disk.crash(keep=0.0)
    assert b"new" == disk.read_bytes(FILE)
    assert list(disk.tree()) == [str(FILE)]


def test_offsets_as_a_broker_writes_them(disk: SimulatedDisk) -> None:
    """A checkpoint has a version, a count, and lines of topic, partition and offset, separated by single blanks."""
    offsets = {TopicPartition("g-lz4", 0): Offset(400), TopicPartition("t", 1): Offset(1)}
    write_offsets(disk, FILE, offsets)
    assert b"0\n2\ng-lz4 0 400\nt 1 1\n" == disk.read_bytes(FILE)
    assert offsets == read_offsets(disk, FILE)


def test_missing_and_empty_checkpoints_have_no_offsets(disk: SimulatedDisk) -> None:
    """A missing file, an empty file, and a file with only a version mean that there are no entries."""
    assert {} == read_offsets(disk, FILE)
    for data in (b"", b"0\n", b"0\n0\n"):
        assert {} == decode_offsets(data, file=FILE)


def test_readers_take_any_blanks_between_fields() -> None:
    """Any number of blanks may separate two fields."""
    assert decode_offsets(b"0\n1\nt \t 3   7\n", file=FILE) == {TopicPartition("t", 3): Offset(7)}


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b"1\n0\n", 0),
        (b"x\n", 0),
        (b"0\nmany\n", 2),
        (b"0\n1\nt 0\n", 4),
        (b"0\n1\nt 0 1 2\n", 4),
        (b"0\n2\nt 0 1\n", 2),
        (b"0\n1\nt 0 1\n\n", 10),
        (b"0\n1\n t 0 1\n", 4),
        (b"0\n1\nt 0 \xff\n", 4),
    ],
)
def test_malformed_checkpoints_are_corruption(data: bytes, position: int) -> None:
    """The error for a malformed checkpoint names the file and the position of the fault."""
    with pytest.raises(CorruptionError) as caught:
        decode_offsets(data, file=FILE)
    assert (FILE, position) == (caught.value.file, caught.value.position)


def test_topic_id_file(disk: SimulatedDisk) -> None:
    """Row 148: partition.metadata has 43 bytes without a final newline. A missing file means that there is no ID."""
    assert read_topic_id(disk, DATA) is None
    write_topic_id(disk, DATA, TOPIC_ID)
    assert b"version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg" == disk.read_bytes(DATA / "partition.metadata")
    assert 43 == disk.size(DATA / "partition.metadata")
    assert TOPIC_ID == read_topic_id(disk, DATA)


def test_topic_id_never_changes(disk: SimulatedDisk) -> None:
    """Rows 64 and 148: writing the same ID again does nothing. A different ID raises an error and changes nothing."""
    write_topic_id(disk, DATA, TOPIC_ID)
    calls = [call for call in disk.calls if call[0] == "rename"]
    write_topic_id(disk, DATA, TOPIC_ID)
    assert calls == [call for call in disk.calls if call[0] == "rename"]
    with pytest.raises(CorruptionError, match=TOPIC_ID):
        write_topic_id(disk, DATA, "MMIwBAUIVlUP3MeynQaJLA")
    assert TOPIC_ID == read_topic_id(disk, DATA)


@pytest.mark.parametrize(
    "data",
    [b"", b"version: -1\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg", b"version: 0", b"version: 0\ntopic_id: short",
     b"\xff\xfe",     b"version 0"],
)  # fmt: skip
def test_malformed_topic_ids_are_corruption(data: bytes) -> None:
    """Row 148: a malformed partition.metadata raises an error that names the file."""
    with pytest.raises(CorruptionError, match=r"partition\.metadata"):
        decode_partition_metadata(data, file=DATA / "partition.metadata")


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_later_version_of_the_topic_id_is_read(version: int) -> None:
    """topicfs reads a partition.metadata of a newer version, as a downgraded broker does."""
    data = f"version: {version}\ntopic_id: {TOPIC_ID}\nmore: 1".encode()
    assert TOPIC_ID == decode_partition_metadata(data, file=DATA / "partition.metadata")


def test_ids_are_kafkas() -> None:
    """An ID is 128 bits as base64url: 22 characters without padding."""
    unique = decode_id(TOPIC_ID)
    assert TOPIC_ID == encode_id(unique)
    assert UUID(int=1) == decode_id("AAAAAAAAAAAAAAAAAAAAAQ")


def test_new_ids_are_no_options_and_not_reserved() -> None:
    """`new_id` makes another ID if an ID is reserved or begins with a dash.

    A shell command would take an ID with a dash for an option.
    """
    dash = UUID(bytes=b"\xf8" + b"\0" * 15)
    good = UUID(int=1 << 100)
    drawn = iter([dash, UUID(int=0), UUID(int=1), good])
    assert encode_id(dash).startswith("-")
    assert encode_id(good) == new_id(lambda: next(drawn))


def test_meta_properties_of_a_broker() -> None:
    """A real broker's meta.properties is read field by field."""
    expected = MetaProperties(
        cluster_id="_uqHDrtZRiWyQpGqbURDug", node_id=1, directory_id="MMIwBAUIVlUP3MeynQaJLA"
    )
    assert expected == decode_meta_properties(META_PROPERTIES, file=DATA)


def test_meta_properties_are_written_as_a_broker_does(disk: SimulatedDisk) -> None:
    """meta.properties equals a broker's file byte for byte if the values and the time of writing are the same."""
    meta = decode_meta_properties(META_PROPERTIES, file=DATA)
    write_meta_properties(disk, DATA, meta, written_at=Timestamp(1_795_233_807_000))
    assert META_PROPERTIES == disk.read_bytes(DATA / "meta.properties")
    assert meta == read_meta_properties(disk, DATA)


def test_meta_properties_of_version_0() -> None:
    """Version 0 requires no field, and names the node's ID broker.id."""
    assert decode_meta_properties(b"version=0\nbroker.id=3\n", file=DATA) == MetaProperties(None, 3, None, 0)
    assert decode_meta_properties(b"version=0\n", file=DATA) == MetaProperties(None, None, None, 0)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "version None"),
        (b"version=2\n", "version 2"),
        (b"version=x\n", "version=x is not a number"),
        (b"version=1\nnode.id=1\n", "cluster.id missing"),
        (b"version=1\ncluster.id=x\n", "node.id missing"),
        (b"version=1\ncluster.id=\\u00\n", "escape"),
    ],
)
def test_malformed_meta_properties_are_corruption(data: bytes, cause: str) -> None:
    """A malformed meta.properties raises an error that names the fault."""
    with pytest.raises(CorruptionError) as caught:
        decode_meta_properties(data, file=DATA)
    assert cause in str(caught.value)


def test_marker_is_kafkas_and_durable(disk: SimulatedDisk) -> None:
    """Row 147: the marker is JSON with a version and a broker epoch, and survives a crash right after it is written."""
    assert not is_marked_clean(disk, DATA)
    mark_clean(disk, DATA)
    disk.crash(keep=0.0)
    assert b'{"version":0,"brokerEpoch":-1}' == disk.read_bytes(DATA / ".kafka_cleanshutdown")
    assert is_marked_clean(disk, DATA)


def test_taken_marker_is_gone_for_good(disk: SimulatedDisk) -> None:
    """Row 32: a crash does not bring back a removed marker."""
    mark_clean(disk, DATA)
    assert remove_mark(disk, DATA)
    disk.crash(keep=0.0)
    assert not remove_mark(disk, DATA)


@pytest.mark.parametrize(
    "content",
    [b'{"version":0,"brokerEpoch":1355}', b'{"version":1,"brokerEpoch":7,"unknown":true}', b"[]", b""],
)
def test_a_marker_counts_whatever_it_says(disk: SimulatedDisk, content: bytes) -> None:
    """Row 147: an existing marker means a clean shutdown, whatever the marker's content is.

    The content may have a broker's epoch or unknown fields, or be empty.
    """
    disk.write_bytes(DATA / ".kafka_cleanshutdown", content)
    assert is_marked_clean(disk, DATA)
    assert remove_mark(disk, DATA)
    assert not is_marked_clean(disk, DATA)
