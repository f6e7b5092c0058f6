"""Tests that following a log that another process writes always has the same result as loading the log again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.doubles.logs import DIRECTORY, PARTITION, LogOnDisk
from tests.doubles.records import marker, produced, sized_batch
from topicfs.storage.model import Isolation, Offset, Timestamp
from topicfs.storage.producers.append import Origin
from topicfs.storage.recovery.followed_log import FileStamp, FollowedLog, grew_only
from topicfs.storage.recovery.options import Checkpointed
from topicfs.storage.segment.roll import SegmentDirectory

BOUNDS = ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset", "leader_epoch")


class Beside:
    """A log on a simulated disk and a follower on a read-only view, as in the pipeline."""

    def __init__(self, **settings) -> None:
        self.on_disk = LogOnDisk(**({"internal_segment_bytes": 1000, "index_interval_bytes": 0} | settings))
        self.view = self.on_disk.disk.read_only_view()
        self.followed = None
        self.stamps = ()
        self.read_bytes = 0
        self.look()

    @property
    def log(self):
        return self.on_disk.log

    def append(self, count: int, *, size: int = 100) -> None:
        for _ in range(count):
            self.log.append(sized_batch(size, timestamp=self.log.log_end_offset * 10))

    def append_and_catch_up(self, count: int, *, size: int = 100) -> None:
        self.append(count, size=size)
        assert self.look()

    def look(self, *, start: int = 0, high_watermark: int | None = None) -> bool:
        """Catch up if possible, or else load, and compare with a new load. Return whether catching up was possible."""
        offset = None if high_watermark is None else Offset(high_watermark)
        before, self.stamps = self.stamps, self._stamps()
        caught_up = (
            self.followed is not None
            and grew_only(before, self.stamps)
            and self.followed.catch_up(Offset(start), offset)
        )
        if not caught_up:
            directory = SegmentDirectory(DIRECTORY, self.view, self.on_disk.clock)
            checkpointed = Checkpointed(Offset(0), Offset(start), offset)
            self.followed = FollowedLog(directory, PARTITION, checkpointed)
        self._check(start, high_watermark)
        return caught_up

    def _stamps(self) -> tuple[FileStamp, ...]:
        disk = self.on_disk.disk
        return tuple(
            FileStamp(path.name, id(node), len(node.data), disk.modified_time_ms(path))
            for path, node in disk._walk(Path("/"), disk._root)
            if path.parent == DIRECTORY
        )

    def _check(self, start: int, high_watermark: int | None) -> None:
        found = self.followed.log
        offsets = {"log_start_offset": start}
        if high_watermark is not None:
            offsets["high_watermark"] = high_watermark
        again = self.on_disk.load(clean=False, disk=self.view, **offsets)
        for bound in BOUNDS:
            assert getattr(again.offsets(), bound) == getattr(found.offsets(), bound)
        assert again.chain.base_offsets == found.chain.base_offsets
        assert [one.size for one in again.chain.segments] == [one.size for one in found.chain.segments]
        assert again.aborted == found.aborted
        for offset in range(found.log_start_offset, found.log_end_offset):
            assert again.locate(Offset(offset)) == found.locate(Offset(offset))
        for time in range(0, found.log_end_offset * 10 + 10, 10):
            expected = again.offset_for_timestamp(Timestamp(time))
            assert expected == found.offset_for_timestamp(Timestamp(time))
        again.close()


def test_appends_and_rolls_are_taken_in():
    """Appends and rolls are followed without loading the log again."""
    beside = Beside()
    for count in (1, 3, 0, 25):
        beside.append_and_catch_up(count)
    assert len(beside.log.segments()) > 2


def test_only_what_is_new_is_read(monkeypatch):
    """Catching up reads only the new batches, whatever the size of the active segment."""
    beside = Beside(internal_segment_bytes=10_000_000, index_interval_bytes=4096)
    beside.append_and_catch_up(100, size=10_000)
    beside.append(1)
    read = []
    file = beside.followed.log.chain.active.log
    pread = type(file).pread

    def count(self, size, position):
        data = pread(self, size, position)
        read.append(len(data))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(type(file), "pread", count)
        assert beside.followed.catch_up(Offset(0), None)
    assert 101 == beside.followed.log.log_end_offset
    assert sum(read) < 40_000


def test_indexes_in_memory_grow_with_the_log():
    """The follower's indexes in memory grow, so that a lookup near the log's end reads few batches."""
    beside = Beside(internal_segment_bytes=10_000_000, index_interval_bytes=4096)
    for _ in range(5):
        beside.append_and_catch_up(100, size=1000)
    index = beside.followed.log.chain.active.offset_index
    assert index.lookup(Offset(495)).offset > 480


def test_a_half_written_batch_is_waited_for():
    """A half-written batch is shown after it is complete."""
    beside = Beside()
    beside.append(3)
    name = f"{0:020}.log"
    whole = beside.on_disk.content(name)
    beside.on_disk.write(name, whole[:-40])
    beside.followed = None
    assert not beside.look()
    assert 2 == beside.followed.log.log_end_offset
    beside.on_disk.write(name, whole)
    assert beside.look()
    assert 3 == beside.followed.log.log_end_offset


def test_deletion_at_the_front_moves_the_start():
    """The follower's log start moves after retention, and after DeleteRecords, which only a checkpoint shows."""
    beside = Beside()
    beside.append_and_catch_up(40)
    beside.log.replacer.delete_oldest_segments(2, "as a test")
    assert beside.look()
    assert beside.look(start=35)
    assert 35 == beside.followed.log.log_start_offset


