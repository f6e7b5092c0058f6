"""Tests that a scrub rewrites the damaged parts of a replica from another replica, and changes nothing else."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from tests.doubles.flips import flip, path_of, write
from tests.doubles.replicated import DISKS, ORDERS, Replicated, with_orders

LOG = f"{0:020}.log"
BASE_OFFSET, LENGTH, EPOCH, CRC, VALUE = 7, 11, 15, 17, 70
"""Positions in a batch: last bytes of base offset, length and leader epoch; the checksum; a record's value."""
LINES = [f"line {number} {'x' * 20}" for number in range(60)]


@pytest.fixture
def two() -> Replicated:
    """Make two replicas of a partition with sixty one-line batches, in segments of about ten batches."""
    both = with_orders(internal_segment_bytes=1000, index_interval_bytes=200)
    both.append_each(LINES)
    both.partition().sync()
    for root in both.roots:
        both.disks.sync_all(root)
    return both


def test_an_empty_partition_has_nothing_to_heal():
    """An empty partition has no finding, although the follower's leader epoch file is empty."""
    two = with_orders()
    assert [] == two.scrub()


def batches(two: Replicated, number: int = 1) -> list[int]:
    """Return the positions of the batches of the first segment."""
    log = two.engine.controller.logs(two.partition().name)[number]
    segment = log.chain.segments[0]
    return [
        found.position
        for offset in range(log.chain.base_offsets[1])
        if (found := segment.find_batch(offset, segment.size))
    ]


def test_nothing_is_found_where_nothing_is_damaged(two):
    """A scrub reads all replicas, and finds nothing in undamaged ones."""
    assert [] == two.scrub()
    logs = two.engine.controller.logs(two.partition().name).values()
    assert two.engine.scrubber.counts.read_bytes >= sum(log.parts.state.log_bytes() for log in logs)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("at", [0, BASE_OFFSET, 8, LENGTH, EPOCH, CRC, 16, 26, VALUE])
@pytest.mark.parametrize("which", [0, 4, -1])
def test_a_flipped_bit_is_healed_wherever_it_is(two, number, at, which):
    """A flipped bit in leader or follower is healed in a segment's first batch, middle batch and last batch."""
    good = two.files(3 - number)
    flip(two, number, batches(two)[which] + at, mask=4)
    assert LINES == two.lines()
    (found,) = [one for one in two.scrub() if one.finding.file.name == LOG] or [None]
    if found is not None:  # Otherwise the read above has started the healing.
        assert str(two.roots[2 - number]) == found.healed_from
    assert good == two.files(number)
    assert [] == two.scrub()


def test_what_was_healed_is_on_the_disk(two):
    """Healed bytes are synced; otherwise a power loss would bring the damage back."""
    good = two.files(2)[LOG]
    flip(two, 1, batches(two)[3] + VALUE)
    two.scrub()
    two.disk(1).crash(keep=0.0)
    assert good == two.files(1)[LOG]
    two.open()


def test_each_replica_heals_the_other(two):
    """Batches that are damaged in only one replica are healed in that replica."""
    good = two.files(1)
    places = batches(two)
    for number, at in enumerate(places):
        flip(two, 1 + number % 2, at + VALUE)
    assert len(places) == len([one for one in two.scrub() if one.healed_from])
    assert good == two.files(1) == two.files(2)


def test_a_damaged_replica_heals_nothing(two):
    """A batch damaged in both replicas stays and is reported for both. The batches after it are healed."""
    third, fourth = batches(two)[2:4]
    for number in (1, 2):
        flip(two, number, third + VALUE, mask=number)
    flip(two, 1, fourth + VALUE)
    before = [two.files(number)[LOG][third:fourth] for number in (1, 2)]
    found = two.scrub()
    assert {None: 2, str(two.roots[1]): 1} == Counter(one.healed_from for one in found)
    assert before == [two.files(number)[LOG][third:fourth] for number in (1, 2)]
    assert 2 == two.engine.scrubber.counts.damaged


def test_a_wiped_stretch_is_healed_batch_by_batch(two):
    """A range of zeros or other data is replaced batch by batch."""
    good = two.files(2)
    first, last = batches(two)[1], batches(two)[5]
    for filling in (bytes(last - first), good[LOG][: last - first]):
        write(two, 1, first + 20, filling)
        assert all(one.healed_from for one in two.scrub())
        assert good == two.files(1)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("number", [1, 2])
def test_an_index_is_made_again(two, kind, number):
    """A damaged index of a sealed or active segment is replaced by the other replica's index."""
    good = two.files(3 - number)
    log = two.engine.controller.logs(two.partition().name)[number]
    for segment in (log.chain.segments[0], log.chain.active):
        flip(two, number, 6, name=f"{segment.base_offset:020}.{kind}", mask=64)
    assert LINES == two.lines()
    assert 2 == len([one for one in two.scrub() if one.healed_from])
    assert good == two.files(number)
    assert [] == two.scrub()


