"""Tests that a scrub rewrites the damaged parts of a replica from another replica, and changes nothing else."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from tests.doubles.flips import flip, path_of, write
from tests.doubles.records import batch
from tests.doubles.replicated import DISKS, ORDERS, Replicated
from topicfs.replication.scrub.findings import ScrubFinding
from topicfs.storage.compaction.cleaner import clean
from topicfs.storage.duties.log_cleaner import plan_cleaning
from topicfs.storage.model import Position

LOG = f"{0:020}.log"
BASE_OFFSET, LENGTH, EPOCH, CRC, VALUE = 7, 11, 15, 17, 70
"""Positions in a batch: last bytes of base offset, length and leader epoch; the checksum; a record's value."""
LINES = [f"line {number} {'x' * 20}" for number in range(60)]


@pytest.fixture
def two() -> Replicated:
    """Make two replicas of a partition with sixty one-line batches, in segments of about ten batches."""
    both = Replicated(internal_segment_bytes=1000, index_interval_bytes=200)
    both.engine.create_topic("orders")
    for line in LINES:
        both.append(line + "\n")
    both.partition().sync()
    for root in both.roots:
        both.disks.sync_all(root)
    return both


def scrub(two: Replicated) -> list[ScrubFinding]:
    found: list[ScrubFinding] = []
    assert two.engine.scrubber.run(tell=found.append)
    return found


def test_an_empty_partition_has_nothing_to_heal():
    """An empty partition has no finding, although the follower's leader epoch file is empty."""
    two = Replicated()
    two.engine.create_topic("orders")
    assert [] == scrub(two)


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
    assert [] == scrub(two)
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
    (found,) = [one for one in scrub(two) if one.finding.file.name == LOG] or [None]
    if found is not None:  # Otherwise the read above has started the healing.
        assert str(two.roots[2 - number]) == found.healed_from
    assert good == two.files(number)
    assert [] == scrub(two)


def test_what_was_healed_is_on_the_disk(two):
    """Healed bytes are synced; otherwise a power loss would bring the damage back."""
    good = two.files(2)[LOG]
    flip(two, 1, batches(two)[3] + VALUE)
    scrub(two)
    two.disk(1).crash(keep=0.0)
    assert good == two.files(1)[LOG]
    two.open()


def test_each_replica_heals_the_other(two):
    """Batches that are damaged in only one replica are healed in that replica."""
    good = two.files(1)
    places = batches(two)
    for number, at in enumerate(places):
        flip(two, 1 + number % 2, at + VALUE)
    assert len(places) == len([one for one in scrub(two) if one.healed_from])
    assert good == two.files(1) == two.files(2)


def test_a_damaged_replica_heals_nothing(two):
    """A batch damaged in both replicas stays and is reported for both. The batches after it are healed."""
    third, fourth = batches(two)[2:4]
    for number in (1, 2):
        flip(two, number, third + VALUE, mask=number)
    flip(two, 1, fourth + VALUE)
    before = [two.files(number)[LOG][third:fourth] for number in (1, 2)]
    found = scrub(two)
    assert {None: 2, str(two.roots[1]): 1} == Counter(one.healed_from for one in found)
    assert before == [two.files(number)[LOG][third:fourth] for number in (1, 2)]
    assert 2 == two.engine.scrubber.counts.damaged


def test_a_wiped_stretch_is_healed_batch_by_batch(two):
    """A range of zeros or other data is replaced batch by batch."""
    good = two.files(2)
    first, last = batches(two)[1], batches(two)[5]
    for filling in (bytes(last - first), good[LOG][: last - first]):
        write(two, 1, first + 20, filling)
        assert all(one.healed_from for one in scrub(two))
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
    assert 2 == len([one for one in scrub(two) if one.healed_from])
    assert good == two.files(number)
    assert [] == scrub(two)


