"""Tests that a flipped bit in header fields without a checksum is repaired, and that no record is lost."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of
from tests.doubles.records import batch, sized_batch
from tests.doubles.simulated_disk import SimulatedFile
from topicfs.storage.codec.batch import scan
from topicfs.storage.model import Position

pytestmark = pytest.mark.slow

RECORDS = 12
"""The number of records. Each record is a batch, and three batches make a segment."""

BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC = range(64), range(64, 96), range(96, 128), range(128, 136)
"""The bits of each header field, counted from the highest bit of the header's first byte."""


def filled() -> LogOnDisk:
    on_disk = LogOnDisk(internal_segment_bytes=300, index_interval_bytes=0)
    for number in range(RECORDS):
        on_disk.log.append(sized_batch(100, timestamp=1 + number))
    on_disk.log.close()
    return on_disk


def logs(on_disk: LogOnDisk) -> dict[str, bytes]:
    return {name: on_disk.content(name) for name in on_disk.names() if name.endswith(".log")}


def flip(on_disk: LogOnDisk, record: int, bit: int) -> None:
    name = f"{record - record % 3:020d}.log"
    content = bytearray(on_disk.content(name))
    content[record % 3 * 100 + bit // 8] ^= 0x80 >> bit % 8
    on_disk.write(name, bytes(content))


@pytest.mark.parametrize("record", range(RECORDS - 1))
def test_a_base_offset_is_repaired_from_its_neighbors(record: int) -> None:
    """A flipped bit of any base offset except the last one is repaired from the neighbors."""
    on_disk = filled()
    whole = logs(on_disk)
    for bit in BASE_OFFSET:
        flip(on_disk, record, bit)
        log = on_disk.load(clean=False)
        assert (RECORDS, list(range(RECORDS))) == (log.log_end_offset, offsets_of(log)), f"bit {bit}"
        log.close()
        assert whole == {name: data for name, data in logs(on_disk).items() if data}, f"bit {bit}"


def test_the_last_base_offset_is_repaired_only_if_impossible() -> None:
    """The last base offset is repaired only if it is impossible.

    A larger base offset is possible, because a gap may come before the last batch.
    """
    on_disk = filled()
    whole = logs(on_disk)
    last = RECORDS - 1
    for bit in BASE_OFFSET:
        flip(on_disk, last, bit)
        found = last ^ 1 << 63 - bit
        log = on_disk.load(clean=False)
        stays = last < found < 2**31
        assert [*range(last), found if stays else last] == offsets_of(log), f"bit {bit}"
        log.close()
        if stays:
            flip(on_disk, last, bit)
        assert whole == logs(on_disk), f"bit {bit}"


def test_a_neighbor_that_may_be_wrong_repairs_nothing() -> None:
    """The last base offset is not repaired if the previous batch may be wrong."""
    on_disk = gapped(3, 5, 17, 90)
    name = f"{0:020d}.log"
    whole = on_disk.content(name)
    third, fourth = (whole.index(offset.to_bytes(8, "big")) for offset in (17, 90))
    for value, position in ((103, third), (104 ^ 32, fourth)):
        whole = whole[:position] + value.to_bytes(8, "big") + whole[position + 8 :]
    on_disk.write(name, whole)
    log = on_disk.load(clean=False)
    assert [3, 5, 103] == offsets_of(log)


@pytest.mark.parametrize("bit", [0x80, 0x02])
@pytest.mark.parametrize("record", [0, 4, RECORDS - 1])
def test_a_magic_that_ends_a_brokers_log_is_repaired_and_reported(
    record: int, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A magic that would end the log in a broker is repaired, with a warning.

    A broker reads 0x82 as a negative number and 0 as an old format.
    """
    on_disk = filled()
    whole = logs(on_disk)
    flip(on_disk, record, MAGIC[8 - bit.bit_length()])
    with caplog.at_level(logging.WARNING):
        log = on_disk.load(clean=False)
    name = f"{record - record % 3:020d}.log"
    assert [
        f"{DIRECTORY}/{name}: position {record % 3 * 100}: magic {2 ^ bit} does not fit; its neighbors and checksum require 2"
    ] == caplog.messages
    assert list(range(RECORDS)) == offsets_of(log)
    log.close()
    assert whole == logs(on_disk)
    found = scan(on_disk.content(name), check_crc=True)
    assert (3, None) == (len(found), found.problem)


@pytest.mark.parametrize("record", range(RECORDS))
def test_a_magic_is_found_by_the_checksum(record: int) -> None:
    """A magic is repaired if the checksum of format v2 is valid, even in the last batch."""
    on_disk = filled()
    whole = logs(on_disk)
    for bit in MAGIC:
        flip(on_disk, record, bit)
        log = on_disk.load(clean=False)
        assert list(range(RECORDS)) == offsets_of(log), f"bit {bit}"
        log.close()
        assert whole == logs(on_disk), f"bit {bit}"


@pytest.mark.parametrize("record", [0, 4, RECORDS - 1])
def test_a_leader_epoch_stays_as_it_is(record: int) -> None:
    """A leader epoch with a flipped bit stays, because its old value is unknown. A broker keeps it as well."""
    for bit in LEADER_EPOCH:
        on_disk = filled()
        flip(on_disk, record, bit)
        damaged = logs(on_disk)
        log = on_disk.load(clean=False)
        assert list(range(RECORDS)) == offsets_of(log), f"bit {bit}"
        log.close()
        assert damaged == logs(on_disk)


@pytest.mark.parametrize("record", [0, 4, RECORDS - 1])
def test_a_length_is_repaired_by_the_checksum(record: int) -> None:
    """A wrong length is repaired if changing one bit of the length gives a valid checksum.

    A broker truncates the log at such a batch.
    """
    on_disk = filled()
    whole = logs(on_disk)
    for bit in LENGTH:
        flip(on_disk, record, bit)
        log = on_disk.load(clean=False)
        assert list(range(RECORDS)) == offsets_of(log), f"bit {bit}"
        log.close()
        assert whole == logs(on_disk), f"bit {bit}"


def test_two_bits_of_a_length_end_the_log() -> None:
    """A length with two flipped bits ends the log, as in a broker."""
    on_disk = filled()
    flip(on_disk, 4, LENGTH[28])
    flip(on_disk, 4, LENGTH[30])
    assert [0, 1, 2, 3] == offsets_of(on_disk.load(clean=False))


def test_zeros_of_a_preallocated_file_are_not_read_for_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery does not search the zeros of a preallocated file for a length. For many logs that would take minutes."""
    on_disk = LogOnDisk(internal_segment_bytes=1 << 20, preallocate=True)
    on_disk.log.append(sized_batch(100))
    read = 0
    pread = SimulatedFile.pread

    def counted(file: SimulatedFile, size: int, position: Position) -> bytes:
        nonlocal read
        data = pread(file, size, position)
        read += len(data)
        return data

    monkeypatch.setattr(SimulatedFile, "pread", counted)
    assert [0] == offsets_of(on_disk.kill())
    assert read < 4 << 20  # Recovery reads the segment twice.


@pytest.mark.parametrize("bit", LENGTH)
def test_a_cleanly_closed_log_is_repaired_and_not_truncated(bit: int) -> None:
    """After a clean close the last batch is repaired, instead of being cut off."""
    on_disk = filled()
    whole = logs(on_disk)
    flip(on_disk, RECORDS - 1, bit)
    log = on_disk.load(clean=True)
    assert list(range(RECORDS)) == offsets_of(log)
    log.close()
    assert whole == logs(on_disk)


@pytest.mark.parametrize("number", range(5))
def test_batches_of_many_records_may_overlap(number: int) -> None:
    """A flipped bit in a base offset is repaired even if it makes the offset ranges of batches overlap."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    for first in range(0, 60, 10):
        on_disk.log.append(batch(*(b"%d" % at for at in range(first, first + 10)), timestamp=1))
    on_disk.log.close()
    whole = on_disk.content(f"{0:020d}.log")
    at = next(at for at in range(len(whole)) if whole[at : at + 8] == (10 * number).to_bytes(8, "big"))
    for bit in range(48, 64):
        damaged = bytearray(whole)
        damaged[at + bit // 8] ^= 0x80 >> bit % 8
        on_disk.write(f"{0:020d}.log", bytes(damaged))
        log = on_disk.load(clean=False)
        assert list(range(60)) == offsets_of(log), f"bit {bit}"
        log.close()
        assert whole == on_disk.content(f"{0:020d}.log")


def test_a_repair_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A repair logs the file, the position and both values."""
    on_disk = filled()
    flip(on_disk, 4, 63)
    flip(on_disk, 7, 128 + 5)
    with caplog.at_level(logging.WARNING):
        on_disk.load(clean=False)
    assert [
        f"{DIRECTORY}/{3:020d}.log: position 100: base offset 5 does not fit; its neighbors and checksum require 4",
        f"{DIRECTORY}/{6:020d}.log: position 100: magic 6 does not fit; its neighbors and checksum require 2",
    ] == caplog.messages


def test_several_flipped_bits_are_repaired() -> None:
    """In a log without gaps several flipped bits are repaired, unless two adjacent batches are damaged."""
    on_disk = filled()
    for record in (1, 3, 6, 9):
        flip(on_disk, record, 20)
        flip(on_disk, record, 50)
        flip(on_disk, record, 128)
    assert list(range(RECORDS)) == offsets_of(on_disk.load(clean=False))
    on_disk = filled()
    flip(on_disk, 3, 62)
    flip(on_disk, 4, 20)
    assert [0, 1, 2] == offsets_of(on_disk.load(clean=False))


def gapped(*offsets: int) -> LogOnDisk:
    """Return a log with these offsets, as a compaction leaves it."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    for offset in offsets:
        on_disk.log.appender.append_as_follower(batch(b"%d" % offset, offset=offset))
    on_disk.log.close()
    return on_disk


def test_a_gap_leaves_what_is_one_bit_away() -> None:
    """In a log with gaps, a wrong base offset is repaired if only one candidate fits the gap.

    A candidate differs from the wrong offset in one bit.
    """
    on_disk = gapped(3, 5, 17, 90, 91)
    name = f"{0:020d}.log"
    whole = on_disk.content(name)
    position = next(at for at in range(len(whole)) if whole[at : at + 8] == (17).to_bytes(8, "big"))
    damaged = whole[:position] + (17 + 2**40).to_bytes(8, "big") + whole[position + 8 :]
    on_disk.write(name, damaged)
    assert [3, 5, 17, 90, 91] == offsets_of(on_disk.load(clean=False))
    assert whole == on_disk.content(name)


def test_an_uncertain_base_offset_is_not_repaired() -> None:
    """If several candidates fit the gap, the base offset is not repaired and the log ends before the batch.

    A candidate differs from the wrong offset in one bit.
    """
    on_disk = gapped(3, 5, 17, 90, 91)
    name = f"{0:020d}.log"
    whole = on_disk.content(name)
    position = next(at for at in range(len(whole)) if whole[at : at + 8] == (17).to_bytes(8, "big"))
    on_disk.write(name, whole[:position] + (1).to_bytes(8, "big") + whole[position + 8 :])
    assert [3, 5] == offsets_of(on_disk.load(clean=False))


def test_a_read_only_load_repairs_nothing() -> None:
    """A read-only load repairs no byte on disk."""
    on_disk = filled()
    flip(on_disk, 4, 60)
    before = on_disk.disk.tree()
    log = on_disk.load(clean=False, disk=on_disk.disk.read_only_view())
    assert [0, 1, 2, 3] == offsets_of(log)[:4]
    assert before == on_disk.disk.tree()
    assert Path(f"{DIRECTORY}/{3:020d}.log") in map(Path, before)