def test_a_log_that_was_cut_is_loaded_again():
    """A truncated log is loaded again, even if it has grown since the truncation."""
    beside = Beside(internal_segment_bytes=1_000_000)
    for more in (0, 5, 9):
        beside.append_and_catch_up(10)
        end_offset = beside.log.log_end_offset
        beside.log.replacer.truncate_to(end_offset - 5)
        for _ in range(more):
            beside.log.append(sized_batch(100, timestamp=7))
        assert not beside.look()
        assert end_offset - 5 + more == beside.followed.log.log_end_offset


def test_a_log_that_was_compacted_is_loaded_again():
    """A compacted log is loaded again, because a file name that the follower knows now belongs to a new file."""
    beside = Beside()
    beside.append_and_catch_up(25)
    old = beside.log.chain.segments[:2]
    new = beside.log.replacer.new_cleaned_segment(old[0].base_offset)
    new.close()
    assert beside.log.replacer.replace_segments(old, new)
    assert not beside.look()


def test_a_log_that_was_created_again_is_loaded_again():
    """A log whose topic was deleted and created again is loaded again."""
    beside = Beside()
    beside.append_and_catch_up(5)
    beside.log.replacer.truncate_fully_and_start_at(Offset(0))
    beside.log.append(sized_batch(100, timestamp=3))
    assert not beside.look()
    assert 1 == beside.followed.log.log_end_offset


def test_an_owner_that_restarts_is_followed_on():
    """After its owner restarts, cleanly or with recovery, a log is followed without loading it again."""
    beside = Beside()
    beside.append_and_catch_up(15)
    beside.on_disk.kill()
    beside.append_and_catch_up(15)
    beside.on_disk.reopen()
    beside.append_and_catch_up(15)


def test_transactions_are_decided_while_following():
    """The last stable offset and the aborted transactions are followed."""
    beside = Beside()
    beside.log.append(produced(b"a", b"b", txn=True))
    beside.append_and_catch_up(2)
    assert 0 == beside.followed.log.offsets().visible_end(Isolation.READ_COMMITTED)
    beside.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    assert beside.look()
    assert 5 == beside.followed.log.offsets().visible_end(Isolation.READ_COMMITTED)
    assert 1 == len(beside.followed.log.aborted)


@pytest.mark.parametrize("seed", range(8))
def test_following_equals_loading_again(seed):
    """Following any series of appends, rolls, deletions, truncations and restarts equals a new load."""
    chance = Random(seed)
    beside = Beside()
    for _ in range(30):
        happens = chance.random()
        if happens < 0.6:
            beside.append(chance.randint(0, 8), size=chance.choice((90, 200, 900)))
        elif happens < 0.7:
            beside.log.replacer.delete_oldest_segments(1, "as a test")
        elif happens < 0.8 and beside.log.log_end_offset > beside.log.log_start_offset:
            beside.log.replacer.truncate_to(
                Offset(chance.randrange(beside.log.log_start_offset, beside.log.log_end_offset))
            )
        elif happens < 0.9:
            beside.on_disk.kill(log_start_offset=beside.log.log_start_offset)
        else:
            beside.on_disk.reopen(log_start_offset=beside.log.log_start_offset)
        if chance.random() < 0.7:
            beside.on_disk.clock.now += 1
            high_watermark = chance.choice((None, beside.log.log_end_offset // 2))
            beside.look(start=beside.log.log_start_offset, high_watermark=high_watermark)


def stamp(name: str, *, inode: int = 1, size: int = 10, modified_ns: int = 0) -> FileStamp:
    return FileStamp(name, inode, size, modified_ns)


FIRST, SECOND, THIRD = (f"{offset:020}.log" for offset in (0, 10, 20))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ([stamp(FIRST), stamp(SECOND)], True),
        ([stamp(FIRST), stamp(SECOND, size=20, modified_ns=1), stamp(THIRD)], True),
        ([stamp(SECOND)], True),
        ([stamp(FIRST), stamp(SECOND), stamp("00000000000000000010.index", inode=5)], True),
        ([], False),
        ([stamp(FIRST)], False),
        ([stamp(THIRD)], False),
        ([stamp(FIRST, inode=2), stamp(SECOND)], False),
        ([stamp(FIRST, size=11), stamp(SECOND)], False),
        ([stamp(FIRST, modified_ns=1), stamp(SECOND)], False),
        ([stamp(FIRST), stamp(SECOND, inode=2)], False),
        ([stamp(FIRST), stamp("00000000000000000005.log"), stamp(SECOND)], False),
        ([stamp(FIRST), stamp(SECOND), stamp(f"{FIRST}.swap")], False),
        ([stamp(FIRST), stamp(SECOND), stamp(f"{FIRST}.deleted"), stamp(f"{FIRST}.cleaned")], True),
    ],
)
def test_grew_only(now, expected):
    """`grew_only` accepts growth, rolls and removals of the first segments, and no other change."""
    before = [stamp("00000000000000000000.index"), stamp(FIRST), stamp(SECOND)]
    assert expected == grew_only(before, now)