def test_an_index_that_is_bad_in_both_is_made_of_the_batches(two):
    """If no replica has a sound index, the index is rebuilt from the batches."""
    good = two.files(1)
    for number in (1, 2):
        flip(two, number, 5, name=f"{0:020}.index", mask=number)
    assert ["its batches"] * 2 == [one.healed_from for one in scrub(two)]
    assert good[f"{0:020}.index"] == two.files(1)[f"{0:020}.index"] == two.files(2)[f"{0:020}.index"]
    assert LINES == two.lines()


def test_appends_continue_after_healing(two):
    """After healing both replicas get the same appends, even if the active segment's index was rebuilt."""
    active = two.engine.controller.logs(two.partition().name)[2].chain.active
    flip(two, 2, 6, name=f"{active.base_offset:020}.index", mask=64)
    flip(two, 1, VALUE, name=f"{active.base_offset:020}.log")
    scrub(two)
    for number in range(20):
        two.append(f"more {number}\n")
    assert two.files(1) == two.files(2)
    assert [] == scrub(two)


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
    found = scrub(two)
    assert {"the disk cannot read it"} == {one.finding.cause for one in found}
    assert set() == bad
    assert two.files(1) == two.files(2)


def test_a_refused_write_of_a_scrub_is_reported(two):
    """If the disk refuses the write, the refusal is reported, and the partition stays online."""
    flip(two, 2, batches(two)[1] + VALUE)
    two.disk(2).fail("pwrite", suffix=LOG)
    (found,) = scrub(two)
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
    scrub(two)
    two.crash(keep=0.5)
    assert LINES == two.lines()
    two.engine.catch_up()
    scrub(two)
    assert [] == scrub(two)
    assert good[LOG] == two.files(1)[LOG]


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_entry_that_points_beyond_the_log_is_found(two, kind):
    """An index entry that points beyond the end of the log is found, even the active segment's last entry."""
    active = two.engine.controller.logs(two.partition().name)[1].chain.active
    slots = (active.offset_index if kind == "index" else active.time_index).slots
    last = slots.used_bytes - (4 if kind == "index" else 2)
    flip(two, 1, last, name=f"{active.base_offset:020}.{kind}", mask=32)
    assert [str(two.roots[1])] == [one.healed_from for one in scrub(two)]
    assert two.files(1) == two.files(2)


def test_a_copy_that_compaction_made_different_gets_nothing_of_the_other():
    """Logs are compacted separately, so a batch that only one log has is no damage, and is not copied alone.

    A damaged replica is copied as a whole: see `tests/replication/replicas/healing/test_renewal.py`.
    """
    both = Replicated(cleanup_policy=("compact",), internal_segment_bytes=1000, min_cleanable_dirty_ratio=0.0)
    both.engine.create_topic("orders")
    for number in range(60):
        key = b"%d" % number if number < 5 else b"%d" % (number % 7 + 100)
        both.partition().append(batch(b"value %02d" % number, key=key, timestamp=1 + number))
    leader, follower = (both.engine.controller.logs(both.partition().name)[number] for number in (1, 2))
    follower.roles.follow_high_watermark(follower.log_end_offset)
    clean(follower, plan_cleaning(follower, both.clock()), now=both.clock(), map_bytes=1 << 16)
    mine, theirs = follower.chain.segments[0], leader.chain.segments[0]
    assert 0 < mine.size < theirs.size
    assert [] == scrub(both)
    good = theirs.log.pread(1 << 20, Position(0))
    last = mine.find_batch(4, mine.size)
    assert last is not None
    flip(both, 2, last.position + VALUE)
    assert ["/a"] == [one.healed_from for one in scrub(both)]
    assert good == theirs.log.pread(1 << 20, Position(0))
    assert both.files(1)[LOG] == both.files(2)[LOG]
    assert [] == scrub(both)


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
    (found,) = scrub(made)
    offline = made.partition(name).status().offline
    assert (str(name), f"not scrubbed to its end: {offline}") == (
        str(found.finding.file),
        found.finding.cause,
    )
    assert (1, True) == (made.engine.scrubber.damaged, bool(offline))
