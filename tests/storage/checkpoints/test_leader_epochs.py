"""Tests of leader epochs: assignment, lookup, truncation at both ends, and their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.checkpoints.leader_epochs import (
    EpochEnd,
    EpochEntry,
    LeaderEpochs,
    decode_epochs,
    encode_epochs,
)
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset

DIRECTORY = Path("/t-0")
FILE = DIRECTORY / "leader-epoch-checkpoint"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    return disk


def opened(disk: SimulatedDisk, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs.open(DIRECTORY, disk)
    for epoch, start_offset in entries:
        epochs.assign(epoch, Offset(start_offset))
    return epochs


def test_file_is_created_empty(disk: SimulatedDisk) -> None:
    """A new log's epoch file exists and has no bytes."""
    assert () == opened(disk).entries
    assert b"" == disk.read_bytes(FILE)


def test_bytes_of_the_file(disk: SimulatedDisk) -> None:
    """The file of a new partition holds epoch 0 from offset 0, in 8 bytes."""
    opened(disk, (0, 0))
    assert b"0\n1\n0 0\n" == disk.read_bytes(FILE)


def test_epochs_survive_reopening(disk: SimulatedDisk) -> None:
    """Row 145: a new instance reads the epochs that were assigned before."""
    opened(disk, (2, 6), (3, 11))
    assert ((2, 6), (3, 11)) == opened(disk).entries


def test_assigned_epoch_is_on_disk_at_once(disk: SimulatedDisk) -> None:
    """An epoch survives a crash right after `assign`."""
    disk.sync_directory(Path("/"))
    opened(disk, (2, 6))
    disk.crash(keep=0.0)
    assert ((2, 6),) == opened(disk).entries


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(1, 10), (1, 12)], [(1, 10)]),
        ([(1, 10), (1, 7)], [(1, 7)]),
        ([(1, 5), (2, 5)], [(2, 5)]),
        ([(2, 6), (1, 7)], [(1, 7)]),
        ([(1, 5), (2, 6), (3, 7), (1, 7)], [(1, 7)]),
        ([(1, 5), (2, 6), (3, 7), (4, 6)], [(1, 5), (4, 6)]),
        ([(1, 0), (2, 10), (3, 20), (2, 15)], [(1, 0), (2, 15)]),
    ],
)
def test_epochs_and_offsets_ascend(
    disk: SimulatedDisk, entries: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    """Row 143: a new entry replaces each entry whose epoch or start offset is not below that of the new entry."""
    assert expected == list(opened(disk, *entries).entries)


def test_assign_tells_whether_it_changed_anything(disk: SimulatedDisk) -> None:
    """Assigning the latest epoch again changes and writes nothing."""
    epochs = opened(disk, (1, 10))
    writes = len(disk.calls)
    assert not epochs.assign(1, Offset(10))
    assert not epochs.assign(1, Offset(11))
    assert writes == len(disk.calls)
    assert epochs.assign(2, Offset(11))


def test_negative_epochs_and_offsets_are_refused(disk: SimulatedDisk) -> None:
    """A negative epoch or offset raises ValueError and changes nothing."""
    epochs = opened(disk)
    for epoch, offset in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            epochs.assign(epoch, Offset(offset))
    assert () == epochs.entries


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (5, EpochEnd(5, Offset(17))),
        (6, None),
        (3, EpochEnd(2, Offset(13))),
        (2, EpochEnd(2, Offset(13))),
        (4, EpochEnd(4, Offset(15))),
        (1, EpochEnd(1, Offset(11))),
        (-1, EpochEnd(-1, Offset(11))),
    ],
)
def test_end_offset_for(disk: SimulatedDisk, epoch: int, expected: EpochEnd | None) -> None:
    """Row 144: an epoch ends where the next epoch starts. The latest epoch ends at the log's end.

    For an epoch later than the latest one, the end is unknown.
    """
    epochs = opened(disk, (2, 11), (4, 13), (5, 15))
    assert expected == epochs.end_offset_for(epoch, Offset(17))


def test_end_offset_without_entries(disk: SimulatedDisk) -> None:
    """A log without epochs has no end offset for any epoch."""
    assert opened(disk).end_offset_for(0, Offset(9)) is None


