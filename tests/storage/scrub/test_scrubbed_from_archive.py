"""The scrub with an archive: what no replica has sound is made again of its records, on the disk, and counted apart."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.doubles.engines import DATA, TINY_SEGMENTS, append_lines, engine_on, read_lines
from tests.doubles.flips import flip
from tests.doubles.kept_records import KeptRecords, kept_of
from tests.doubles.records import batch
from tests.doubles.replicated import Replicated
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.errors import StorageError
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Position, TopicPartition
from topicfs.storage.scrub.archive import RecordArchive
from topicfs.storage.scrub.findings import ScrubFinding

ORDERS = TopicPartition("orders", 0)
LOG = f"{0:020}.log"
BASE_OFFSET, LENGTH, EPOCH, CRC, VALUE = 7, 11, 15, 17, 70
"""Positions in a batch: the last bytes of its base offset, its length and its leader epoch; its checksum; a record."""


class Alone:
    """One data directory without replicas, with a topic of several segments, and an archive of it."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.engine: LogManager = engine_on(self.disk)
        self.engine.create_topic("orders", overrides=TINY_SEGMENTS)
        for number in range(20):
            append_lines(self.partition, f"line {number}\n")
        self.partition.sync()
        self.disk.sync_all(DATA)
        self.archive = kept_of(self.partition)

    @property
    def partition(self):
        return self.engine.partition("orders", 0)

    def files(self) -> dict[str, bytes]:
        root = DATA / "orders-0"
        return {
            entry.name: self.disk.read_bytes(root / entry.name)
            for entry in self.disk.list_directory(root)
            if entry.name.endswith(".log")
        }

    def flip(self, position: int, name: str = LOG) -> None:
        file = self.disk.open(DATA / "orders-0" / name)
        octet = file.pread(1, Position(position))[0]
        file.pwrite(bytes([octet ^ 4]), Position(position))
        file.sync()

    def scrub(self, archive: RecordArchive | None) -> list[ScrubFinding]:
        found: list[ScrubFinding] = []
        assert self.engine.scrubber.run(tell=found.append, archive=archive)
        return found

    def positions(self) -> list[int]:
        """Positions of the batches of the first segment."""
        chain = self.partition.chain
        segment = chain.segments[0]
        found = (segment.find_batch(offset, segment.size) for offset in range(chain.base_offsets[1]))
        return [one.position for one in found if one]


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("at", [0, BASE_OFFSET, 8, LENGTH, EPOCH, 16, CRC, 26, 30, 60, VALUE])
def test_a_flipped_bit_is_put_right_without_a_replica(alone, which, at):
    """The first batch of a segment, one in the middle and the last one; the finding says from where."""
    good = alone.files()
    alone.flip(alone.positions()[which] + at)
    (found,) = alone.scrub(alone.archive)
    assert ("/archive", True) == (found.healed_from, found.from_archive)
    assert "(healed from the archive /archive)" in str(found)
    assert good == alone.files()
    assert (1, 1, 0) == (
        alone.engine.scrubber.counts.batches_healed,
        alone.engine.scrubber.counts.batches_from_archive,
        alone.engine.scrubber.counts.damaged,
    )
    assert [] == alone.scrub(None)
    assert [f"line {number}" for number in range(20)] == read_lines(alone.partition)


def test_many_damaged_batches_one_behind_the_other_are_put_right(alone):
    """Each is found by the one before."""
    good = alone.files()
    positions = alone.positions()
    for position in positions:
        alone.flip(position + LENGTH)
    alone.flip(positions[1] + BASE_OFFSET)
    assert {True: len(positions)} == Counter(one.from_archive for one in alone.scrub(alone.archive))
    assert good == alone.files()


def test_what_was_healed_is_on_the_disk(alone):
    """Without that a loss of power brings the damage back."""
    good = alone.files()
    alone.flip(alone.positions()[1] + VALUE)
    alone.scrub(alone.archive)
    alone.disk.crash(keep=0.0)
    assert good == alone.files()


