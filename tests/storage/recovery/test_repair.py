"""Tests that a flipped bit in header fields without a checksum is repaired, and that no record is lost."""

from __future__ import annotations

import logging

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of
from tests.doubles.records import batch, sized_batch
from tests.doubles.simulated_disk import SimulatedFile
from tests.storage.recovery.stopped_logs import log_file, overwrite, stopped
from topicfs.storage.codec.batch import scan
from topicfs.storage.model import Position

pytestmark = pytest.mark.slow

RECORDS = 12
"""The number of records. Each record is a batch, and three batches make a segment."""

BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC = range(64), range(64, 96), range(96, 128), range(128, 136)
"""The bits of each header field, counted from the highest bit of the header's first byte."""


@pytest.fixture
def on_disk() -> LogOnDisk:
    """A log of three batches in each segment, closed in order."""
    return stopped(RECORDS)


def logs(on_disk: LogOnDisk) -> dict[str, bytes]:
    return {name: on_disk.content(name) for name in on_disk.names() if name.endswith(".log")}


def flip(on_disk: LogOnDisk, record: int, bit: int) -> None:
    name = f"{record - record % 3:020d}.log"
    content = bytearray(on_disk.content(name))
    content[record % 3 * 100 + bit // 8] ^= 0x80 >> bit % 8
    on_disk.write(name, bytes(content))


FLIPPED = [
    *(pytest.param(BASE_OFFSET, record, False, id=f"base offset {record}") for record in range(RECORDS - 1)),
    *(pytest.param(MAGIC, record, False, id=f"magic {record}") for record in range(RECORDS)),
    *(pytest.param(LENGTH, record, False, id=f"length {record}") for record in (0, 4, RECORDS - 1)),
    pytest.param(LENGTH, RECORDS - 1, True, id="last length after a clean close"),
]


@pytest.mark.parametrize(("field", "record", "clean"), FLIPPED)
def test_a_flipped_bit_is_repaired(on_disk: LogOnDisk, field: range, record: int, clean: bool) -> None:
    """A flipped bit of a header field without a checksum is repaired, and no record is lost.

    A base offset is repaired from its neighbors, except the last one. A magic is repaired if the checksum of format v2
    is valid. A length is repaired if changing one bit of it gives a valid checksum, even in a log that was closed
    cleanly; a broker truncates the log at such a batch.
    """
    whole = logs(on_disk)
    for bit in field:
        flip(on_disk, record, bit)
        log = on_disk.load(clean=clean)
        assert (RECORDS, list(range(RECORDS))) == (log.log_end_offset, offsets_of(log)), f"bit {bit}"
        log.close()
        assert whole == logs(on_disk), f"bit {bit}"


def test_the_last_base_offset_is_repaired_only_if_impossible(on_disk: LogOnDisk) -> None:
    """The last base offset is repaired only if it is impossible.

    A larger base offset is possible, because a gap may come before the last batch.
    """
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
    set_offset(on_disk, 17, 103)
    set_offset(on_disk, 90, 104 ^ 32)
    assert [3, 5, 103] == offsets_of(on_disk.load(clean=False))


@pytest.mark.parametrize("bit", [0x80, 0x02])
@pytest.mark.parametrize("record", [0, 4, RECORDS - 1])
def test_a_magic_that_ends_a_brokers_log_is_repaired_and_reported(
    on_disk: LogOnDisk, record: int, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A magic that would end the log in a broker is repaired, with a warning.

    A broker reads 0x82 as a negative number and 0 as an old format.
    """
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


@pytest.mark.parametrize("record", [0, 4, RECORDS - 1])
def test_a_leader_epoch_stays_as_it_is(record: int) -> None:
    """A leader epoch with a flipped bit stays, because its old value is unknown. A broker keeps it as well."""
    for bit in LEADER_EPOCH:
        on_disk = stopped(RECORDS)
        flip(on_disk, record, bit)
        damaged = logs(on_disk)
        log = on_disk.load(clean=False)
        assert list(range(RECORDS)) == offsets_of(log), f"bit {bit}"
        log.close()
        assert damaged == logs(on_disk)


def test_two_bits_of_a_length_end_the_log(on_disk: LogOnDisk) -> None:
    """A length with two flipped bits ends the log, as in a broker."""
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


def test_a_repair_is_logged(on_disk: LogOnDisk, caplog: pytest.LogCaptureFixture) -> None:
    """A repair logs the file, the position and both values."""
    flip(on_disk, 4, 63)
    flip(on_disk, 7, 128 + 5)
    with caplog.at_level(logging.WARNING):
        on_disk.load(clean=False)
    assert [
        f"{DIRECTORY}/{3:020d}.log: position 100: base offset 5 does not fit; its neighbors and checksum require 4",
        f"{DIRECTORY}/{6:020d}.log: position 100: magic 6 does not fit; its neighbors and checksum require 2",
    ] == caplog.messages


def test_several_flipped_bits_are_repaired(on_disk: LogOnDisk) -> None:
    """In a log without gaps several flipped bits are repaired, unless two adjacent batches are damaged."""
    for record in (1, 3, 6, 9):
        flip(on_disk, record, 20)
        flip(on_disk, record, 50)
        flip(on_disk, record, 128)
    assert list(range(RECORDS)) == offsets_of(on_disk.load(clean=False))
    damaged = stopped(RECORDS)
    flip(damaged, 3, 62)
    flip(damaged, 4, 20)
    assert [0, 1, 2] == offsets_of(damaged.load(clean=False))


def gapped(*offsets: int) -> LogOnDisk:
    """Return a log with these offsets, as a compaction leaves it."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    for offset in offsets:
        on_disk.log.appender.append_as_follower(batch(b"%d" % offset, offset=offset))
    on_disk.log.close()
    return on_disk


def set_offset(on_disk: LogOnDisk, old: int, new: int) -> None:
    """Change the base offset of the batch at offset `old` of the first segment."""
    position = on_disk.content(log_file(0)).index(old.to_bytes(8, "big"))
    overwrite(on_disk, 0, position, new.to_bytes(8, "big"))


def test_a_gap_leaves_what_is_one_bit_away() -> None:
    """In a log with gaps, a wrong base offset is repaired if only one candidate fits the gap.

    A candidate differs from the wrong offset in one bit.
    """
    on_disk = gapped(3, 5, 17, 90, 91)
    whole = logs(on_disk)
    set_offset(on_disk, 17, 17 + 2**40)
    assert [3, 5, 17, 90, 91] == offsets_of(on_disk.load(clean=False))
    assert whole == logs(on_disk)


def test_an_uncertain_base_offset_is_not_repaired() -> None:
    """If several candidates fit the gap, the base offset is not repaired and the log ends before the batch.

    A candidate differs from the wrong offset in one bit.
    """
    on_disk = gapped(3, 5, 17, 90, 91)
    set_offset(on_disk, 17, 1)
    assert [3, 5] == offsets_of(on_disk.load(clean=False))


def test_a_read_only_load_repairs_nothing(on_disk: LogOnDisk) -> None:
    """A read-only load repairs no byte on disk."""
    flip(on_disk, 4, 60)
    before = on_disk.disk.tree()
    log = on_disk.load(clean=False, disk=on_disk.disk.read_only_view())
    assert [0, 1, 2, 3] == offsets_of(log)[:4]
    assert before == on_disk.disk.tree()