def test_epoch_for_offset(disk: SimulatedDisk) -> None:
    """An offset belongs to the last epoch that starts at or below it. An offset before the first epoch has no epoch."""
    epochs = opened(disk, (1, 5), (3, 8))
    assert [None, 1, 1, 3, 3] == [epochs.epoch_for_offset(Offset(offset)) for offset in (4, 5, 7, 8, 100)]


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (4, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (12, [(4, 12)]),
    ],
)
def test_truncation_from_the_start(
    disk: SimulatedDisk, start_offset: int, expected: list[tuple[int, int]]
) -> None:
    """Rows 74 and 145: entries that start at or below the new start become a single entry at the new start.

    The latest entry always stays.
    """
    epochs = opened(disk, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_start(Offset(start_offset))
    assert expected == list(epochs.entries)


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [
        (12, [(2, 6), (3, 8), (4, 11)]),
        (11, [(2, 6), (3, 8)]),
        (9, [(2, 6), (3, 8)]),
        (8, [(2, 6)]),
        (6, []),
        (0, []),
    ],
)
def test_truncation_from_the_end(
    disk: SimulatedDisk, end_offset: int, expected: list[tuple[int, int]]
) -> None:
    """Row 145: truncating removes the entries that start at or after the new end."""
    epochs = opened(disk, (2, 6), (3, 8), (4, 11))
    epochs.truncate_from_end(Offset(end_offset))
    assert expected == list(epochs.entries)


def test_truncation_is_written_by_flush(disk: SimulatedDisk) -> None:
    """Truncation changes only memory; `flush` writes the file."""
    epochs = opened(disk, (2, 6), (3, 8))
    epochs.truncate_from_end(Offset(8))
    assert epochs.dirty
    assert b"0\n2\n2 6\n3 8\n" == disk.read_bytes(FILE)
    epochs.flush()
    assert not epochs.dirty
    assert b"0\n1\n2 6\n" == disk.read_bytes(FILE)


def test_clear(disk: SimulatedDisk) -> None:
    """After `clear` a log has no epochs."""
    epochs = opened(disk, (2, 6))
    epochs.replace(())
    epochs.flush()
    assert (None, None) == (epochs.earliest, epochs.latest)
    assert b"0\n0\n" == disk.read_bytes(FILE)


def test_latest_and_earliest(disk: SimulatedDisk) -> None:
    """`earliest` and `latest` return the first and the last entry."""
    epochs = opened(disk, (2, 6), (3, 8))
    assert (EpochEntry(2, Offset(6)), EpochEntry(3, Offset(8))) == (epochs.earliest, epochs.latest)


def test_failed_write_is_tried_again(disk: SimulatedDisk) -> None:
    """If an epoch cannot be written, the file stays as it was, and a later `flush` writes the epoch."""
    epochs = opened(disk, (1, 0))
    disk.fail("sync", suffix=".tmp")
    with pytest.raises(OSError, match="leader-epoch"):
        epochs.assign(2, Offset(5))
    assert b"0\n1\n1 0\n" == disk.read_bytes(FILE)
    epochs.flush()
    assert b"0\n2\n1 0\n2 5\n" == disk.read_bytes(FILE)


def test_read_only_disk_is_not_written(disk: SimulatedDisk) -> None:
    """On a read-only disk epochs change only in memory. A missing file means that there are no entries."""
    epochs = LeaderEpochs.open(DIRECTORY, disk.read_only_view())
    epochs.assign(1, Offset(3))
    assert ((1, 3),) == epochs.entries
    assert not disk.exists(FILE)


def test_moved_directory(disk: SimulatedDisk) -> None:
    """After a rename of the directory the epoch file is written at its new path."""
    epochs = opened(disk, (1, 0))
    disk.rename(DIRECTORY, Path("/t-0.x-delete"))
    epochs.moved(Path("/t-0.x-delete"))
    epochs.assign(2, Offset(4))
    assert b"0\n2\n1 0\n2 4\n" == disk.read_bytes(Path("/t-0.x-delete/leader-epoch-checkpoint"))


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_files_without_entries(data: bytes) -> None:
    """An empty file, a file with only a version, and a count of 0 mean that there are no entries."""
    assert () == decode_epochs(data, file=FILE)


@pytest.mark.parametrize(
    "data",
    [b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1\n", b"0\n1\n1 0 0\n", b"0\n1\n1 0\n\n", b"0\nx\n",
     b"0\n1\na b\n", b"\xff",
     b"0\n1\n-1 0\n"],
)  # fmt: skip
def test_bad_files_are_corruption(data: bytes) -> None:
    """An invalid version, count, number of fields, number or encoding raises an error that names the file."""
    with pytest.raises(CorruptionError) as caught:
        decode_epochs(data, file=FILE)
    assert FILE == caught.value.file


def test_encoding_is_one_blank_and_one_newline() -> None:
    """Two entries are encoded byte for byte as a broker writes them."""
    entries = (EpochEntry(0, Offset(0)), EpochEntry(3, Offset(4503599627370496)))
    assert b"0\n2\n0 0\n3 4503599627370496\n" == encode_epochs(entries)