def test_without_the_archive_it_is_left(alone):
    """As before."""
    alone.flip(alone.positions()[1] + VALUE)
    before = alone.files()
    assert [None] == [one.healed_from for one in alone.scrub(None)]
    assert before == alone.files()


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (KeptRecords([]), "it has no record of the offsets 0 to 0"),
    ],
)
def test_what_it_cannot_prove_is_left(alone, archive, reason):
    """With the reason in the finding, and the batches behind are looked at all the same."""
    first, _, second, *_ = alone.positions()
    alone.flip(first + VALUE)
    alone.flip(second + VALUE)
    before = alone.files()
    found = alone.scrub(archive)
    assert [first, second] == [one.finding.position for one in found]
    assert f"cannot be healed from the archive /archive: {reason}" in found[0].finding.cause
    assert before == alone.files()


def test_an_archive_that_cannot_be_read_is_no_end(alone):
    """Its error is in the finding; the scrub goes on."""

    class Broken:
        name = "/archive"

        def records(self, partition, start_offset, end_offset, /):
            raise StorageError("part-0.parquet: no Parquet")

    alone.flip(alone.positions()[0] + VALUE)
    alone.flip(VALUE, name=f"{alone.partition.chain.base_offsets[1]:020}.log")
    found = alone.scrub(Broken())
    assert 2 == len(found)
    assert all("archive /archive: part-0.parquet: no Parquet" in one.finding.cause for one in found)


def test_a_disk_that_cannot_write_keeps_what_it_has(alone):
    """That is reported."""
    alone.flip(alone.positions()[1] + VALUE)
    alone.disk.fail("pwrite", suffix=LOG)
    (found,) = alone.scrub(alone.archive)
    assert (None, False) == (found.healed_from, found.from_archive)
    assert "writing it again failed" in found.finding.cause


def test_an_index_is_made_of_what_was_healed(alone):
    """The entries behind a batch whose length was damaged lead to where they did."""
    alone.flip(alone.positions()[1] + LENGTH)
    alone.flip(5, name=f"{0:020}.timeindex")
    found = alone.scrub(alone.archive)
    assert {"/archive", "its batches"} == {one.healed_from for one in found}
    assert [] == alone.scrub(None)


@pytest.fixture
def two() -> Replicated:
    both = Replicated(internal_segment_bytes=1000, index_interval_bytes=200)
    both.engine.create_topic("orders")
    for number in range(30):
        both.append(f"line {number}\n")
    both.partition().sync()
    return both


def test_a_replica_is_taken_before_the_archive(two):
    """It is asked for what both have damaged alone; there both get it, and are counted."""
    good = two.files(1)
    archive = kept_of(two.partition())
    size = two.engine.controller.logs(ORDERS)[1].chain.segments[0].find_batch(0, 1 << 20).size_bytes
    for number in (1, 2):
        flip(two, number, VALUE, mask=number)
    flip(two, 1, size + VALUE)
    found: list[ScrubFinding] = []
    assert two.engine.scrubber.run(tell=found.append, archive=archive)
    assert {"/archive": 2, "/b": 1} == Counter(one.healed_from for one in found)
    assert good == two.files(1) == two.files(2)
    assert [f"line {number}" for number in range(30)] == two.lines()


def test_a_compacted_copy_needs_a_proof_of_its_own():
    """What is proven of one log, which was compacted by itself, is written into no other."""
    both = Replicated(cleanup_policy=("compact",), internal_segment_bytes=1000)
    both.engine.create_topic("orders")
    for number in range(30):
        both.partition().append(batch(b"value %02d" % number, key=b"%d" % (number % 7), timestamp=1 + number))
    archive = kept_of(both.partition())
    good = both.files(1)[LOG]
    flip(both, 1, VALUE, mask=1)
    flip(both, 2, CRC, mask=1)
    flip(both, 2, VALUE, mask=1)
    found: list[ScrubFinding] = []
    assert both.engine.scrubber.run(tell=found.append, archive=archive)
    assert good == both.files(1)[LOG]
    assert {"/a": True, "/b": False}.items() <= {
        str(one.finding.file.parents[1]): one.from_archive for one in found
    }.items()