def test_an_index_that_is_bad_in_both_is_made_of_the_batches(two):
    """If no replica has a sound index, the index is rebuilt from the batches."""
    good = two.files(1)
    for number in (1, 2):
        flip(two, number, 5, name=f"{0:020}.index", mask=number)
    assert ["its batches"] * 2 == [one.healed_from for one in two.scrub()]
    assert good[f"{0:020}.index"] == two.files(1)[f"{0:020}.index"] == two.files(2)[f"{0:020}.index"]
    assert LINES == two.lines()


def test_appends_continue_after_healing(two):
    """After healing both replicas get the same appends, even if the active segment's index was rebuilt."""
    active = two.engine.controller.logs(two.partition().name)[2].chain.active
    flip(two, 2, 6, name=f"{active.base_offset:020}.index", mask=64)
    flip(two, 1, VALUE, name=f"{active.base_offset:020}.log")
    two.scrub()
    for number in range(20):
        two.append(f"more {number}\n")
    assert two.files(1) == two.files(2)
    assert [] == two.scrub()


def test_a_sector_that_cannot_be_read_is_written_again(two, monkeypatch):
    """An unreadable sector is rewritten, so that the disk can remap it."""
    file = two.disk(2).open(path_of(two, 2, LOG))
    bad = {batches(two)[3] + VALUE}
    pread, pwrite = type(file).pread, type(file).pwrite

    def read(self, size, position):
        if self.path == file.path and any(position <= one < position + size for one in bad):
            raise OSError(errno.EIO, "Input/output error", str(self.path))
        return pread(self, size, position)

    def rewrite(self, data, position):
        if self.path == file.path:
            bad.difference_update(range(position, position + len(data)))
        pwrite(self, data, position)

    monkeypatch.setattr(type(file), "pread", read)
    monkeypatch.setattr(type(file), "pwrite", rewrite)
    found = two.scrub()
    assert {"the disk cannot read it"} == {one.finding.cause for one in found}
    assert set() == bad
    assert two.files(1) == two.files(2)


def test_a_refused_write_of_a_scrub_is_reported(two):
    """If the disk refuses the write, the refusal is reported, and the partition stays online."""
    flip(two, 2, batches(two)[1] + VALUE)
    two.disk(2).fail("pwrite", suffix=LOG)
    (found,) = two.scrub()
    assert found.healed_from is None
    assert "rewriting it failed" in found.finding.cause
    assert LINES == two.lines()


@pytest.mark.parametrize("step", range(6))
def test_a_loss_of_power_while_it_is_healed_costs_nothing(two, step):
    """If power is lost during healing, a half-written batch counts as damaged, and the next scrub heals it."""
    good = two.files(2)
    flip(two, 1, batches(two)[1] + VALUE)
    flip(two, 1, 5, name=f"{0:020}.index", mask=64)
    two.disk(1).fail("sync" if step % 2 else "write_bytes", number=errno.EIO, times=1 + step // 2)
    two.scrub()
    two.crash(keep=0.5)
    assert LINES == two.lines()
    two.engine.catch_up()
    two.scrub()
    assert [] == two.scrub()
    assert good[LOG] == two.files(1)[LOG]


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_entry_that_points_beyond_the_log_is_found(two, kind):
    """An index entry that points beyond the end of the log is found, even the active segment's last entry."""
    active = two.engine.controller.logs(two.partition().name)[1].chain.active
    slots = (active.offset_index if kind == "index" else active.time_index).slots
    last = slots.used_bytes - (4 if kind == "index" else 2)
    flip(two, 1, last, name=f"{active.base_offset:020}.{kind}", mask=32)
    assert [str(two.roots[1])] == [one.healed_from for one in two.scrub()]
    assert two.files(1) == two.files(2)


@pytest.mark.parametrize("cause", ["its directory is left out", "flushing failed"])
def test_a_partition_that_is_offline_is_a_finding(cause):
    """A scrub reports an offline partition as a finding, because it cannot be read."""
    made = Replicated(replicas=1)
    made.engine.create_topic("orders", partitions=2)
    names = [ORDERS._replace(partition=number) for number in (0, 1)]
    (name,) = [one for one in names if made.leader(one) == 2]
    if cause == "flushing failed":
        made.engine.controller.logs(name)[2].parts.mark_offline(cause)
    else:
        made.reopen(DISKS[0], left_out=(DISKS[1],))
    (found,) = made.scrub()
    offline = made.partition(name).status().offline
    assert (str(name), f"not scrubbed to its end: {offline}") == (
        str(found.finding.file),
        found.finding.cause,
    )
    assert (1, True) == (made.engine.scrubber.damaged, bool(offline))
